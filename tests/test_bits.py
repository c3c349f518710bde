"""Bits per byte: by hand, not perplexity, and what is refused."""

import math

import pytest
import torch
from lmcourse.bits import bits_per_byte


def test_every_byte_of_every_text_counts_once():
    nats = [torch.tensor([0.5, 0.25]).log(), torch.tensor([0.125]).log()]
    assert bits_per_byte(nats, ["é", "a"]) == pytest.approx((1 + 2 + 3) / 3)  # é is two bytes
    assert bits_per_byte(nats, ["é", "a"]) != pytest.approx((1 + 2 + 3) / 2)  # characters
    assert bits_per_byte(nats, ["é", "a"]) != pytest.approx((3 / 2 + 3) / 2)  # the mean of the texts


def test_a_uniform_choice_of_bytes_costs_eight_bits():
    text = "Zur Sache, Schätzchen"
    nats = torch.full((len(text.encode()),), -math.log(256), dtype=torch.float64)
    assert bits_per_byte([nats], [text]) == pytest.approx(8)


def test_it_does_not_depend_on_how_the_text_is_cut():
    fine, coarse = torch.tensor([0.5, 0.5, 0.5, 0.5]).log(), torch.tensor([0.25, 0.25]).log()
    assert bits_per_byte([fine], ["abcd"]) == pytest.approx(bits_per_byte([coarse], ["abcd"]))
    assert fine.mean().neg().exp() != pytest.approx(coarse.mean().neg().exp())  # perplexity does


def test_texts_that_are_empty_add_nothing_and_what_is_impossible_costs_everything():
    assert bits_per_byte([torch.tensor([0.5]).log(), torch.empty(0)], ["a", ""]) == pytest.approx(1)
    assert bits_per_byte([torch.tensor([-torch.inf])], ["a"]) == math.inf


@pytest.mark.parametrize(
    "nats, texts, kind, message",
    [
        ([torch.zeros(1)], "a", TypeError, "texts: got str"),
        ([torch.zeros(1)], ["a", "b"], ValueError, "log_probabilities: got 1, expected 2"),
        ([torch.zeros(1)], [b"a"], TypeError, r"texts\[0\]: got bytes"),
        ([[-1.0]], ["a"], TypeError, r"log_probabilities\[0\]: got list"),
        ([torch.zeros(1, 1)], ["a"], TypeError, r"float32 \[1, 1\]"),
        ([torch.zeros(1, dtype=torch.int64)], ["a"], TypeError, "int64"),
        ([torch.empty(0)], ["a"], ValueError, "got 0 tokens for 1 characters"),
        ([torch.zeros(1)], [""], ValueError, "got 1 tokens for 0 characters"),
        ([torch.tensor([1.0])], ["a"], ValueError, "use log_softmax, not the loss"),
        ([torch.tensor([math.nan])], ["a"], ValueError, "NaN"),
        ([], [], ValueError, "texts: got no byte"),
    ],
)
def test_bad_input_is_named(nats, texts, kind, message):
    with pytest.raises(kind, match=message):
        bits_per_byte(nats, texts)
