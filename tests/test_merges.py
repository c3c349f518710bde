"""Learning and applying merges: by hand, plain against fast, against the ``tokenizers`` library, and wrong variants."""

import json
import math
from collections import Counter
from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lmcourse.merges import (
    Merge,
    apply_merges,
    apply_merges_plainly,
    learn_merges,
    learn_merges_plainly,
    sorted_symbols,
)

END = "</w>"
LEARNERS = [learn_merges_plainly, learn_merges]
SENNRICH = {(*"low", END): 5, (*"lower", END): 2, (*"newest", END): 6, (*"widest", END): 3}

# Few letters, so that ties, "aaa" and pieces with two ways to make them are frequent.
WORDS = st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 4), min_size=1, max_size=9)


def trace(merges):
    return [(m.left + " " + m.right, m.count) for m in merges]


# ---------------------------------------------------------------------------------------- by hand


@pytest.mark.parametrize("learn", LEARNERS)
def test_once_each_six_pairs_tie_at_two_and_the_oldest_is_first(learn):
    words = dict.fromkeys(SENNRICH, 1)
    counts = Counter(pair for word in words for pair in pairwise(word))
    tied = {("l", "o"), ("o", "w"), ("w", "e"), ("e", "s"), ("s", "t"), ("t", END)}
    assert {pair for pair, n in counts.items() if n == 2} == tied and max(counts.values()) == 2
    assert sorted_symbols(words) == [*"deilnorstw", END]
    # e is older than l, o, s, t and w; then l; then t, which is older than es and lo; and so on.
    assert trace(learn(words, 5)) == [("e s", 2), ("l o", 2), ("t </w>", 2), ("es t</w>", 2), ("lo w", 2)]


@pytest.mark.parametrize("learn", LEARNERS)
def test_with_sennrichs_counts_three_pairs_tie_at_nine(learn):
    counts = Counter()
    for word, n in SENNRICH.items():
        counts.update({pair: n for pair in pairwise(word)})  # no pair twice in one of these words
    assert [pair for pair, n in counts.items() if n == 9] == [("e", "s"), ("s", "t"), ("t", END)]
    expected = [("e s", 9), ("t </w>", 9), ("es t</w>", 9), ("l o", 7), ("lo w", 7), ("e w", 6), ("n ew", 6)]
    assert trace(learn(SENNRICH, 7)) == expected


@pytest.mark.parametrize("learn", LEARNERS)
@pytest.mark.parametrize(
    "words, pieces, expected",
    [
        ({"aaa": 1}, 2, [("a a", 2), ("aa a", 1)]),  # the pair stands twice in aaa, and is merged once
        ({"aaaa": 1}, 2, [("a a", 3), ("aa aa", 1)]),
        ({"abab": 2}, 2, [("a b", 4), ("ab ab", 2)]),
        ({"ab": 1}, 9, [("a b", 1)]),  # no pair is left
        ({"a": 7}, 9, []),
        ({}, 3, []),
        ({"ab": 1}, 0, []),
    ],
)
def test_small_cases(learn, words, pieces, expected):
    assert trace(learn(words, pieces)) == expected


@settings(max_examples=200, deadline=None)
@given(WORDS)
def test_no_piece_is_made_in_two_ways(words):
    made = [m.left + m.right for m in learn_merges(words, 99)]
    assert len(set(made)) == len(made) and not set(made) & set("abc")


@pytest.mark.parametrize("learn", LEARNERS)
def test_a_symbol_that_reads_like_others_together_is_refused(learn):
    with pytest.raises(ValueError, match="words: the symbol 'ab' reads like other symbols together"):
        learn({("ab", "c"): 1, ("a", "b"): 2}, 3)


@pytest.mark.parametrize("learn", LEARNERS)
def test_what_is_forbidden_is_not_made(learn):
    words = {"[MASK]": 9, "MASKED": 2}
    assert "[MASK]" in {m.left + m.right for m in learn(words, 99)}
    merges = learn(words, 99, frozenset(["[MASK]"]))
    assert "[MASK]" not in {m.left + m.right for m in merges} and len(merges) > 5


def test_a_long_word_does_not_take_quadratic_time():
    merges = learn_merges({"the" * 100_000: 1, "abc" * 100_000: 3}, 30)
    assert trace(merges)[:4] == [("a b", 300_000), ("ab c", 300_000), ("abc abc", 299_997), ("abcabc abcabc", 149_997)]


# --------------------------------------------------------------------------------- plain and fast


@settings(max_examples=300, deadline=None)
@given(WORDS, st.integers(0, 25), st.sets(st.sampled_from(["ab", "abc", "aa", "ca", "bcb"])))
def test_fast_learns_what_plain_learns(words, pieces, forbidden):
    assert learn_merges(words, pieces, forbidden) == learn_merges_plainly(words, pieces, forbidden)


@settings(max_examples=100, deadline=None)
@given(WORDS, st.randoms(use_true_random=False))
def test_the_order_of_the_words_does_not_matter(words, random):
    shuffled = list(words.items())
    random.shuffle(shuffled)
    assert learn_merges(dict(shuffled), 15) == learn_merges(words, 15)


