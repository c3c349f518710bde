"""Modified Kneser–Ney: a value by hand, exact fractions, KenLM's numbers, sums to 1, slips that are told apart."""

import math
from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lmcourse import data
from lmcourse.ngram import FALLBACK, KneserNey, discounts

# ---------------------------------------------------------------------------------- the equations in exact fractions


def exact_discounts(counts, one_for_all=False):
    n = Counter(counts)
    if one_for_all:  # Kneser–Ney before Chen and Goodman
        return [0] + [Fraction(n[1], n[1] + 2 * n[2]) if n[1] else Fraction(1, 2)] * 3
    if not (n[1] and n[2] and n[3]):
        return [Fraction(x) for x in FALLBACK]
    Y = Fraction(n[1], n[1] + 2 * n[2])
    found = [j - (j + 1) * Y * n[j + 1] / n[j] for j in (1, 2, 3)]
    return [0, *found] if min(found) > 0 else [Fraction(x) for x in FALLBACK]


def exact_counts(documents, order, raw=False, across=False):
    """For each length, c of every n-gram; ``raw`` and ``across`` are slips."""
    documents = [sum(documents, [])] if across else documents
    counts = []
    for k in range(1, order + 1):
        at = [(d, i) for d in documents for i in range(len(d) - k + 1)]
        occurrences = Counter(tuple(d[i : i + k]) for d, i in at)
        neighbours = defaultdict(set)
        for d, i in at:
            neighbours[tuple(d[i : i + k])].add(d[i - 1] if i else "beginning")
        plain = raw or k == order
        counts.append(occurrences if plain else Counter({gram: len(left) for gram, left in neighbours.items()}))
    return counts


def exact(counts, V, context, one_for_all=False, weight=True):
    """p(· | context) in fractions, ``weight=False`` leaves γ out."""
    p = [Fraction(1, V)] * V
    for k in range(min(len(counts) - 1, len(context)) + 1):
        D = exact_discounts(counts[k].values(), one_for_all)
        h = tuple(context[len(context) - k :])
        c = [counts[k][(*h, w)] for w in range(V)]
        if sum(c):
            gamma = sum(D[min(x, 3)] for x in c) / Fraction(sum(c)) if weight else 1
            p = [(x - D[min(x, 3)]) / Fraction(sum(c)) + gamma * below for x, below in zip(c, p, strict=True)]
    return p


def some_documents(V=25, lengths=(60, 1, 30, 7), seed=0):
    g = np.random.default_rng(seed)
    return [((g.geometric(0.15, n) - 1) % V).tolist() for n in lengths]


def test_a_model_worked_out_by_hand():
    """a b a b c: ab twice, ba, bc once. Before a stand b and the beginning, before b a, before c b: 2, 1, 1."""
    model = KneserNey.fit([[0, 1, 0, 1, 2]], order=2, vocabulary=3)  # no count is 3: the discounts are 1/2, 1, 3/2
    by_hand = {
        (): ["5/12", "7/24", "7/24"],  # a: (2 - 1)/4 + 2/4 · 1/3; b and c: (1 - 1/2)/4 + 2/4 · 1/3
        (0,): ["5/24", "31/48", "7/48"],  # b: (2 - 1)/2 + 1/2 · 7/24
        (1,): ["11/24", "7/48", "19/48"],  # a: (1 - 1/2)/2 + 1/2 · 5/12
        (2,): ["5/12", "7/24", "7/24"],  # nothing followed c
        (1, 2, 0): ["5/24", "31/48", "7/48"],  # of a longer context, the last token counts
    }
    for context, p in by_hand.items():
        assert model.distribution(context).tolist() == pytest.approx([float(Fraction(x)) for x in p], rel=1e-14)
    nats = [math.log(x) for x in (5 / 12, 31 / 48, 19 / 48, 7 / 24)]
    assert model.log_probabilities([0, 1, 2, 1]).tolist() == pytest.approx(nats, rel=1e-14)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 6])
def test_every_probability_is_the_equations_and_not_a_slips(order):
    documents, V = some_documents(), 25
    model, right = KneserNey.fit(documents, order, vocabulary=V), exact_counts(documents, order)
    slips = [(exact_counts(documents, order), {"one_for_all": True}), (right, {"weight": False})]
    slips += [(exact_counts(documents, order, raw=True), {}), (exact_counts(documents, order, across=True), {})]
    slips = slips if order > 1 else slips[:2]  # the others concern shorter contexts
    farthest = [0.0] * len(slips)
    for context in [[], [4], [0, 0], [0, 1, 0], [2, 0, 1, 0, 0], *(documents[0][i : i + 6] for i in range(50))]:
        ours = model.distribution(context).numpy()
        np.testing.assert_allclose(ours, np.array(exact(right, V, context), dtype=float), rtol=1e-13)
        for i, (counts, options) in enumerate(slips):
            wrong = np.array(exact(counts, V, context, **options), dtype=float)
            farthest[i] = max(farthest[i], np.abs(ours - wrong).max())
    assert min(farthest) > 1e-3, farthest


