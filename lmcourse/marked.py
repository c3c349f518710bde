"""Sentences with one word marked, with part of speech and sense: WordNet's usage examples, where both are gold.

Of the examples only those are taken that hold their word once, as it stands in the dictionary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lmcourse import arguments, data


@dataclass(frozen=True)
class Marked:
    """A sentence in lower-case ``words`` with one word marked: ``words[position]`` is ``word``."""

    word: str
    pos: str  # WordNet's: n, v, a or r
    synset: str
    position: int
    words: tuple[str, ...]


def marked_words(shortest: int = 3, longest: int = 30) -> list[Marked]:
    """WordNet's usage examples of ``shortest`` to ``longest`` words that hold their word exactly once, uninflected."""
    arguments.whole("shortest", shortest)
    arguments.whole("longest", longest)
    found = []
    for example in data.wordnet_examples():
        words, lemma = tuple(data.words(example.text)), example.lemma.lower()
        if words.count(lemma) == 1 and shortest <= len(words) <= longest:
            found.append(Marked(lemma, example.pos, example.synset, words.index(lemma), words))
    return found


def of_two_kinds(items: Sequence[Marked], kinds: tuple[str, str] = ("n", "v")) -> list[Marked]:
    """The examples of words used as both ``kinds`` of part of speech, of each word equally many, the first ones."""
    by_word: dict[str, dict[str, list[Marked]]] = {}
    for item in items:
        if item.pos in kinds:
            by_word.setdefault(item.word, {}).setdefault(item.pos, []).append(item)
    both = (list(found.values()) for found in by_word.values() if len(found) == 2)
    return [item for a, b in both for pair in zip(a, b) for item in pair]


def sense_pairs(items: Sequence[Marked], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(P, 2) places in ``items`` and (P,) booleans: two examples of one word and part of speech, of one sense or not.

    Of each word equally many pairs of both kinds, drawn where there are more. After Pilehvar & Camacho-Collados 2019.
    """
    arguments.cpu_generator(generator)
    by_word: dict[tuple[str, str], list[int]] = {}
    for i, item in enumerate(items):
        by_word.setdefault((item.word, item.pos), []).append(i)
    pairs, labels = [], []
    for ids in by_word.values():
        every = [(i, j) for k, i in enumerate(ids) for j in ids[k + 1 :] if items[i].words != items[j].words]
        kinds = [[p for p in every if (items[p[0]].synset == items[p[1]].synset) == same] for same in (True, False)]
        n = min(map(len, kinds))
        for same, found in zip((True, False), kinds):
            pairs += [found[k] for k in torch.randperm(len(found), generator=generator)[:n].tolist()]
            labels += [same] * n
    if not pairs:
        raise ValueError("items: no word has two examples of one sense and one of another; use marked_words()")
    return torch.tensor(pairs), torch.tensor(labels)
