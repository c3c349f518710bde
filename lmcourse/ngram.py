"""An n-gram language model with interpolated modified Kneser–Ney smoothing: what a neural model has to beat.

The model of order n predicts a token from the n - 1 tokens before it, h, and from ever shorter contexts, h′ being h
without its first token:

    p(w | h) = (c(hw) - D(c(hw))) / Σ_v c(hv) + γ(h) p(w | h′),    γ(h) = Σ_v D(c(hv)) / Σ_v c(hv).

Where h was never followed by anything, p(w | h) = p(w | h′). Below the empty context stands the uniform distribution
1/V, so that every token has a probability above 0. The discount D is 0, D1, D2, D3+ for a count c of 0, 1, 2, 3 or
more; n-grams of each length have their own (:func:`discounts`).

Only n-grams of the full length are counted as they come. Of shorter ones, c says how many different tokens go before
them: "Francisco" is frequent, but after one word alone, and a context that is not that word does not suggest it.

No n-gram reaches over the beginning of a document. That beginning is one more neighbour on the left in the counts, but
no token of a context: what stands there is predicted from the shorter context that there is, the first token from none.

Kneser & Ney 1995 ("Improved backing-off for m-gram language modeling"); interpolated and with three discounts, Chen &
Goodman 1998 ("An empirical study of smoothing techniques for language modeling", TR-10-98), section 3.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lmcourse import arguments

FALLBACK = (0.0, 0.5, 1.0, 1.5)
_UNSEEN = -1  # the place of an n-gram that is not in the table


def discounts(counts: np.ndarray) -> np.ndarray:
    """(0, D1, D2, D3+), taken from a count of 0, 1, 2, 3 or more. Chen & Goodman 1998, equation 26.

    D_j = j - (j + 1) Y n_{j+1} / n_j with Y = n_1 / (n_1 + 2 n_2), where n_j of the ``counts`` are j. Where n_1, n_2 or
    n_3 is 0, or a discount is not above 0, as in small or artificial texts: ``FALLBACK``, the numbers of KenLM's
    ``lmplz --discount_fallback``.
    """
    n = np.bincount(np.minimum(counts, 5), minlength=6).astype(np.float64)
    if not n[1:4].all():
        return np.array(FALLBACK)
    j, Y = np.arange(1, 4), n[1] / (n[1] + 2 * n[2])
    found = j - (j + 1) * Y * n[2:5] / n[1:4]
    return np.array([0.0, *found]) if (found > 0).all() else np.array(FALLBACK)


@dataclass(frozen=True, eq=False)
class NGrams:
    """The N different n-grams of one length, in order. A context is its place in the table one shorter; () is 0."""

    keys: np.ndarray  # (N,) int64, rising: context · V + last token
    counts: np.ndarray  # (N,) int64, from 1 on
    discounts: np.ndarray  # (4,) float64
    contexts: int  # how many there are, followed by something or not
    vocabulary: int

    def places(self, contexts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """(T,) where the n-gram of each context (T,) and token (T,) stands, -1 where it or its context does not."""
        wanted = contexts * self.vocabulary + tokens  # below 0, as no key is, where the context is -1
        found = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[found] == wanted, found, _UNSEEN)

    def following(self, context: int) -> tuple[np.ndarray, np.ndarray]:
        """The tokens seen after a context, and c of each."""
        start, end = np.searchsorted(self.keys, [context * self.vocabulary, (context + 1) * self.vocabulary])
        return self.keys[start:end] % self.vocabulary, self.counts[start:end]

    @functools.cached_property
    def own(self) -> np.ndarray:
        """(N,) (c - D(c)) / Σ c, what each n-gram has of its own."""
        return (self.counts - self._taken) / self._totals[self.keys // self.vocabulary]

    @functools.cached_property
    def gamma(self) -> np.ndarray:
        """(contexts,) γ, the weight of the shorter context; 1 where nothing followed."""
        taken = np.bincount(self.keys // self.vocabulary, self._taken, minlength=self.contexts)
        return np.divide(taken, self._totals, out=np.ones(self.contexts), where=self._totals > 0)

    @property
    def _taken(self) -> np.ndarray:
        return self.discounts[np.minimum(self.counts, 3)]

    @functools.cached_property
    def _totals(self) -> np.ndarray:
        return np.bincount(self.keys // self.vocabulary, self.counts, minlength=self.contexts)


@dataclass(frozen=True, eq=False)
class KneserNey:
    """The tables of n-grams of 1, 2, … tokens, the last of them of the model's order."""

    tables: tuple[NGrams, ...]
    vocabulary: int

    @classmethod
    def fit(cls, documents: Sequence[Sequence[int]], order: int = 5, *, vocabulary: int) -> "KneserNey":
        """Counts n-grams of up to ``order`` tokens in ``documents``: lists or tensors (T,) of ids below ``vocabulary``.

        The order needs a document as long. Time and memory grow with the tokens and with the order: 3 seconds and
        0.6 GB for 4 million tokens at order 5, on one core. ``TypeError``, ``ValueError`` for anything but ids.
        """
        arguments.whole("order", order)
        arguments.whole("vocabulary", vocabulary)
        tokens, places = _joined(documents, order, vocabulary)
        tables, contexts = [], 1
        for keys, counts in _counted(tokens, places, order, vocabulary):
            tables.append(NGrams(keys, counts, discounts(counts), contexts, vocabulary))
            contexts = len(keys)
        return cls(tuple(tables), vocabulary)

    @property
    def order(self) -> int:
        return len(self.tables)

    def distribution(self, context: Sequence[int]) -> Tensor:
        """p(· | context), float64 (V,), by the equation; of the context, the last order - 1 tokens count."""
        context = _ids("context", context, self.vocabulary)
        p = np.full(self.vocabulary, 1 / self.vocabulary)
        for length, table in enumerate(self.tables[: len(context) + 1]):
            tokens, counts = table.following(self._place(context[len(context) - length :]))
            if not len(tokens):  # nor is anything known of a longer context
                break
            taken = table.discounts[np.minimum(counts, 3)]
            p *= taken.sum() / counts.sum()
            p[tokens] += (counts - taken) / counts.sum()
        return torch.from_numpy(p)

    def _place(self, tokens: np.ndarray) -> int:
        """The place of an n-gram in the table of its length."""
        place = np.zeros(1, np.int64)
        for table, token in zip(self.tables, tokens, strict=False):
            place = table.places(place, token)
        return int(place[0])

    def log_probabilities(self, tokens: Sequence[int]) -> Tensor:
        """log p of each token, from the up to order - 1 before it in ``tokens``: (T,) → float64 (T,), in nats.

        The same as :meth:`distribution`, for all tokens at once.
        """
        tokens = _ids("tokens", tokens, self.vocabulary)
        p, contexts = np.full(len(tokens), 1 / self.vocabulary), np.zeros(len(tokens), np.int64)
        for table in self.tables:
            places = table.places(contexts, tokens)
            own = np.where(places == _UNSEEN, 0, table.own[places])
            p = np.where(contexts == _UNSEEN, p, own + table.gamma[contexts] * p)
            contexts = np.concatenate([[_UNSEEN], places])[: len(tokens)]  # one longer: the n-gram that ended before
        return torch.from_numpy(np.log(p))


