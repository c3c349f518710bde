"""Vectors of words and sentences layer by layer, and static ones to compare with. N examples, D width.

"Layers" are those that ``ELMo.states`` gives, the token layer among them; sentences are lists of lower-case words.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lmcourse import arguments
from lmcourse.characters import characters
from lmcourse.elmo import ELMo
from lmcourse.embeddings import WordVectors


def _one_word_each(sentences: Sequence[Sequence[str]], positions: Sequence[int]) -> None:
    if len(sentences) != len(positions) or not len(sentences):
        raise ValueError(f"positions: got {len(positions)} for {len(sentences)} sentences, expected one for each")
    for i, (sentence, position) in enumerate(zip(sentences, positions)):
        if not 0 <= position < len(sentence):
            n = len(sentence)
            raise ValueError(f"positions[{i}]: got {position} in a sentence of {n} words, expected 0 to {n - 1}")


@torch.no_grad()
def _of_each(
    model: ELMo, sentences: Sequence[Sequence[str]], chosen: Callable[[Tensor, int], Tensor], batch: int
) -> Tensor:
    """(layers + 1, N, 2D): what is ``chosen(states, i)`` of the states (layers + 1, length, 2D) of each sentence i.

    The states of the marks stand at both ends, padding after them. Sentences of about the same length are read at once.
    """
    arguments.kind("model", model, ELMo, 'use course.load("elmo")')
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    found = {}
    for some in (order[k : k + batch] for k in range(0, len(order), batch)):
        states = model.states(characters([sentences[i] for i in some], model.config.longest))
        found |= {i: chosen(states[:, row], i) for row, i in enumerate(some)}
    return torch.stack([found[i] for i in range(len(sentences))], 1)


def states_at(model: ELMo, sentences: Sequence[Sequence[str]], positions: Sequence[int], batch: int = 128) -> Tensor:
    """(layers + 1, N, 2D): the states of word ``positions[i]`` of sentence i, without its marks counted."""
    _one_word_each(sentences, positions)
    # a copy, so that no batch is kept in memory
    return _of_each(model, sentences, lambda states, i: states[:, positions[i] + 1].clone(), batch)


def sentence_means(model: ELMo, sentences: Sequence[Sequence[str]], batch: int = 128) -> Tensor:
    """(layers + 1, N, 2D): each layer's mean over the words of a sentence, its two marks left out."""
    if not sentences or not all(sentences):
        raise ValueError("sentences: got none, or one without words, expected one word or more in each")
    return _of_each(model, sentences, lambda states, i: states[:, 1 : len(sentences[i]) + 1].mean(1), batch)


def token_vectors(model: ELMo, words: Sequence[str], batch: int = 512) -> Tensor:
    """(N, D): what the token layer makes of each word's characters, with no sentence around it."""
    arguments.kind("model", model, ELMo, 'use course.load("elmo")')
    words = list(words)
    if not words:
        raise ValueError("words: got none, expected one or more")
    with torch.no_grad():
        parts = (characters([[word] for word in words[k : k + batch]]) for k in range(0, len(words), batch))
        return torch.cat([model.tokens(ids)[:, 1] for ids in parts])


def surroundings(wv: WordVectors, sentences: Sequence[Sequence[str]], positions: Sequence[int], reach: int) -> Tensor:
    """(N, 2 · reach · D): the static vectors of the ``reach`` words to each side, in order; 0 where there is none."""
    arguments.whole("reach", reach)
    _one_word_each(sentences, positions)
    nothing, rows = torch.zeros(wv.vectors.shape[1]), []
    for sentence, position in zip(sentences, positions):
        places = [position + d for d in range(-reach, reach + 1) if d]
        known = [0 <= k < len(sentence) and sentence[k] in wv for k in places]
        rows.append(torch.cat([wv[sentence[k]] if there else nothing for k, there in zip(places, known)]))
    return torch.stack(rows)


def mean_of_others(wv: WordVectors, sentences: Sequence[Sequence[str]], positions: Sequence[int]) -> Tensor:
    """(N, D): the mean static vector of the words around the marked one, of those that have one; 0 where none has."""
    _one_word_each(sentences, positions)
    rows = []
    for sentence, position in zip(sentences, positions):
        known = [wv[word] for k, word in enumerate(sentence) if k != position and word in wv]
        rows.append(torch.stack(known).mean(0) if known else torch.zeros(wv.vectors.shape[1]))
    return torch.stack(rows)


def reach(
    model: ELMo, sentences: Sequence[Sequence[str]], position: int, distances: Sequence[int], strangers: Sequence[str]
) -> Tensor:
    """(distances, layers + 1): how much the state at ``position`` changes when a word that far away is replaced.

    The length of the change over the length of the state, the mean over sentences and both sides; sentence i gets
    ``strangers[i]``.
    """
    if len(strangers) != len(sentences):
        raise ValueError(f"strangers: got {len(strangers)} for {len(sentences)} sentences, expected one for each")
    places = [position + side * d for d in distances for side in (-1, 1)]
    if any(not 0 <= k < len(s) for k in (position, *places) for s in sentences):
        raise ValueError(f"distances: got {list(distances)} around place {position}, expected places in every sentence")
    own, moves = states_at(model, sentences, [position] * len(sentences)), []
    for k in places:
        changed = [[*s[:k], word, *s[k + 1 :]] for s, word in zip(sentences, strangers)]
        new = states_at(model, changed, [position] * len(changed))
        moves.append(((new - own).norm(dim=-1) / own.norm(dim=-1)).mean(1))
    return torch.stack(moves).unflatten(0, (-1, 2)).mean(1)
