"""T5's span corruption: the paper's example, reconstruction, sentinels, how many tokens and spans, lengths, batches."""

import itertools
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lmcourse import corruption

V, END, PAD = 300, 1, 0
SENTINELS = range(V - 1, V - 101, -1)
quick = settings(max_examples=100, deadline=None, derandomize=True)


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


def by_loops(tokens, noise, sentinels, end_id):
    """The paper's rule, token by token."""
    inputs, targets, marks = [], [], iter(sentinels)
    for i, (token, dropped) in enumerate(zip(tokens.tolist(), noise.tolist(), strict=True)):
        if dropped and (i == 0 or not noise[i - 1]):
            mark = next(marks)
            inputs.append(mark)
            targets.append(mark)
        (targets if dropped else inputs).append(token)
    targets += [] if noise[-1] else [next(marks)]
    return inputs + [end_id], targets + [end_id]


@st.composite
def marked(draw):
    """(tokens, noise): any text and any mask with something dropped."""
    noise = draw(st.lists(st.booleans(), min_size=1, max_size=60).filter(any))
    return torch.randint(2, 200, (len(noise),), generator=seeded(draw(st.integers(0, 99)))), torch.tensor(noise)


# --------------------------------------------------------------------------------- given a noise mask


def test_the_example_of_the_paper():
    words = "Thank you for inviting me to your party last week .".split()
    ids = {word: 10 + i for i, word in enumerate(words)} | {"</s>": END, "<X>": 299, "<Y>": 298, "<Z>": 297}
    names = {i: word for word, i in ids.items()}
    tokens = torch.tensor([ids[w] for w in words])
    noise = torch.tensor([w in ("for", "inviting", "last") for w in words])
    inputs, targets = corruption.corrupt(tokens, noise, sentinels=SENTINELS)
    said = lambda row: " ".join(names[i] for i in row.tolist())  # noqa: E731
    assert said(inputs) == "Thank you <X> me to your party <Y> week ."
    assert said(targets) == "<X> for inviting <Y> last <Z>"
    ended = corruption.corrupt(tokens, noise, sentinels=SENTINELS, end_id=END)
    assert [said(x) for x in ended] == [said(inputs) + " </s>", said(targets) + " </s>"]
    # Without the full stop and the week, the text ends in dropped text, and nothing closes the targets.
    short = corruption.corrupt(tokens[:9], noise[:9], sentinels=SENTINELS)
    assert [said(x) for x in short] == ["Thank you <X> me to your party <Y>", "<X> for inviting <Y> last"]


@given(marked())
@quick
def test_equal_to_the_rule_by_loops_and_taken_back(example):
    tokens, noise = example
    before = tokens.clone(), noise.clone()
    inputs, targets = corruption.corrupt(tokens, noise, sentinels=SENTINELS, end_id=END)
    assert inputs.dtype == targets.dtype == torch.int64
    assert [inputs.tolist(), targets.tolist()] == list(by_loops(tokens, noise, SENTINELS, END))
    assert torch.equal(corruption.restore(inputs, targets, sentinels=SENTINELS, end_id=END), tokens)
    padded = [torch.cat([x, torch.full((3,), PAD)]) for x in (inputs, targets)]
    assert torch.equal(corruption.restore(*padded, sentinels=SENTINELS, end_id=END), tokens)
    runs = int((noise & ~torch.cat([torch.tensor([False]), noise[:-1]])).sum())
    marks = [[i for i in x.tolist() if i in SENTINELS] for x in (inputs, targets)]
    assert marks[0] == [V - 1 - k for k in range(runs)], "they descend, each once"
    assert marks[1] == marks[0] + ([] if noise[-1] else [V - 1 - runs]), "and one more closes kept text"
    assert len(inputs) + len(targets) == len(tokens) + len(marks[0]) + len(marks[1]) + 2
    inputs.fill_(-1), targets.fill_(-1)
    assert torch.equal(tokens, before[0]) and torch.equal(noise, before[1])