def _counted(
    tokens: np.ndarray, places: np.ndarray, order: int, vocabulary: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(keys, counts) of the n-grams of 1, 2, … ``order`` tokens; ``places``: of each token in its document."""
    contexts = np.zeros_like(tokens)
    for length in range(order):  # of the context
        there = np.flatnonzero(places >= length)
        wanted = contexts[there] * vocabulary + tokens[there]
        keys, first, ids = np.unique(wanted, return_index=True, return_inverse=True)
        if length:  # each different n-gram is one more neighbour on the left of its end
            yield shorter, np.bincount(ends[there[first]], minlength=len(shorter)) + begins
        ends = np.full_like(tokens, _UNSEEN)
        ends[there] = ids  # of each token, the n-gram that ends with it
        begins = np.bincount(ends[places == length], minlength=len(keys)) > 0
        shorter, contexts = keys, np.roll(ends, 1)
    yield keys, np.bincount(ids)


def _joined(documents: Sequence[Sequence[int]], order: int, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of all documents, and the place of each in its own; (N,) int64 both."""
    arguments.listed("documents", documents, "lists of ids, one a document; use [ids] for one")
    rows = [_ids(f"documents[{i}]", ids, vocabulary) for i, ids in enumerate(documents)]
    longest = max(map(len, rows), default=0)
    if longest < order:
        raise ValueError(f"documents: got {longest} tokens in the longest, expected {order}, the order; give more text")
    tokens = np.concatenate(rows)
    if len(tokens) * vocabulary >= 1 << 63:  # a key holds a context, of which there are at most N, and a token
        raise ValueError(f"vocabulary: got {vocabulary} for {len(tokens)} tokens, expected a product below 2^63")
    return tokens, np.concatenate([np.arange(len(row)) for row in rows])


def _ids(name: str, value: Sequence[int], vocabulary: int) -> np.ndarray:
    """(T,) int64."""
    arguments.listed(name, value, "a list of ids; use encode(text)")
    value = value.cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if value.ndim != 1 or len(value) and value.dtype.kind not in "iu":
        raise TypeError(f"{name}: got {value.dtype} {list(value.shape)}, expected whole numbers (T,); use encode(text)")
    if len(value) and not 0 <= value.min() <= value.max() < vocabulary:
        came = f"ids from {value.min()} to {value.max()}"
        raise ValueError(f"{name}: got {came}, expected 0 to {vocabulary - 1}; use the tokenizer that vocabulary is of")
    return value.astype(np.int64)
