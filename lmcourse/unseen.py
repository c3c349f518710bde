"""Words never seen: their character n-grams, and how much of them two words share."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lmcourse import arguments


def ngrams(word: str, widest: int = 5) -> frozenset[str]:
    """All pieces of 1 to ``widest`` characters of "<word>", each once: ngrams("at", 2) is {<, a, t, >, <a, at, t>}."""
    arguments.text("word", word)
    arguments.whole("widest", widest)
    marked = f"<{word}>"
    return frozenset(marked[i : i + n] for n in range(1, widest + 1) for i in range(len(marked) - n + 1))


def overlap(words: Sequence[str], known: Sequence[str], widest: int = 5) -> Tensor:
    """(N, M): shared n-grams over all n-grams of two words, Jaccard's index, from 0 (none shared) to 1 (all).

    What a character convolution of the same widths could tell by spelling alone, every piece counting the same.
    """
    sets = [[ngrams(word, widest) for word in some] for some in (words, known)]
    if not all(sets):
        raise ValueError("words, known: got an empty list, expected one word or more in each")
    common = frozenset().union(*sets[0]) & frozenset().union(*sets[1])  # no other piece can be shared
    index = {piece: i for i, piece in enumerate(sorted(common))}
    tables = [torch.zeros(len(some), len(index)) for some in sets]
    for table, some in zip(tables, sets):
        for row, found in zip(table, some):
            row[[index[piece] for piece in found & common]] = 1
    both = tables[0] @ tables[1].T
    sizes = [torch.tensor([float(len(found)) for found in some]) for some in sets]
    return both / (sizes[0][:, None] + sizes[1] - both)
