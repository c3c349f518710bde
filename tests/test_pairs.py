"""Next-sentence pairs: where A and B come from, the labels, truncation and layout."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lmcourse import objectives, pairs
from lmcourse.bert import BERT, NextSentence
from lmcourse.configuration import Config

PAD, CLS, SEP = 0, 1, 2
quick = settings(max_examples=60, deadline=None, derandomize=True)


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


def numbered(sizes):
    """Documents whose ids are all different and count up: sizes[d][s] tokens in sentence s of document d."""
    ids = iter(range(10, 10**6))
    return [[[next(ids) for _ in range(n)] for n in document] for document in sizes]


documents_of = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=8), min_size=2, max_size=5).filter(
    lambda sizes: max(map(len, sizes)) > 1
)


def draw(documents, length=32, seed=1, **changes):
    options = dict(cls_id=CLS, sep_id=SEP, pad_id=PAD, length=length, generator=seeded(seed))
    return pairs.next_sentence(documents, **(options | changes))


def halves(got):
    """[(A, B, label)] with the special tokens taken off."""
    for tokens, real, label in zip(got.tokens, got.attention_mask, got.labels.tolist(), strict=True):
        row = tokens[real].tolist()
        a = row.index(SEP)
        yield row[1:a], row[a + 1 : -1], label


def document_of(documents):
    return {token: d for d, document in enumerate(documents) for sentence in document for token in sentence}


@given(documents_of, st.integers(5, 40), st.integers(0, 1000))
@quick
def test_layout(sizes, length, seed):
    documents = numbered(sizes)
    got = draw(documents, length, seed)
    N = len(got.labels)
    assert N and got.tokens.shape == got.segments.shape == got.attention_mask.shape == (N, length)
    assert got.tokens.dtype == got.segments.dtype == got.labels.dtype == torch.int64
    assert got.attention_mask.dtype == torch.bool and set(got.labels.tolist()) <= {0, 1}
    assert not got.tokens[~got.attention_mask].any() and not got.segments[~got.attention_mask].any()
    for row, segments, (a, b, _) in zip(got.tokens, got.segments, halves(got), strict=True):
        assert a and b
        assert row.tolist() == [CLS, *a, SEP, *b, SEP] + [PAD] * (length - len(a) - len(b) - 3)
        assert segments.tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1) + [0] * (length - len(a) - len(b) - 3)
    assert documents == numbered(sizes), "the documents stay as they were"
    again = draw(documents, length, seed)
    assert all(torch.equal(x, y) for x, y in zip(vars(got).values(), vars(again).values(), strict=True))


@given(documents_of, st.integers(0, 1000))
@quick
def test_b_follows_a_or_is_from_another_document(sizes, seed):
    documents = numbered(sizes)
    home = document_of(documents)
    for a, b, label in halves(draw(documents, 400, seed)):  # long enough that nothing is cut off
        assert a == list(range(a[0], a[0] + len(a))) and b == list(range(b[0], b[0] + len(b)))
        assert len({home[t] for t in a}) == len({home[t] for t in b}) == 1
        if label == 0:
            assert b[0] == a[-1] + 1 and home[a[0]] == home[b[0]]
        else:
            assert home[a[0]] != home[b[0]]
        starts = {sentence[0] for document in documents for sentence in document}
        assert a[0] in starts and b[0] in starts, "cut between sentences"


@given(documents_of, st.integers(5, 20), st.integers(0, 1000))
@quick
def test_a_long_pair_loses_tokens_of_its_longer_half(sizes, length, seed):
    documents, room = numbered(sizes), length - 3
    for a, b, _ in halves(draw(documents, length, seed)):
        assert len(a) + len(b) <= room
        assert a == list(range(a[0], a[0] + len(a))) and b == list(range(b[0], b[0] + len(b))), "only at the ends"


def test_truncation_by_hand():
    for seed in range(20):
        a, b = pairs._truncated(list(range(10)), list(range(20, 23)), 8, seeded(seed))
        assert len(a) == 5 and b == [20, 21, 22] and a == list(range(a[0], a[0] + 5))
    fronts = {pairs._truncated(list(range(10)), [20], 9, seeded(s))[0][0] for s in range(20)}
    assert fronts == {0, 1, 2}, "from either end"
    a, b = pairs._truncated(list(range(9)), list(range(20, 29)), 6, seeded())
    assert len(a) == len(b) == 3


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 80), st.integers(0, 1000))
@quick
def test_truncation_takes_what_lists_would_lose(m, n, room, seed):
    a, b, g, used = list(range(m)), list(range(100, 100 + n)), seeded(seed), seeded(seed)
    got = pairs._truncated(list(a), list(b), room, used)
    while len(a) + len(b) > room:
        (a if len(a) > len(b) else b).pop(-int(torch.randint(2, (1,), generator=g)))  # 0 is the first, -1 the last
    assert got == (a, b) and torch.equal(g.get_state(), used.get_state())


@pytest.fixture(scope="module")
def many():
    sizes = [[1 + (3 * d + s) % 9 for s in range(1200)] for d in range(6)]
    documents = numbered(sizes)
    return documents, list(halves(draw(documents, 40, seed=3)))


def within(count, n, p):
    """Whether ``count`` of ``n`` lies within five standard deviations of p · n."""
    return abs(count - p * n) < 5 * (n * p * (1 - p)) ** 0.5


def test_half_of_the_pairs_follow(many):
    labels = [label for _, _, label in many[1]]
    assert len(labels) > 1000
    assert within(sum(labels), len(labels), 0.5)
    assert not within(sum(labels), len(labels), 0.35) and not within(sum(labels), len(labels), 0.65)


def test_other_documents_are_equally_likely_and_never_the_own(many):
    documents, found = many
    home = document_of(documents)
    steps = [(home[b[0]] - home[a[0]]) % 6 for a, b, label in found if label]
    counts = [steps.count(k) for k in range(6)]
    assert counts[0] == 0, "a random document that may be the own one is another scheme"
    assert all(within(c, len(steps), 1 / 5) for c in counts[1:])
    assert not within(0, len(steps), 1 / 6)


def test_the_cut_and_the_start_of_another_b_are_uniform_over_sentences():
    documents = numbered([[2] * 5, [2] * 5])
    found = [next(halves(draw(documents, 40, seed))) for seed in range(600)]
    cuts = [len(a) // 2 for a, _, _ in found]  # after the first to the fourth of five sentences
    assert set(cuts) == {1, 2, 3, 4} and all(within(cuts.count(k), 600, 1 / 4) for k in set(cuts))
    starts = [(b[0] - documents[1][0][0]) // 2 for _, b, label in found if label]
    assert set(starts) == {0, 1, 2, 3, 4} and all(within(starts.count(k), len(starts), 1 / 5) for k in set(starts))
    assert not within(600, 600, 1 / 4) and not within(len(starts), len(starts), 1 / 5), "always the first"


def test_what_followed_a_and_was_not_used_comes_again():
    """Each sentence once, as part of A or as what follows: nothing is lost but a lone one at the end of a document."""
    documents = numbered([[10] * 40, [10] * 41])  # pairs lose at most nine tokens: less than a sentence
    every = [(d, s) for d in range(2) for s in range(len(documents[d]))]
    number = {token: every[(token - 10) // 10] for token in range(10, 820)}
    for seed in range(20):
        found = halves(draw(documents, 64, seed))
        read = [n for a, b, label in found for n in sorted({number[t] for t in (a if label else a + b)})]
        assert len(read) == len(set(read)) and read == sorted(read)
        assert set(every) - set(read) <= {(0, 39), (1, 40)}


def test_a_document_of_one_sentence_gives_only_bs():
    documents = numbered([[5], [3, 3], [5]])
    first = {documents[d][0][0]: d for d in range(3)}
    seen = set()
    for seed in range(40):
        ((a, b, label),) = halves(draw(documents, 40, seed))
        assert a == documents[1][0]
        seen.add((label, first.get(b[0], 1)))
    assert seen == {(0, 1), (1, 0), (1, 2)}


def test_both_labels_carry_loss():
    labels = torch.tensor([0, 1, 0, 1])
    logits = torch.zeros(4, 2, requires_grad=True)
    objectives.cross_entropy(logits, labels, torch.ones(4)).backward()
    assert logits.grad.abs().min() > 0.1
    ignoring = torch.zeros(4, 2, requires_grad=True)  # the mistake that others shipped: one label is taken for padding
    torch.nn.functional.cross_entropy(ignoring, labels, ignore_index=0).backward()
    assert not ignoring.grad[labels == 0].any()


def test_pairs_go_into_masked_language_modelling():
    got = draw(numbered([[4] * 20, [5] * 20]), 24)
    candidates = objectives.ordinary(got.tokens, [PAD, CLS, SEP])
    _, _, weights = objectives.masked_lm(
        got.tokens, mask_id=3, random_ids=range(10, 20), candidates=candidates, generator=seeded()
    )
    assert not weights[~got.attention_mask].any() and not weights[:, 0].any() and not weights[got.tokens == SEP].any()


# -------------------------------------------------------------------------------------- bad input

GOOD = [[[5, 6], [7]], [[8], [9, 9]]]


@pytest.mark.parametrize(
    "documents, error, message",
    [
        (GOOD[:1], ValueError, "documents: got 1, expected two or more"),
        ([], ValueError, "documents: got 0"),
        ([[[5]], [[6]]], ValueError, "documents: got one sentence in each"),
        ([[[5, 6], [7]], []], ValueError, r"documents\[1\]: got no sentence"),
        ([[[5, 6], []], GOOD[1]], ValueError, r"documents\[0\]\[1\]: got no ids"),
        ([[[5, 6], ["a"]], GOOD[1]], ValueError, r"documents\[0\]\[1\]: got 'a', expected ids"),
        ([[[5, SEP], [7]], GOOD[1]], ValueError, r"documents\[0\]\[0\]: got 2, expected ids .* none of \(1, 2, 0\)"),
        ([[[5, -7], [7]], GOOD[1]], ValueError, r"documents\[0\]\[0\]: got -7"),
        (["abc", "def"], TypeError, r"documents\[0\]: got str"),
        ("abc", TypeError, "documents: got str"),
        ([[5, 6], [7, 8]], TypeError, r"documents\[0\]\[0\]: got int"),
    ],
)
def test_bad_documents_are_named(documents, error, message):
    with pytest.raises(error, match=message):
        draw(documents)


@pytest.mark.parametrize(
    "changes, error, message",
    [
        (dict(length=4), ValueError, "length: got 4, expected 5 or more"),
        (dict(length=2.5), ValueError, "length: got 2.5"),
        (dict(generator=1), TypeError, "generator: got 1"),
    ],
)
def test_other_bad_input_is_named(changes, error, message):
    with pytest.raises(error, match=message):
        draw(GOOD, **changes)


# ---------------------------------------------------------------------------------------- the model's loss


def test_both_labels_carry_loss_in_the_model():
    g = torch.Generator().manual_seed(0)
    config = Config.bert(vocabulary=50, positions=16, layers=1, width=16, heads=2)
    model = NextSentence(BERT(config, g), g).double()
    tokens = torch.randint(5, 50, (4, 10), generator=g)
    weights = torch.zeros(4, 10, dtype=torch.float64)
    weights[:, 3] = 1
    scores = model(tokens).log_softmax(-1)
    words = model.bert.loss(tokens, tokens, weights)
    for labels in ([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]):
        labels = torch.tensor(labels)
        by_hand = words - scores[torch.arange(4), labels].mean()
        torch.testing.assert_close(model.loss(tokens, tokens, weights, labels), by_hand)
        one_ignored = words - scores[torch.arange(4), labels][labels == 1].sum() / 4
        if (labels == 0).any():
            assert not torch.allclose(one_ignored, by_hand)