def test_the_discounts_are_those_of_the_counts_of_counts():
    counts = np.repeat([1, 2, 3, 4, 5, 9], [40, 15, 8, 5, 7, 30])
    Y = 40 / 70
    right = [0, 1 - 2 * Y * 15 / 40, 2 - 3 * Y * 8 / 15, 3 - 4 * Y * 5 / 8]
    assert discounts(counts) == pytest.approx(right, rel=1e-14)
    assert discounts(counts)[1] == pytest.approx(Y)  # D1 is the one discount of Kneser and Ney
    assert discounts(counts) == pytest.approx([float(x) for x in exact_discounts(counts.tolist())], rel=1e-14)
    no_fours = np.repeat([1, 2, 3], [40, 15, 8])
    assert discounts(no_fours)[3] == 3  # a count of 3 then says nothing that the shorter context does not


@pytest.mark.parametrize("times", [[5, 0, 3, 1], [5, 3, 0, 1], [0, 3, 3, 1], [5, 1, 9, 1], [9, 9, 1, 9]])
def test_degenerate_counts_of_counts_give_the_fallback(times):
    assert discounts(np.repeat([1, 2, 3, 4], times)).tolist() == list(FALLBACK)


def test_the_numbers_are_kenlms():
    """lmplz -o 4 --discount_fallback on the letters of an address, then query -n -v word: log10 p of other letters.

    KenLM at 4cb443e. Its </s> and <unk> are two more ids here; its <s> is none, but one more bigram, trigram and 4-gram
    that occurs once. Its discounts of unigrams are taken over: it has other counts of counts.
    """
    address, other = (d.text for d in data.documents("addresses")[:2])
    letters = sorted(set(address))
    V = len(letters) + 2
    model = KneserNey.fit([[letters.index(c) for c in address] + [V - 2]], 4, vocabulary=V)
    theirs = [[0.6875, 1.5875, 0.25], [0.511111, 1.04747, 1.4542], [0.606799, 1.15013, 1.50173]]
    theirs += [[0.595324, 1.25073, 1.8601]]
    for table, D in zip(model.tables[1:], theirs[1:], strict=True):
        assert discounts(np.append(table.counts, 1))[1:] == pytest.approx(D, rel=1e-5)
    pairs = zip(model.tables, theirs, strict=True)
    model = KneserNey(tuple(replace(table, discounts=np.array([0, *D])) for table, D in pairs), V)
    log10 = [-2.6439652, -0.44872034, -0.6477039, -0.2951331, -0.6342478, -0.336096, -0.8573501, -0.08842467]
    log10 += [-0.14957184, -0.16525714, -0.28033277, -0.63456124, -0.047582958, -0.22088084, -0.17721587, -0.6059679]
    log10 += [-0.6984791, -0.11976893, -0.0150689585, -0.32787937, -0.018460996, -0.09255255, -0.12804975, -1.5587008]
    assert other[:24] == "Fellow-Citizens of the S"
    ours = model.log_probabilities([letters.index(c) for c in other[:24]]) / math.log(10)
    np.testing.assert_allclose(ours, log10, rtol=0, atol=5e-6)


# ------------------------------------------------------------------------------------------- fast, sums, boundaries

texts = st.lists(st.lists(st.integers(0, 6), max_size=25), min_size=1, max_size=6).filter(lambda d: max(map(len, d)) > 3)


@settings(max_examples=60, deadline=None)
@given(texts, st.integers(1, 4), st.integers(7, 9), st.lists(st.integers(0, 6), min_size=1, max_size=12))
def test_distributions_sum_to_one_and_give_the_fast_ones_numbers(documents, order, V, tokens):
    model = KneserNey.fit(documents, order, vocabulary=V)
    plain = []
    for t, token in enumerate(tokens):
        p = model.distribution(tokens[:t])
        assert p.shape == (V,) and float(p.sum()) == pytest.approx(1, abs=1e-13) and bool((p > 0).all())
        plain.append(math.log(p[token]))
    assert model.log_probabilities(tokens).tolist() == pytest.approx(plain, abs=1e-12)


