"""Pairs of passages, half of which follow one another: BERT's next-sentence prediction (Devlin et al. 2019)."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lmcourse import arguments


@dataclass(frozen=True)
class SentencePairs:
    """N pairs [CLS] A [SEP] B [SEP], padded on the right."""

    tokens: Tensor  # (N, T) int64
    segments: Tensor  # (N, T) int64: 0 for [CLS] A [SEP], 1 for B [SEP], 0 for padding
    labels: Tensor  # (N,) int64: 0 where B follows A, 1 where it comes from another document; both carry loss
    attention_mask: Tensor  # (N, T) bool: False for padding


def next_sentence(
    documents: Sequence[Sequence[Sequence[int]]],
    *,
    cls_id: int,
    sep_id: int,
    pad_id: int,
    length: int,
    generator: torch.Generator,
) -> SentencePairs:
    """Pairs of up to ``length`` tokens in all. Devlin et al. 2019, section 3.1.

    ``documents``: lists of sentences, each a list of ids. Sentences are taken in order until they fill ``length``,
    two at least, and cut in two between sentences: A and what follows. By a fair coin, B is what follows (label 0),
    or starts at a random sentence of another document (label 1); then what followed A is used for the next pair.
    A pair too long loses tokens of its longer half, at either end. Unlike BERT's code, which has more than half
    of label 1, a sentence left alone at the end of a document makes no pair; and no pair is short on purpose.
    """
    _check(documents, length, (cls_id, sep_id, pad_id))
    arguments.cpu_generator(generator)
    pairs, room = [], length - 3  # [CLS] and twice [SEP]
    for i, document in enumerate(documents):
        at = 0
        while len(document) - at >= 2:
            end = _filled(document, at, room, least=2)
            cut = at + 1 + _draw(end - at - 1, generator)
            a, other = _joined(document[at:cut]), _draw(2, generator)
            b = _elsewhere(documents, i, room - len(a), generator) if other else _joined(document[cut:end])
            pairs.append((*_truncated(a, b, room, generator), other))
            at = cut if other else end
    return _laid_out(pairs, cls_id, sep_id, pad_id, length)


def _filled(document: Sequence[Sequence[int]], start: int, room: int, least: int) -> int:
    """The end of the sentences from ``start`` on that fill ``room`` tokens: ``least`` of them, or more."""
    end = start + least
    size = sum(map(len, document[start:end]))
    while end < len(document) and size < room:
        size += len(document[end])
        end += 1
    return end


def _elsewhere(documents, i: int, room: int, generator: torch.Generator) -> list[int]:
    """Sentences of a document other than ``i``, from a random one on, until they fill ``room`` tokens."""
    j = _draw(len(documents) - 1, generator)
    document = documents[j + (j >= i)]
    start = _draw(len(document), generator)
    return _joined(document[start : _filled(document, start, room, least=1)])


def _truncated(a: list[int], b: list[int], room: int, generator: torch.Generator) -> tuple[list[int], list[int]]:
    a, b = deque(a), deque(b)  # which lose either end at once, however long they are
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        longer.pop() if _draw(2, generator) else longer.popleft()
    return list(a), list(b)


def _laid_out(pairs: list, cls_id: int, sep_id: int, pad_id: int, length: int) -> SentencePairs:
    shape = (len(pairs), length)
    tokens, segments = torch.full(shape, pad_id), torch.zeros(shape, dtype=torch.int64)
    attention_mask = torch.zeros(shape, dtype=torch.bool)
    for n, (a, b, _) in enumerate(pairs):
        ids = [cls_id, *a, sep_id, *b, sep_id]
        tokens[n, : len(ids)] = torch.tensor(ids)
        segments[n, len(a) + 2 : len(ids)] = 1
        attention_mask[n, : len(ids)] = True
    return SentencePairs(tokens, segments, torch.tensor([other for _, _, other in pairs]), attention_mask)


def _draw(n: int, generator: torch.Generator) -> int:
    return int(torch.randint(n, (1,), generator=generator))


def _joined(sentences: Sequence[Sequence[int]]) -> list[int]:
    return [token for sentence in sentences for token in sentence]


def _check(documents, length: int, special: tuple[int, int, int]) -> None:
    expected = "lists of sentences, each a list of ids"
    arguments.listed("documents", documents, expected)
    arguments.whole("length", length)
    if length < 5:
        raise ValueError(f"length: got {length}, expected 5 or more: [CLS], [SEP], [SEP] and a token on either side")
    if len(documents) < 2:
        raise ValueError(f"documents: got {len(documents)}, expected two or more: what does not follow is from another")
    for i, document in enumerate(documents):
        arguments.listed(f"documents[{i}]", document, expected)
        if not len(document):
            raise ValueError(f"documents[{i}]: got no sentence, expected one or more; leave it out")
        for j, sentence in enumerate(document):
            _check_sentence(f"documents[{i}][{j}]", sentence, special)
    if max(map(len, documents)) < 2:
        raise ValueError("documents: got one sentence in each, expected two or more in some, so that one can follow")


def _check_sentence(name: str, sentence, special: tuple[int, int, int]) -> None:
    arguments.listed(name, sentence, "a list of ids")
    if not len(sentence):
        raise ValueError(f"{name}: got no ids, expected one or more; leave it out")
    for token in sentence:
        if not isinstance(token, int) or token < 0 or token in special:
            raise ValueError(f"{name}: got {token!r}, expected ids from 0 on, and none of {special}, added here")