def by_dict_order(words, pieces):
    """Wrong: a tie goes to the pair that was seen first."""
    words, merges = [(tuple(word), n) for word, n in words.items()], []
    for _ in range(pieces):
        counts = Counter()
        for word, n in words:
            for pair in pairwise(word):
                counts[pair] += n
        best = max(counts, key=counts.get)
        merges.append(Merge(*best, counts[best]))
        ranks = {best: 0}
        words = [(tuple(apply_merges_plainly(word, ranks)), n) for word, n in words]
    return merges


def test_a_tie_left_to_dict_order_is_found():
    orders = [dict(order) for order in permutations(dict.fromkeys(SENNRICH, 1).items())]
    assert len({tuple(by_dict_order(words, 4)) for words in orders}) > 1
    for learn in LEARNERS:
        assert len({tuple(learn(words, 4)) for words in orders}) == 1


# ------------------------------------------------------------------------------------ the library


def by_library(words, pieces):
    tokenizers = pytest.importorskip("tokenizers")
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=len(sorted_symbols(words)) + pieces, show_progress=False)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator((" ".join([word] * n) for word, n in words.items()), trainer)
    return [tuple(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]


@settings(max_examples=200, deadline=None)
@given(WORDS, st.integers(0, 25))
def test_merges_equal_those_of_the_library(words, pieces):
    assert [(m.left, m.right) for m in learn_merges(words, pieces)] == by_library(words, pieces)


@pytest.mark.parametrize("wrong", ["", "newest first", "right piece first", "no overlap"])
def test_other_rules_for_ties_and_counts_are_not_the_librarys(wrong):
    words = {"ccbc": 3, "bbb": 3, "bcbbb": 3, "ccbbc": 1, "cacb": 2}

    def key(pair, n, age):
        left, right = age[pair[0]], age[pair[1]]
        rules = {"newest first": (-n, -left, -right), "right piece first": (-n, right, left)}
        return rules.get(wrong, (-n, left, right))

    def learn(pieces):
        state, merges, age = [(tuple(w), n) for w, n in words.items()], [], {s: i for i, s in enumerate("abc")}
        for _ in range(pieces):
            counts = Counter()
            for word, n in state:
                last = None
                for i, pair in enumerate(pairwise(word)):
                    if wrong == "no overlap" and pair[0] == pair[1] and last == (i - 1, pair):
                        continue
                    counts[pair], last = counts[pair] + n, (i, pair)
            best = min(counts, key=lambda pair: key(pair, counts[pair], age))
            age["".join(best)] = len(age)
            merges.append(best)
            state = [(tuple(apply_merges_plainly(word, {best: 0})), n) for word, n in state]
        return merges

    assert (learn(6) == by_library(words, 6)) == (not wrong)


# ---------------------------------------------------------------------------------------- applying


@settings(max_examples=300, deadline=None)
@given(WORDS, st.integers(0, 25), st.text("abcd", max_size=40))
def test_fast_applies_what_plain_applies(words, pieces, word):
    ranks = {(m.left, m.right): i for i, m in enumerate(learn_merges(words, pieces))}
    found = apply_merges(word, ranks)
    assert found == apply_merges_plainly(word, ranks) and "".join(found) == word


@settings(max_examples=200, deadline=None)
@given(st.permutations([(a, b) for a in ("a", "b", "ab") for b in ("a", "b", "ab", "ba")]), st.text("ab", max_size=30))
def test_fast_applies_merges_in_any_order(merges, word):
    ranks = {pair: i for i, pair in enumerate(merges[:9])}
    assert apply_merges(word, ranks) == apply_merges_plainly(word, ranks)


@pytest.mark.parametrize("apply", [apply_merges, apply_merges_plainly])
def test_the_merge_learned_first_wins_not_the_longest_piece(apply):
    ranks = {("b", "c"): 0, ("a", "b"): 1, ("ab", "c"): 2}
    assert apply("abc", ranks) == ["a", "bc"]  # the longest match would be abc
    assert apply("aaa", {("a", "a"): 0}) == ["aa", "a"]  # the leftmost first
    assert apply("", ranks) == [] and apply("x", ranks) == ["x"]


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("learn", LEARNERS)
@pytest.mark.parametrize(
    "words, pieces, error, message",
    [
        (["low"], 1, TypeError, "words: got list, expected a mapping"),
        ("low", 1, TypeError, "words: got str, expected a mapping"),
        ({("l", 1): 1}, 1, TypeError, "words: got the symbol "),
        ({("l", ""): 1}, 1, TypeError, "words: got the symbol "),
        ({3: 1}, 1, TypeError, "words: got a word of type int, expected a mapping from sequences"),
        ({"low": 0}, 1, ValueError, "words['low']: got 0, expected how often"),
        ({"low": 1.5}, 1, ValueError, "words['low']: got 1.5, expected how often"),
        ({"low": 1}, -1, ValueError, "pieces: got -1, expected a whole number from 0 on"),
        ({"low": 1}, True, ValueError, "pieces: got True, expected a whole number from 0 on"),
    ],
)
def test_bad_input(learn, words, pieces, error, message):
    with pytest.raises(error) as caught:
        learn(words, pieces)
    assert message in str(caught.value)


def test_more_pieces_than_characters_there_are():
    with pytest.raises(ValueError, match="pieces: got 1,200,000, expected fewer"):
        learn_merges({"low": 1}, 1_200_000)
    assert math.inf > len(learn_merges({"low": 1}, 1_000_000))
