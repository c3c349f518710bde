"""SpanBERT's masking: budget, bounds, whole words, lengths, one fate a span, and the two neighbours of each span."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lmcourse import objectives, spans

MASK, PAD, CLS, SEP = 50, 0, 51, 52
RANDOM = range(100, 200)  # apart from the ids of texts, so that a replaced token can be told from a kept one
quick = settings(max_examples=60, deadline=None, derandomize=True)


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


def text(lengths, seed):
    """(tokens, word_starts, candidates): [CLS] words [SEP] words [SEP] padding in each row."""
    T = max(a + b for a, b in lengths) + 4
    tokens = torch.full((len(lengths), T), PAD)
    for row, (a, b) in zip(tokens, lengths, strict=True):
        row[: a + b + 3] = torch.randint(1, MASK, (a + b + 3,), generator=seeded(seed))
        row[0], row[a + 1], row[a + b + 2] = CLS, SEP, SEP
    word_starts = torch.rand(tokens.shape, generator=seeded(seed)) < 0.6
    return tokens, word_starts, objectives.ordinary(tokens, [PAD, CLS, SEP])


@st.composite
def texts(draw):
    lengths = draw(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=5))
    return text(lengths, draw(st.integers(0, 99)))


def mask(tokens, word_starts, candidates=None, seed=1, **changes):
    options = dict(mask_id=MASK, random_ids=RANDOM, candidates=candidates, generator=seeded(seed))
    return spans.span_masking(tokens, word_starts, **(options | changes))


def runs(row):
    """[(first, last)] of the spans in one row of weights."""
    groups = itertools.groupby(enumerate(row.tolist()), key=lambda pair: pair[1])
    return [(members[0][0], members[-1][0]) for on, group in groups if on for members in [list(group)]]


@given(texts(), st.integers(0, 1000), st.sampled_from([0.05, 0.15, 0.5, 0.9]))
@quick
def test_properties(example, seed, rate):
    tokens, word_starts, candidates = example
    before = [x.clone() for x in example]
    got = mask(*example, seed, rate=rate)
    chosen = got.weights == 1
    assert all(x.shape == tokens.shape for x in vars(got).values())
    assert [x.dtype for x in vars(got).values()] == [torch.int64] * 2 + [torch.float32] + [torch.int64] * 3
    assert chosen.sum(1).tolist() == [max(1, round(rate * n)) for n in candidates.sum(1).tolist()], "budget in tokens"
    assert not (chosen & ~candidates).any(), "special tokens and padding are never hidden"
    assert torch.equal(got.targets, tokens) and torch.equal(got.inputs[~chosen], tokens[~chosen])
    again = mask(*example, seed, rate=rate)
    assert all(torch.equal(a, b) for a, b in zip(vars(got).values(), vars(again).values(), strict=True))
    got.inputs.fill_(-1), got.targets.fill_(-1)
    assert all(torch.equal(a, b) for a, b in zip(example, before, strict=True))


@given(texts(), st.integers(0, 1000))
@quick
def test_a_span_starts_at_a_word_and_has_a_neighbour_on_either_side(example, seed):
    tokens, word_starts, candidates = example
    got = mask(*example, seed, rate=0.3)
    for b, row in enumerate(got.weights):
        for first, last in runs(row):
            assert word_starts[b, first] or not candidates[b, first - 1]
            inside = slice(first, last + 1)
            assert got.left[b, inside].tolist() == [first - 1] * (last - first + 1)
            assert got.right[b, inside].tolist() == [last + 1] * (last - first + 1)
            assert got.place[b, inside].tolist() == list(range(1, last - first + 2)), "counted from 1, as in the paper"
            assert row[first - 1] == row[last + 1] == 0, "spans that touch are one"
    off = got.weights == 0
    assert not got.left[off].any() and not got.right[off].any() and not got.place[off].any()


def test_a_span_that_starts_anywhere_is_found():
    """Code that takes any token for a start breaks the rule that the property test states."""
    tokens, word_starts, candidates = text([(200, 200)] * 4, 5)
    anywhere = mask(tokens, torch.ones_like(word_starts), candidates)
    legal = word_starts | ~candidates.roll(1, 1)
    firsts = anywhere.weights.bool() & (anywhere.place == 1)
    assert not legal[firsts].all()
    assert legal[(w := mask(tokens, word_starts, candidates)).weights.bool() & (w.place == 1)].all()


def test_boundaries_by_hand():
    chosen = torch.tensor([[0, 1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 1, 1, 0]]).bool()
    left, right, place = spans.boundaries(chosen)
    assert left.tolist() == [[0, 0, 0, 0, 0, 4, 0], [0, 0, 1, 1, 1, 1, 0]]
    assert right.tolist() == [[0, 3, 3, 0, 0, 6, 0], [0, 0, 6, 6, 6, 6, 0]]
    assert place.tolist() == [[0, 1, 2, 0, 0, 1, 0], [0, 0, 1, 2, 3, 4, 0]]


def test_without_special_tokens_the_ends_are_kept():
    tokens = torch.randint(1, MASK, (200, 6), generator=seeded())
    everything = torch.ones_like(tokens).bool()
    got = mask(tokens, everything, everything, rate=0.9)
    assert everything.all() and not got.weights[:, [0, -1]].any()
    assert (got.weights.sum(1) == 4).all(), "0.9 of the four inner tokens, rounded"
    assert (got.left[:, 1:-1] == 0).all() and (got.right[:, 1:-1] == 5).all()


def test_a_span_does_not_run_over_a_token_that_is_ruled_out():
    tokens, word_starts, candidates = text([(3, 30)] * 300, 2)
    got = mask(tokens, word_starts, candidates, rate=0.2)
    assert got.weights[:, 1:4].any() and not got.weights[:, 4].any()
    assert (got.right[:, 3][got.weights[:, 3] > 0] == 4).all()


# ------------------------------------------------------------------------------------------ lengths


def test_mean_length_is_that_of_the_code_not_of_clipping():
    p = spans.span_length_probabilities()
    lengths = torch.arange(1, 11, dtype=torch.float64)
    assert float(p.sum()) == pytest.approx(1, abs=1e-15)
    assert float(p @ lengths) == pytest.approx(3.797, abs=5e-4)
    clipped = 0.2 * 0.8 ** (lengths - 1)
    clipped[-1] = 0.8**9  # everything from 10 on
    assert float(clipped @ lengths) == pytest.approx(4.463, abs=5e-4)
    torch.testing.assert_close(p[1:] / p[:-1], torch.full((9,), 0.8, dtype=torch.float64))
    assert not torch.allclose(p, clipped)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_span_has_as_many_whole_words_as_drawn(share):
    T = 400
    starts = (torch.rand(T, generator=seeded(7)) < share).tolist()
    candidates = [0 < i < T - 1 for i in range(T)]
    begin = starts.index(True, 1)
    order = [begin, *(i for i in range(T) if i != begin)]
    for n in range(1, 11):
        hidden = spans._hidden(starts, candidates, order, [n] + [0] * (T - 1), T)
        assert sum(starts[i] for i in range(T) if hidden[i]) == n
        assert starts[max(i for i in range(T) if hidden[i]) + 1], "the last word is whole"
        assert sum(hidden) == n if share == 1 else sum(hidden) >= n


def test_a_span_is_cut_at_the_budget_and_overlap_is_counted_once():
    starts, candidates = [True] * 10, [0 < i < 9 for i in range(10)]
    hidden = lambda order, lengths, count: spans._hidden(starts, candidates, order, lengths, count)  # noqa: E731
    assert [i for i, h in enumerate(hidden([2, 5], [10, 10], 3)) if h] == [2, 3, 4]
    # 4 and 5 first; the span from 3 to 6 adds two more.
    assert [i for i, h in enumerate(hidden([4, 3], [2, 9], 4)) if h] == [3, 4, 5, 6]
    # No span starts at a word that is hidden already: after 2, 3, 4 it is not 3's turn but that of 7.
    assert [i for i, h in enumerate(hidden([2, 3, 7], [3, 4, 1], 4)) if h] == [2, 3, 4, 7]


@pytest.mark.parametrize("size", [1, 2])
def test_mean_length_of_the_spans_that_come_out(size):
    """Words of ``size`` tokens. With 1 % of a long text, few spans meet, and few are the last, which is cut short."""
    tokens = torch.full((60, 20_002), 7)
    starts = (torch.arange(20_002) % size == 0).expand_as(tokens)
    lengths = [last - first + 1 for row in mask(tokens, starts, rate=0.01).weights for first, last in runs(row)]
    mean = sum(lengths) / len(lengths) / size
    assert mean == pytest.approx(3.797, abs=0.25)  # 4 standard errors, the larger of the two being 0.066
    assert mean != pytest.approx(4.463, abs=0.25) and mean != pytest.approx(3.797 / size if size > 1 else 5, abs=0.25)


def test_starts_are_uniform_over_words():
    """Words of one and of nine tokens in turn: each is as likely to start the span, not each of its tokens."""
    tokens = torch.full((4000, 102), 7)
    at = torch.arange(102)
    starts = ((at - 1) % 10 == 0) | ((at - 1) % 10 == 1)
    got = mask(tokens, starts.expand_as(tokens), rate=0.01, longest=1)  # a budget of one token: the first one's start
    firsts = torch.bincount(((got.weights.nonzero()[:, 1] - 1) % 10), minlength=2)
    share = float(firsts[0] / firsts.sum())
    assert firsts.sum() == 4000 and share == pytest.approx(0.5, abs=0.04)  # 5 standard errors of 0.008
    assert share != pytest.approx(0.1, abs=0.04)


# -------------------------------------------------------------------------------------- one fate a span


def fates(got):
    """For each span: the set of what became of its tokens, "masked", "random" or "kept"."""
    found = []
    for x, y, w in zip(got.inputs, got.targets, got.weights, strict=True):
        for first, last in runs(w):
            pairs = zip(x[first : last + 1].tolist(), y[first : last + 1].tolist(), strict=True)
            found.append({"masked" if a == MASK else "kept" if a == b else "random" for a, b in pairs})
    return found


def test_a_span_is_masked_drawn_or_kept_as_a_whole():
    tokens = torch.randint(1, MASK, (200, 402), generator=seeded())
    starts = torch.ones_like(tokens).bool()
    found = fates(mask(tokens, starts))
    assert all(len(f) == 1 for f in found)
    counts = torch.tensor([sum(f == {name} for f in found) for name in ("masked", "random", "kept")])

    def chi_square(shares):
        expected = torch.tensor(shares) * counts.sum()
        return float(((counts - expected) ** 2 / expected).sum())

    assert chi_square((0.8, 0.1, 0.1)) < 27.6  # two degrees of freedom: exceeded once in a million
    assert all(chi_square(s) > 27.6 for s in [(0.1, 0.1, 0.8), (0.9, 0.05, 0.05), (0.8, 0.15, 0.05), (0.7, 0.2, 0.1)])
    by_token = objectives.masked_lm(tokens, mask_id=MASK, random_ids=RANDOM, generator=seeded(), rate=0.5)
    mixed = fates(spans.MaskedSpans(*by_token, *spans.boundaries(by_token[2].bool())))
    assert any(len(f) > 1 for f in mixed), "a draw for each token is another scheme"


def test_tokens_of_a_random_span_are_drawn_one_by_one():
    tokens = torch.randint(1, MASK, (20, 100), generator=seeded())
    got = mask(tokens, torch.ones_like(tokens).bool(), split=(0, 1, 0), rate=0.3)
    rows = zip(got.inputs.tolist(), got.weights, strict=True)
    assert any(len(set(ids[first : last + 1])) > 1 for ids, weights in rows for first, last in runs(weights))


# -------------------------------------------------------------------------------------- bad input

TOKENS = torch.tensor([[CLS, 7, 8, SEP], [CLS, 9, SEP, PAD]])


@pytest.mark.parametrize(
    "changes, error, message",
    [
        (dict(word_starts=torch.ones(2, 4)), TypeError, "word_starts: got torch.float32"),
        (dict(word_starts=torch.ones(2, 3).bool()), ValueError, r"word_starts: got shape \[2, 3\], expected \[2, 4\]"),
        (dict(candidates=torch.tensor([[1, 1, 1, 1], [1, 0, 0, 1]]).bool()), ValueError, "candidates: .* row 1"),
        (dict(candidates=[[True]]), TypeError, "candidates: got list"),
        (dict(tokens=TOKENS[:, :2], word_starts=torch.ones(2, 2).bool()), ValueError, "candidates: .* row 0"),
        (dict(tokens=TOKENS[:0]), ValueError, r"tokens: got shape \[0, 4\]"),
        (dict(tokens=TOKENS.float()), TypeError, "tokens: got torch.float32"),
        (dict(p=0), ValueError, "p: got 0"),
        (dict(p=1.0), ValueError, "p: got 1.0"),
        (dict(p="0.2"), ValueError, "p: got '0.2'"),
        (dict(longest=0), ValueError, "longest: got 0"),
        (dict(rate=1.5), ValueError, "rate: got 1.5"),
        (dict(mask_id=150), ValueError, "mask_id: got 150"),
        (dict(generator=torch), TypeError, "generator: got"),
    ],
)
def test_bad_input_is_named(changes, error, message):
    given = dict(tokens=TOKENS, word_starts=torch.ones(2, 4).bool()) | changes
    with pytest.raises(error, match=message):
        mask(**given)
