"""The unigram model of pieces: every cut, the best one by going through them and by Viterbi, bad input."""

import math
import random
from fractions import Fraction

import pytest
from lmcourse.unigram import Unigram, cuts

PIECES = {"l": 1 / 32, "o": 1 / 32, "w": 1 / 32, "e": 1 / 16, "r": 1 / 16, "lo": 1 / 16, "low": 1 / 8, "er": 1 / 8,
          "lowe": 1 / 32}  # fmt: skip
LOWER = Unigram({piece: math.log(p) for piece, p in PIECES.items()})


def test_a_word_of_n_characters_has_two_to_the_n_minus_one_cuts():
    for n in range(1, 9):
        found = [tuple(cut) for cut in cuts("abcdefgh"[:n])]
        assert len(set(found)) == len(found) == 2 ** (n - 1)
        assert all("".join(cut) == "abcdefgh"[:n] for cut in found)
    assert list(cuts("")) == [[]]


def test_the_best_cut_of_lower():
    pieces, score = LOWER.best("lower")
    assert pieces == ["low", "er"]
    assert score == pytest.approx(math.log(1 / 64))
    probabilities = {tuple(c): math.prod(Fraction(PIECES.get(p, 0)) for p in c) for c in cuts("lower")}
    assert max(probabilities.values()) == Fraction(1, 64) == probabilities["low", "er"]


def test_viterbi_finds_what_going_through_all_cuts_finds():
    draw = random.Random(0)
    for _ in range(200):
        word = "".join(draw.choice("ab") for _ in range(draw.randint(1, 9)))
        pieces = {"".join(draw.choice("ab") for _ in range(draw.randint(1, 4))) for _ in range(8)}
        model = Unigram({piece: -draw.expovariate(1) for piece in pieces}, draw.choice(["", "##"]))
        if model.continues:
            model = Unigram(dict(model.scores) | {"##" + piece: -draw.expovariate(1) for piece in pieces}, "##")
        fast, plain = model.best(word), model.best_plainly(word)
        assert fast[1] == pytest.approx(plain[1])
        assert bool(fast[0]) == bool(plain[0])
        assert fast[0] == plain[0] or model.score([p.removeprefix("##") for p in fast[0]]) == pytest.approx(plain[1])


def test_equal_scores_give_the_fewest_pieces():
    model = Unigram(dict.fromkeys(["ab", "a", "##b", "##bcd", "##c", "##d"], -1.0), "##")
    assert model.best("abcd") == (["a", "##bcd"], -2.0)


def test_a_word_without_a_cut():
    assert LOWER.best("lowest") == LOWER.best_plainly("lowest") == ([], -math.inf)
    assert LOWER.best("") == ([], 0.0)


@pytest.mark.parametrize(
    "scores, error, message",
    [
        (["low"], TypeError, "scores: got list, expected a Mapping"),
        ({}, ValueError, "scores: got no piece"),
        ({"": -1.0}, ValueError, "scores: got the piece ''"),
        ({"low": 0.5}, ValueError, "expected log p, at most 0; use math.log"),
        ({"low": math.nan}, ValueError, "expected log p"),
        ({"low": "x"}, ValueError, "expected log p"),
    ],
)
def test_bad_scores(scores, error, message):
    with pytest.raises(error, match=message):
        Unigram(scores)


def test_bad_words():
    with pytest.raises(TypeError, match="word: got int, expected str"):
        LOWER.best(3)
