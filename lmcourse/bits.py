"""Bits per byte: one number for language models with any tokenizer."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lmcourse import arguments

ROUNDING = 1e-6  # nats by which a probability may exceed 1


def bits_per_byte(log_probabilities: Sequence[Tensor], texts: Sequence[str]) -> float:
    """Σ -log2 p / bytes of UTF-8: what it costs a model to write down the texts, for each of their bytes.

    ``log_probabilities``: for each text a tensor (T,), log p in nats of every token of that text. A token of
    probability 0 makes the cost infinite.

    Perplexities, exp of the mean of -log p over tokens, say nothing about two models whose tokens differ: one that cuts
    the text into twice as many pieces has about the square root of the perplexity for the same probability of the text.
    Bytes are the same for both. It compares models only if

    * every token counts, the first of each text as well: a model that starts from an ``[EOS]`` before it is given that
      for nothing, and tokens without a prediction cannot be left out, since their bytes are in the sum;
    * the tokens spell the texts exactly, as :class:`lmcourse.bpe.ByteBPE`'s do: an ``[UNK]`` is cheap because it does
      not say what stood there, and a tokenizer that lowers case or drops spaces writes down another text;
    * both saw the same training data, and none of the texts.
    """
    arguments.listed("texts", texts, "a list of texts; use [text] for one")
    arguments.listed("log_probabilities", log_probabilities, "a list of tensors (T,), one a text")
    texts, log_probabilities = list(texts), list(log_probabilities)
    if len(log_probabilities) != len(texts):
        raise ValueError(f"log_probabilities: got {len(log_probabilities)}, expected {len(texts)}, one for each text")
    for i, text in enumerate(texts):
        arguments.text(f"texts[{i}]", text)
        _check_nats(f"log_probabilities[{i}]", log_probabilities[i], text)
    size = sum(len(text.encode()) for text in texts)
    if not size:
        raise ValueError("texts: got no byte, expected text; give at least one that is not empty")
    return per_byte(sum(-float(nats.double().sum()) for nats in log_probabilities), size)


def per_byte(nats: float, size: int) -> float:
    """-Σ log p in nats, over ``size`` bytes: bits for each."""
    return nats / math.log(2) / size


def _check_nats(name: str, value: Tensor, text: str) -> None:
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.ndim != 1:
        raise TypeError(f"{name}: got {arguments.came(value)}, expected floating point (T,), one for each token")
    if bool(text) != bool(len(value)):
        came = f"{len(value)} tokens for {len(text)} characters"
        raise ValueError(f"{name}: got {came}, expected one number for each token of texts, in the same order")
    if not bool((value <= ROUNDING).all()):
        raise ValueError(f"{name}: got NaN or numbers above 0, expected log p in nats; use log_softmax, not the loss")
