"""What a table of vectors knows: similarity, analogies, neighbours, and the two-sense probe.

The probe's sentences (``assets/probe.tsv``) use one word in two senses equally often and were fixed
before any model was trained. Whatever gives a word in a sentence a vector can be scored.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lmcourse import arguments
from lmcourse.data import read_asset
from lmcourse.embeddings import WordVectors

# --------------------------------------------------------------- similarity, neighbours, analogies


def _unit(vectors: Tensor) -> Tensor:
    """Rows of length 1; a row of zeros stays zero, so that its cosine with anything is 0."""
    length = vectors.norm(dim=-1, keepdim=True)
    least = (torch.finfo(vectors.dtype).tiny / torch.finfo(vectors.dtype).eps) ** 0.5
    beyond = ~torch.isfinite(length) | (length < least)  # the squares over- or underflow
    if beyond.any():
        largest = vectors.abs().amax(-1, keepdim=True)
        vectors = torch.where(beyond & (largest > 0), vectors / largest, vectors)
        length = torch.where(beyond, vectors.norm(dim=-1, keepdim=True), length)
    return vectors / length.masked_fill(length == 0, 1)


def _ranks(values: Tensor) -> Tensor:
    """Ranks from 1; equal values share the mean of their ranks, and equal means up to rounding."""
    values = values.round(decimals=12)
    smaller, equal = (values[:, None] > values).sum(1), (values[:, None] == values).sum(1)
    return smaller + (equal.double() + 1) / 2


@dataclass(frozen=True)
class SimilarityScore:
    """Spearman's rank correlation over the ``used`` pairs; ``unknown`` pairs have a word without a vector."""

    spearman: float
    used: int
    unknown: int


def similarity(wv: WordVectors, pairs: Iterable[tuple[str, str, float]]) -> SimilarityScore:
    """Cosine of the vectors against human ratings, by rank (Spearman 1904), ties averaged.

    ``pairs``: (word, word, rating), as :func:`lmcourse.data.word_similarities` gives them.
    """
    arguments.table(wv, WordVectors)
    pairs = arguments.rated_pairs(pairs)
    known = [(a, b, rating) for a, b, rating in pairs if a in wv and b in wv]
    if len(known) < 2:
        raise ValueError(f"pairs: {len(known)} of {len(pairs)} have both words in the vocabulary, expected two or more")
    first, second, ratings = zip(*known)
    left, right = (_unit(wv.vectors[wv.vocabulary.ids(words)].cpu().double()) for words in (first, second))
    ranks = torch.stack([_ranks((left * right).sum(1)), _ranks(torch.tensor(ratings).double())])
    if (ranks == ranks[:, :1]).all(1).any():
        raise ValueError(f"pairs: all {len(known)} cosines or all ratings are equal, so there is no order to compare")
    return SimilarityScore(float(torch.corrcoef(ranks)[0, 1]), len(known), len(pairs) - len(known))


def neighbours(wv: WordVectors, word: str, k: int = 10) -> list[tuple[str, float]]:
    """The ``k`` words with the largest cosine to ``word``, itself left out: [(word, cosine), …]."""
    arguments.table(wv, WordVectors, k)
    unit, own = _unit(wv.vectors), wv.vocabulary.id(word)
    cosine = unit @ unit[own]
    cosine[own] = -torch.inf
    values, ids = cosine.topk(k)
    return [(wv.vocabulary.words[i], v) for i, v in zip(ids.tolist(), values.tolist())]


@dataclass(frozen=True)
class AnalogyScore:
    """Right answers over the ``asked`` questions, those whose four words have vectors."""

    correct: int
    asked: int
    unknown: int
    sections: dict[str, tuple[int, int]]  # section → (correct, asked)

    @property
    def accuracy(self) -> float:
        return self.correct / self.asked


