"""The two-sense probe by other scores than the nearest neighbour: a linear classifier for each word, and all pairs."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from lmcourse import arguments
from lmcourse.probes import ProbeSentence


def by_words(items: Sequence[ProbeSentence]) -> dict[str, list[int]]:
    """word → the places of its sentences in ``items``."""
    found: dict[str, list[int]] = {}
    for i, item in enumerate(items):
        found.setdefault(item.word, []).append(i)
    return found


def paired_probe(vectors: Tensor, items: Sequence[ProbeSentence], penalty: float = 0.3) -> Tensor:
    """(N,) float64: whether a linear classifier of the word's two senses is right on a sentence it was not fitted on.

    For each word its own ridge regression on ±1; one sentence of each sense is left out in turn, so that neither sense
    is the commoner one. ``penalty`` is relative to the mean square length of the vectors. A score of 0 counts one half.
    """
    arguments.sentence_vectors(vectors, items, ProbeSentence)
    arguments.positive("penalty", penalty)
    right = torch.zeros(len(items), dtype=torch.float64)
    for ids in by_words(items).values():
        first = [i for i in ids if items[i].synset == items[ids[0]].synset]
        for pair in zip(first, [i for i in ids if i not in first], strict=True):
            fit = [i for i in ids if i not in pair]
            x = vectors[fit + list(pair)].detach().double()
            x = x - x[:-2].mean(0)
            gram = x @ x.T / x[:-2].square().sum(1).mean().clamp_min(1e-30)
            sign = torch.tensor([1.0 if i in first else -1.0 for i in fit], dtype=torch.float64)
            ridge = penalty * torch.eye(len(fit), dtype=torch.float64)
            score = gram[-2:, :-2] @ torch.linalg.solve(gram[:-2, :-2] + ridge, sign)
            score = torch.where(score.abs() < 1e-6, 0.0, score)
            right[list(pair)] = (1 + torch.sign(score * torch.tensor([1.0, -1.0], dtype=torch.float64))) / 2
    return right


def pairwise(
    vectors: Tensor, items: Sequence[ProbeSentence], allowed: Callable[[int, int], bool] = lambda i, j: True
) -> dict[str, float]:
    """word → how often a sentence is nearer to one of its own sense than to one of the other, ties counting one half.

    Over all triples (sentence, own sense, other sense) in which both are ``allowed`` for the sentence: cosine after
    subtracting the word's mean. 0.5 is chance, whatever is allowed. Words without such a triple are left out.
    """
    arguments.sentence_vectors(vectors, items, ProbeSentence)
    found = {}
    for word, ids in by_words(items).items():
        x = vectors[ids].detach().double()
        x = F.normalize(x - x.mean(0), dim=1)
        cosine, shares = x @ x.T, []
        for a, i in enumerate(ids):
            open_to = [b for b, j in enumerate(ids) if j != i and allowed(i, j)]
            own, other = (
                cosine[a, [b for b in open_to if (items[ids[b]].synset == items[i].synset) == same]]
                for same in (True, False)
            )
            if len(own) and len(other):
                gap = own[:, None] - other
                shares.append(((gap > 1e-9).double() + (gap.abs() <= 1e-9) / 2).mean())
        if shares:
            found[word] = float(torch.stack(shares).mean())
    return found