def test_mistakes_with_sentinels_are_found():
    tokens, noise = torch.arange(10, 20), torch.tensor([0, 1, 0, 0, 1, 1, 0, 0, 0, 1]).bool()
    inputs, targets = corruption.corrupt(tokens, noise, sentinels=SENTINELS)
    take_back = lambda x, y: corruption.restore(x, y, sentinels=SENTINELS)  # noqa: E731
    assert torch.equal(take_back(inputs, targets), tokens)
    three = torch.tensor([299, 298, 297])
    reversed_targets = targets.clone()
    reversed_targets[torch.isin(targets, three)] = three.flip(0)
    assert not torch.equal(take_back(inputs, reversed_targets), tokens), "counted up in one of the two"
    same = inputs.clone()
    same[torch.isin(inputs, three)] = 299
    assert not torch.equal(take_back(same, targets), tokens), "one sentinel for all spans"
    after = torch.cat([targets[1:], targets[:1]])
    assert not torch.equal(take_back(inputs, after), tokens), "sentinels after their tokens"
    with pytest.raises(ValueError, match="targets: got no sentinel 297"):
        take_back(inputs, targets[:-2])
    with pytest.raises(ValueError, match="sentinels: got range.*count down"):
        corruption.corrupt(tokens, noise, sentinels=range(200, 300))


# ---------------------------------------------------------------------------------------- the draw


def spans_of(noise):
    return [len(list(group)) for on, group in itertools.groupby(noise.tolist()) if on]


@given(st.integers(2, 600), st.floats(0.01, 0.99), st.floats(1, 8), st.integers(0, 1000))
@quick
def test_how_many_tokens_and_spans(T, rate, mean_span, seed):
    noise = corruption.noise_mask(T, rate=rate, mean_span=mean_span, generator=seeded(seed))
    dropped = min(max(round(T * rate), 1), T - 1)
    assert noise.shape == (T,) and noise.dtype == torch.bool
    assert int(noise.sum()) == dropped
    assert len(spans_of(noise)) == min(max(round(dropped / mean_span), 1), dropped, T - dropped)
    assert not noise[0] and noise[-1], "starts with kept text, ends with dropped text: no roll"
    assert torch.equal(noise, corruption.noise_mask(T, rate=rate, mean_span=mean_span, generator=seeded(seed)))


def test_the_guard_on_spans():
    assert corruption.noise_and_spans(10, 0.9, 1.0) == (9, 1), "one kept token allows one span, not nine"
    assert corruption.noise_and_spans(10, 0.5, 1.0) == (5, 5)
    assert corruption.noise_and_spans(2) == (1, 1) and corruption.noise_and_spans(568) == (85, 28)


def test_a_roll_or_a_draw_for_each_token_is_found():
    masks = [corruption.noise_mask(60, generator=seeded(s)) for s in range(50)]
    assert all(not m[0] and m[-1] and int(m.sum()) == 9 and len(spans_of(m)) == 3 for m in masks)
    rolled = [m.roll(s) for s, m in enumerate(masks)]
    assert any(m[0] or not m[-1] for m in rolled)
    each = torch.rand(50, 60, generator=seeded()) < 0.15
    assert any(int(m.sum()) != 9 for m in each)


def test_all_ways_to_cut_are_equally_likely():
    """3 dropped and 3 kept tokens in 2 spans: 2 × 2 masks. Lengths drawn one after the other favour some."""
    g = seeded()
    found = [tuple(corruption.noise_mask(6, rate=0.5, mean_span=1.5, generator=g).tolist()) for _ in range(4000)]
    counts = torch.tensor([float(found.count(m)) for m in sorted(set(found))])
    assert len(counts) == 4

    def chi_square(counts):
        return float(((counts - 1000) ** 2 / 1000).sum())

    assert chi_square(counts) < 31  # three degrees of freedom: exceeded once in a million
    assert chi_square(torch.tensor([4 / 9, 2 / 9, 2 / 9, 1 / 9]) * 4000) > 31


def test_pieces_reach_every_length():
    g = seeded()
    found = {tuple(corruption._pieces(5, 3, g).tolist()) for _ in range(300)}
    assert found == {p for p in itertools.product(range(1, 4), repeat=3) if sum(p) == 5}
    assert corruption._pieces(4, 1, g).tolist() == [4] and corruption._pieces(4, 4, g).tolist() == [1] * 4
    assert corruption._pieces(1, 1, g).tolist() == [1]


@given(st.integers(2, 400), st.integers(0, 1000))
@quick
def test_span_corruption_is_taken_back(T, seed):
    tokens = torch.randint(2, 200, (T,), generator=seeded(seed))
    before = tokens.clone()
    options = dict(sentinels=SENTINELS, end_id=END)
    inputs, targets = corruption.span_corruption(tokens, **options, generator=seeded(seed))
    noise, spans = corruption.noise_and_spans(T)
    assert len(inputs) == T - noise + spans + 1 and len(targets) == noise + spans + 1
    assert torch.equal(corruption.restore(inputs, targets, **options), tokens)
    assert inputs[-1] == targets[-1] == END and inputs[-2] in SENTINELS and targets[-2] not in SENTINELS
    assert torch.equal(tokens, before)
    again = corruption.span_corruption(tokens, **options, generator=seeded(seed))
    assert torch.equal(again[0], inputs) and torch.equal(again[1], targets)