def test_fast_and_plain_agree_on_a_text_and_see_no_further_than_the_order():
    text = [ord(c) % 64 for c in data.documents("addresses")[0].text]
    model = KneserNey.fit([text[:6000]], order=4, vocabulary=64)
    tokens = torch.tensor(text[5900:6200])
    fast = model.log_probabilities(tokens)
    assert fast.dtype == torch.float64 and fast.shape == (300,)
    plain = [math.log(model.distribution(tokens[max(0, t - 3) : t])[tokens[t]]) for t in range(300)]
    assert fast.tolist() == pytest.approx(plain, abs=1e-12)
    later = model.log_probabilities(tokens[50:])
    assert torch.equal(later[3:], fast[53:]) and not torch.equal(later[:3], fast[50:53])


def test_a_document_begins_without_a_context_and_counts_as_a_neighbour():
    apart = KneserNey.fit([[0, 1], [0, 1], [2, 1]], order=2, vocabulary=3)
    joined = KneserNey.fit([[0, 1, 0, 1, 2, 1]], order=2, vocabulary=3)
    assert [len(table.keys) for table in apart.tables] == [3, 2]  # 01 and 21: nothing follows 1
    assert [len(table.keys) for table in joined.tables] == [3, 4]
    assert apart.tables[0].counts.tolist() == [1, 2, 1]  # before 0 and 2 the beginning alone, before 1 both 0 and 2
    assert torch.equal(apart.distribution([1]), apart.distribution([]))
    assert apart.log_probabilities([0])[0] == pytest.approx(math.log(apart.distribution([])[0]))


def test_the_order_of_documents_does_not_matter():
    documents = some_documents()
    one, other = (KneserNey.fit(d, 3, vocabulary=25) for d in (documents, documents[::-1]))
    tokens = documents[0]
    assert torch.equal(one.log_probabilities(tokens), other.log_probabilities(tokens))


def test_a_large_vocabulary_is_no_other_case():
    """Ids are not packed into one number, whose bits would run out."""
    documents = some_documents()
    far = [[x * 10**9 + 7 for x in d] for d in documents]
    small, large = KneserNey.fit(documents, 5, vocabulary=25), KneserNey.fit(far, 5, vocabulary=10**11)
    for a, b in zip(small.tables, large.tables, strict=True):
        assert np.array_equal(a.counts, b.counts) and np.allclose(a.gamma, b.gamma)
    with pytest.raises(ValueError, match="vocabulary: got .*expected a product below 2.63"):
        KneserNey.fit(far, 5, vocabulary=10**17)


def test_a_longer_context_helps_on_text_that_was_not_seen():
    letters = {c: i for i, c in enumerate("abcdefghijklmnopqrstuvwxyz ")}
    train, held_out = (
        [letters[c] for c in " ".join(data.words(d.text))[:40_000] if c in letters] for d in data.documents("novels")[:2]
    )
    bits = [-float(KneserNey.fit([train], n, vocabulary=27).log_probabilities(held_out).mean()) for n in (1, 2, 3, 5)]
    assert bits == sorted(bits, reverse=True) and bits[0] - bits[-1] > 0.5


# --------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "documents, order, vocabulary, kind, message",
    [
        ([[0, 1]], 0, 2, ValueError, "order: got 0"),
        ([[0, 1]], 2, 0, ValueError, "vocabulary: got 0"),
        ([[0, 1]], 3, 2, ValueError, "documents: got 2 tokens in the longest, expected 3"),
        ([], 1, 2, ValueError, "documents: got 0 tokens"),
        ("ab", 1, 2, TypeError, "documents: got str"),
        (["ab"], 1, 2, TypeError, r"documents\[0\]: got str"),
        ([0, 1], 1, 2, TypeError, r"documents\[0\]: got int"),
        ([[0, 1], [0, 2]], 1, 2, ValueError, r"documents\[1\]: got ids from 0 to 2, expected 0 to 1"),
        ([[0, -1]], 1, 2, ValueError, "ids from -1 to 0"),
        ([[0.0, 1.0]], 1, 2, TypeError, "got float64"),
        ([torch.tensor([[0, 1]])], 1, 2, TypeError, r"got int64 \[1, 2\]"),
    ],
)
def test_bad_input_is_named(documents, order, vocabulary, kind, message):
    with pytest.raises(kind, match=message):
        KneserNey.fit(documents, order, vocabulary=vocabulary)


def test_tokens_of_another_vocabulary_are_refused():
    model = KneserNey.fit([[0, 1, 0]], 2, vocabulary=2)
    with pytest.raises(ValueError, match="tokens: got ids from 0 to 2"):
        model.log_probabilities([0, 2])
    with pytest.raises(ValueError, match="context: got ids from 5 to 5"):
        model.distribution([5])
    assert model.log_probabilities([]).shape == (0,)