def analogy(
    wv: WordVectors, questions: Mapping[str, Sequence[tuple[str, str, str, str]]], k: int = 1, keep_query: bool = False
) -> AnalogyScore:
    """a is to b as c is to d: is d among the ``k`` words with the largest cosine to b − a + c (unit vectors)?

    Mikolov et al. 2013 (3CosAdd). As in every published figure the words a, b, c cannot be the answer;
    ``keep_query`` lets them, for the lesson. Words tied with d count against it: equal vectors answer nothing.
    """
    arguments.table(wv, WordVectors, k)
    arguments.questions(questions)
    unit, sections, unknown = _unit(wv.vectors), {}, 0
    for name, rows in questions.items():
        known = [row for row in rows if all(word in wv for word in row)]
        unknown += len(rows) - len(known)
        ids = wv.vocabulary.ids(word for row in known for word in row).view(-1, 4).to(unit.device)  # [Q, 4]
        batches = ids.split(max(1, 2**25 // len(wv)))  # the scores of one batch take 128 MB at most
        sections[name] = sum(_right(unit, batch, k, keep_query) for batch in batches), len(known)
    correct, asked = (sum(s[i] for s in sections.values()) for i in (0, 1))
    if not asked:
        raise ValueError("questions: none has all four words in the vocabulary")
    return AnalogyScore(correct, asked, unknown, sections)


def _right(unit: Tensor, ids: Tensor, k: int, keep_query: bool) -> int:
    a, b, c, d = ids.T
    scores = (unit[b] - unit[a] + unit[c]) @ unit.T  # [Q, V]
    if not keep_query:
        scores.scatter_(1, ids[:, :3], -torch.inf)
    before = (scores >= scores.gather(1, d[:, None])).sum(1)  # d itself among them
    return int((before <= k).sum())


# ------------------------------------------------------------------------------- the two-sense probe


@dataclass(frozen=True)
class ProbeSentence:
    """One sentence of the probe: ``word`` stands at ``position`` among ``data.words(sentence)``.

    ``group``: "same" or "different" part of speech of the word's two senses; ``synset``: the sense in
    WordNet 3.0; ``cue``: where the evidence for it stands, "left" or "right" of the word, or "both".
    """

    word: str
    group: str
    pos: str
    synset: str
    cue: str
    position: int
    sentence: str


def probe_sentences() -> tuple[ProbeSentence, ...]:
    """All sentences of the probe, word by word, ten of each sense."""
    rows = csv.DictReader(io.StringIO(read_asset("probe.tsv")), delimiter="\t", quoting=csv.QUOTE_NONE)
    return tuple(ProbeSentence(**row | {"position": int(row["position"])}) for row in rows)


@dataclass(frozen=True)
class ProbeScore:
    """How well vectors tell a word's two senses apart; 0.5 is chance."""

    accuracy: float
    low: float  # 95 % bootstrap interval of the accuracy, words drawn with replacement
    high: float
    within: float  # mean cosine of two sentences of one sense, centred by the word
    between: float  # and of two sentences of different senses
    groups: dict[str, float]  # accuracy by group ("same", …), by cue ("left", …), by both ("same, left", …)
    words: dict[str, float]  # accuracy by word


def two_sense(
    vectors: Tensor, items: Sequence[ProbeSentence], generator: torch.Generator, samples: int = 1000
) -> ProbeScore:
    """Leave-one-out nearest neighbour over the sentences of each word.

    ``vectors`` [N, D]: one a sentence of ``items``. A sentence's nearest neighbour, by cosine after
    subtracting the word's mean vector, should have its sense. To be fair both senses must offer equally
    many candidates, yet the sentence itself is missing on its own side; so one candidate of the other
    sense is left out too, each in turn, and the results are averaged. Tied neighbours share the credit.
    Identical vectors then score exactly 0.5, and so, on average, do random ones. Surface features score
    less, because frames recur across senses: 102 of the 168 sentences with the cue on the right share all
    words before the marked one with the other sense, so knowing those words by sight gives 0.23 there.
    Read a causal model's "same, right": in "different", function words on the left often give the sense.
    """
    arguments.sentence_vectors(vectors, items, ProbeSentence)
    rows = {word: [i for i, item in enumerate(items) if item.word == word] for word in {s.word: 0 for s in items}}
    credit, cosines = torch.zeros(len(items), dtype=torch.float64), []
    for word, ids in rows.items():
        first = torch.tensor([items[i].synset == items[ids[0]].synset for i in ids])
        if 2 * int(first.sum()) != len(ids) or len({items[i].synset for i in ids}) != 2 or len(ids) < 4:
            raise ValueError(f"items: {word!r} needs two senses with equally many sentences, two or more of each")
        cosine = _centred_cosine(vectors[ids])
        credit[ids] = _credit(cosine, first)
        same, pair = first[:, None] == first, torch.ones_like(cosine, dtype=torch.bool).triu(1)
        cosines.append(torch.stack([cosine[pair & same].mean(), cosine[pair & ~same].mean()]))
    by_word = {word: float(credit[ids].mean()) for word, ids in rows.items()}
    low, high = _interval(torch.tensor(list(by_word.values())).double(), generator, samples)
    within, between = torch.stack(cosines).mean(0).tolist()
    accuracy = sum(by_word.values()) / len(by_word)
    return ProbeScore(accuracy, low, high, within, between, _by_kind(credit, items), by_word)


def compare(
    a: ProbeScore, b: ProbeScore, generator: torch.Generator, samples: int = 1000
) -> tuple[float, float, float]:
    """(difference, low, high): accuracy of ``a`` less that of ``b`` with its 95 % bootstrap interval.

    Paired: the same words are drawn for both, so that a hard word counts against neither.
    """
    for name, score in (("a", a), ("b", b)):
        arguments.kind(name, score, ProbeScore, "use two_sense(vectors, items, generator)")
    if a.words.keys() != b.words.keys():
        raise ValueError("b: scored on other words than a, so the two cannot be paired")
    difference = torch.tensor([a.words[w] - b.words[w] for w in a.words]).double()
    return (float(difference.mean()), *_interval(difference, generator, samples))


def _centred_cosine(vectors: Tensor) -> Tensor:
    """[n, n] cosines after subtracting the mean, in float64; 0 where float32 cannot tell a vector from the mean."""
    vectors = vectors.detach().cpu().double()
    largest = float(vectors.abs().max())
    if largest > 1e150 or 0 < largest < 1e-140:  # the squares would over- or underflow, and cosines know no scale
        vectors = vectors / largest
    centred = vectors - vectors.mean(0)
    rounding = 1e-6 * vectors.norm(dim=1, keepdim=True)  # ten times float32's, for sums made in another order
    unit = _unit(centred.masked_fill(centred.norm(dim=1, keepdim=True) <= rounding, 0))
    return unit @ unit.T


def _credit(cosine: Tensor, first: Tensor) -> Tensor:
    """[n] the share of right answers of each sentence; ``first`` [n] tells the senses apart."""
    n, credit = len(first), torch.zeros(len(first), dtype=torch.float64)
    all_but_one = ~torch.eye(n // 2, dtype=torch.bool)
    for i in range(n):
        same = cosine[i, (first == first[i]) & (torch.arange(n) != i)]  # [n/2 − 1]
        other = cosine[i, first != first[i]].expand(n // 2, -1)  # [n/2, n/2]
        left_out = other[all_but_one].view(n // 2, -1)  # [n/2, n/2 − 1]: row j without candidate j
        best = torch.maximum(left_out.max(1).values, same.max()) - 1e-9  # what rounding cannot tell apart is tied
        right, wrong = (same > best[:, None]).sum(1), (left_out > best[:, None]).sum(1)
        credit[i] = (right / (right + wrong).double()).mean()
    return credit


def _interval(values: Tensor, generator: torch.Generator, samples: int) -> tuple[float, float]:
    """95 % percentile interval of the mean of ``values``, drawn with replacement."""
    arguments.cpu_generator(generator)
    arguments.whole("samples", samples)
    drawn = torch.randint(0, len(values), (samples, len(values)), generator=generator)
    return tuple(values[drawn].mean(1).quantile(values.new_tensor([0.025, 0.975])).tolist())


def _by_kind(credit: Tensor, items: Sequence[ProbeSentence]) -> dict[str, float]:
    kinds: dict[str, list[int]] = {}
    for i, item in enumerate(items):
        for kind in (item.group, item.cue, f"{item.group}, {item.cue}"):
            kinds.setdefault(kind, []).append(i)
    return {kind: float(credit[ids].mean()) for kind, ids in kinds.items()}