# ------------------------------------------------------------------------------------------ lengths


def test_512_inputs_hold_568_tokens_with_114_targets():
    assert corruption.span_corruption_lengths(512) == (568, 114)
    tokens = torch.randint(2, 200, (569,), generator=seeded())
    sizes = lambda T: [  # noqa: E731
        len(x) for x in corruption.span_corruption(tokens[:T], sentinels=SENTINELS, end_id=END, generator=seeded())
    ]
    assert sizes(568) == [512, 114] and sizes(569)[0] == 513
    assert sizes(568) != [511, 113], "both counted with the end"
    assert sizes(512)[0] < 512, "512 raw tokens would leave padding"


@given(st.integers(3, 1024), st.sampled_from([0.15, 0.1, 0.3]), st.sampled_from([1.0, 2.0, 3.0, 5.0]))
@quick
def test_the_longest_text_that_fits(length, rate, mean_span):
    def inputs(T):
        noise, spans = corruption.noise_and_spans(T, rate, mean_span)
        return T - noise + spans + 1

    T, targets = corruption.span_corruption_lengths(length, rate, mean_span)
    assert inputs(T) <= length < min(inputs(T + k) for k in range(1, 20))
    assert targets == sum(corruption.noise_and_spans(T, rate, mean_span)) + 1


@given(st.integers(3, 300), st.floats(1e-9, 0.99), st.floats(1, 30))
@quick
def test_the_search_ends_where_going_up_one_by_one_does(length, rate, mean_span):
    T = 2
    while corruption.corrupted_lengths(T + 1, rate, mean_span)[0] <= length:
        T += 1
    assert corruption.span_corruption_lengths(length, rate, mean_span)[0] == T
    inputs = [corruption.corrupted_lengths(n, rate, mean_span)[0] for n in range(2, T + 50)]
    assert inputs == sorted(inputs)


def test_a_length_of_many_millions_is_no_long_search():
    with mock.patch.object(corruption, "corrupted_lengths", wraps=corruption.corrupted_lengths) as counted:
        T, _ = corruption.span_corruption_lengths(10**9)
    assert counted.call_count < 100
    assert corruption.corrupted_lengths(T, 0.15, 3.0)[0] <= 10**9 < corruption.corrupted_lengths(T + 1, 0.15, 3.0)[0]


# -------------------------------------------------------------------------------------------- batch


def batch(texts, **changes):
    options = dict(sentinels=SENTINELS, end_id=END, pad_id=PAD, input_length=40, target_length=20, generator=seeded())
    return corruption.span_corruption_batch(texts, **(options | changes))


def test_a_batch_is_its_texts_one_by_one():
    texts = [torch.randint(2, 200, (n,), generator=seeded(n)) for n in (2, 40, 17, 33)]
    inputs, targets, weights = batch(texts)
    assert inputs.shape == (4, 40) and targets.shape == weights.shape == (4, 20)
    assert inputs.dtype == targets.dtype == torch.int64 and weights.dtype == torch.float32
    g = seeded()
    for text, x, y, w in zip(texts, inputs, targets, weights, strict=True):
        one, two = corruption.span_corruption(text, sentinels=SENTINELS, end_id=END, generator=g)
        assert torch.equal(x[: len(one)], one) and not (x[len(one) :] != PAD).any()
        assert torch.equal(y[: len(two)], two) and not (y[len(two) :] != PAD).any()
        assert w.tolist() == [1.0] * len(two) + [0.0] * (20 - len(two)), "the end carries loss, padding does not"
    with pytest.raises(ValueError, match="input_length: got 30, expected 37 or more"):
        batch(texts, input_length=30)
    with pytest.raises(ValueError, match="target_length: got 3, expected 9 or more"):
        batch(texts, target_length=3)


def test_a_batch_of_the_right_length_has_no_padding():
    T, size = corruption.span_corruption_lengths(64)
    inputs, targets, weights = batch(
        torch.randint(2, 200, (5, T), generator=seeded()), input_length=64, target_length=size
    )
    assert not (inputs == PAD).any() and not (targets == PAD).any() and (weights == 1).all()


# -------------------------------------------------------------------------------------- bad input

TEXT = torch.arange(10, 50)


@pytest.mark.parametrize(
    "changes, error, message",
    [
        (dict(tokens=TEXT[:1]), ValueError, r"tokens: got shape \[1\], expected \[T\] with T of 2 or more"),
        (dict(tokens=TEXT[:0]), ValueError, r"tokens: got shape \[0\]"),
        (dict(tokens=TEXT[None]), ValueError, r"tokens: got shape \[1, 40\], expected \[T\]"),
        (dict(tokens=TEXT.float()), TypeError, "tokens: got torch.float32"),
        (dict(tokens=TEXT.tolist()), TypeError, "tokens: got list"),
        (dict(tokens=TEXT + 200), ValueError, "tokens: got 210 among them, expected neither a sentinel"),
        (dict(tokens=TEXT - 9), ValueError, "tokens: got 1 among them, expected neither a sentinel nor the end_id"),
        (dict(sentinels=range(299, 298, -1), rate=0.3), ValueError, "sentinels: got 1, expected 4; give more"),
        (dict(sentinels=[299, 298]), TypeError, "sentinels: got list, expected a range"),
        (dict(sentinels=range(299, 299, -1)), ValueError, "sentinels: got range"),
        (dict(sentinels=range(3, -5, -1)), ValueError, "sentinels: got range"),
        (dict(sentinels=range(299, 199, -2)), ValueError, "sentinels: got range"),
        (dict(rate=0.0), ValueError, "rate: got 0.0"),
        (dict(rate=1.0), ValueError, "rate: got 1.0"),
        (dict(mean_span=0.5), ValueError, "mean_span: got 0.5"),
        (dict(mean_span=float("inf")), ValueError, "mean_span: got inf"),
        (dict(mean_span="3"), ValueError, "mean_span: got '3'"),
        (dict(generator=torch.Generator), TypeError, "generator: got"),
    ],
)
def test_bad_input_is_named(changes, error, message):
    given = dict(tokens=TEXT, sentinels=SENTINELS, end_id=END, generator=seeded()) | changes
    with pytest.raises(error, match=message):
        corruption.span_corruption(given.pop("tokens"), **given)


def test_as_many_sentinels_as_are_written():
    noise = torch.tensor([False, True, False, True])
    assert corruption.corrupt(TEXT[:4], noise, sentinels=range(299, 297, -1))[1].tolist() == [299, 11, 298, 13]
    with pytest.raises(ValueError, match="sentinels: got 1, expected 2"):
        corruption.corrupt(TEXT[:4], noise, sentinels=range(299, 298, -1))
    with pytest.raises(ValueError, match="sentinels: got 1, expected 2"):  # the second would close the targets
        corruption.corrupt(TEXT[:3], noise[:3], sentinels=range(299, 298, -1))


def test_other_bad_input_is_named():
    with pytest.raises(TypeError, match="noise: got torch.int64"):
        corruption.corrupt(TEXT, TEXT, sentinels=SENTINELS)
    with pytest.raises(TypeError, match=r"noise: got torch.bool \[39\], expected bool \[40\]"):
        corruption.corrupt(TEXT, TEXT[1:] > 20, sentinels=SENTINELS)
    with pytest.raises(ValueError, match="input_length: got 2, expected 3 or more"):
        corruption.span_corruption_lengths(2)
    with pytest.raises(ValueError, match="texts: got none"):
        batch([])
    with pytest.raises(TypeError, match="texts: got int"):
        batch(5)


def test_a_batch_is_not_restored_in_silence():
    row = torch.tensor([[5, 49, 1]])
    with pytest.raises(TypeError, match="inputs: got .*expected int64 ids"):
        corruption.restore(row, row, sentinels=range(49, 39, -1))


@pytest.mark.parametrize("texts, pad_id, message", [([7, 8, 0], 0, "texts: got padding"), ([7, 8, 9], 49, "pad_id: got 49"), ([7, 8, 9], 1, "pad_id: got 1")])  # fmt: skip
def test_padding_is_not_text(texts, pad_id, message):
    sizes = dict(input_length=14, target_length=14, sentinels=range(49, 39, -1), end_id=1)
    with pytest.raises(ValueError, match=message):
        g = torch.Generator().manual_seed(0)
        corruption.span_corruption_batch(torch.tensor([texts]), pad_id=pad_id, generator=g, **sizes)
