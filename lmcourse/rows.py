"""Text as rows of ids, from the course's documents or from a stream that is too long for memory."""

import functools
import json
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from lmcourse import arguments
from lmcourse.device import seed_from


def joined(texts: Iterable[str], encode: Callable[[str], list[int]], separator: int) -> Tensor:
    """The ids of all texts one after the other, each followed by ``separator``: (N,) int64."""
    arguments.listed("texts", texts, "texts in a list; use [text] for one")
    ids = [i for text in texts for i in (*encode(text), separator)]
    if not ids:
        raise ValueError("texts: got none, expected one or more")
    return torch.tensor(ids)


class Rows:
    """A text that is read again and again in rows of ``length`` ids, each epoch in another order and cut elsewhere.

    ``rows(first, count)``: the rows ``first``, ``first`` + 1, … of all that are ever read, (count, length). It depends
    on ``ids``, ``length`` and ``seed`` only, so that whoever goes on at some row sees what would have come.
    """

    def __init__(self, ids: Tensor, length: int, seed: int = 0):
        arguments.whole("length", length)
        if not isinstance(ids, Tensor) or ids.ndim != 1 or ids.dtype != torch.int64:
            raise TypeError(f"ids: got {arguments.came(ids)}, expected int64 ids (N,); use rows.joined(…)")
        if len(ids) < 2 * length:
            raise ValueError(f"ids: got {len(ids)}, expected two rows of {length} or more; give more text")
        self.ids, self.length, self.seed = ids, length, seed
        self.epoch = len(ids) // length - 1  # rows; what the shift leaves over is not read in this epoch
        self._places = functools.lru_cache(2)(self._drawn)

    def _drawn(self, epoch: int) -> Tensor:
        """(rows of an epoch,): where each begins."""
        generator = torch.Generator().manual_seed(seed_from(self.seed, epoch))
        shift = int(torch.randint(self.length, (), generator=generator))
        return shift + self.length * torch.randperm(self.epoch, generator=generator)

    def __call__(self, first: int, count: int) -> Tensor:
        arguments.whole("count", count)
        if not isinstance(first, int) or first < 0:
            raise ValueError(f"first: got {first!r}, expected a whole number from 0 on; rows are counted from 0")
        starts = [self._places(r // self.epoch)[r % self.epoch] for r in range(first, first + count)]
        return self.ids[torch.stack(starts)[:, None] + torch.arange(self.length)]


class Columns:
    """A text in ``batch`` parts side by side, each read from beginning to end, then again, ``length`` + 1 ids at once.

    Row b of a batch begins with the last id of row b of the batch before, but where the text begins anew: a recurrent
    model goes on with its states.
    """

    def __init__(self, ids: Tensor, length: int, batch: int):
        arguments.whole("length", length), arguments.whole("batch", batch)
        if len(ids) < batch * (length + 1):
            raise ValueError(f"ids: got {len(ids)}, expected {batch * (length + 1)} or more: batch rows of length + 1")
        self.length, self.parts = length, ids[: len(ids) // batch * batch].view(batch, -1)
        self.epoch = (self.parts.shape[1] - 1) // length  # batches

    def __call__(self, first: int, count: int) -> Tensor:
        if count != len(self.parts):
            raise ValueError(f"count: got {count}, expected {len(self.parts)}, the parts of the text")
        start = first // count % self.epoch * self.length
        return self.parts[:, start : start + self.length + 1]


class Sentences:
    """Sentences of words, each epoch in another order, those of one batch of about the same length.

    What is longer than ``longest`` words is cut. ``sentences(first, count)``: as those of :class:`Rows`, where all
    calls ask for the same ``count``.
    """

    POOL = 64  # batches, in which sentences are sorted by length

    def __init__(self, sentences: list[list[str]], longest: int, seed: int = 0):
        arguments.whole("longest", longest)
        self.sentences = [s[i : i + longest] for s in sentences for i in range(0, len(s), longest)]
        self.seed, self._batches = seed, functools.lru_cache(2)(self._drawn)

    def _drawn(self, epoch: int, count: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed_from(self.seed, epoch))
        order = torch.randperm(len(self.sentences), generator=generator).tolist()
        pools = [order[i : i + count * self.POOL] for i in range(0, len(order), count * self.POOL)]
        order = [i for pool in pools for i in sorted(pool, key=lambda i: len(self.sentences[i]))]
        batches = [order[i : i + count] for i in range(0, len(order) // count * count, count)]
        return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]

    def __call__(self, first: int, count: int) -> list[list[str]]:
        arguments.whole("count", count)
        if count > len(self.sentences):
            most = len(self.sentences)
            raise ValueError(f"count: got {count}, expected at most {most}, the sentences that there are")
        epoch, batch = divmod(first // count, len(self.sentences) // count)
        return [self.sentences[i] for i in self._batches(epoch, count)[batch]]


class Stream:
    """Texts that come one by one, in rows of ``length`` ids: each row is read once, in the order of the texts.

    ``dataset``: of the library ``datasets``, read with ``streaming=True``, or anything that can be gone through and has
    its ``state_dict()``, of what JSON has, and ``load_state_dict(…)``. ``column``: the name of the text. When the texts
    end they begin anew. What was read so far is part of a run's saved state. Shuffle a dataset before it is written:
    the library's ``shuffle`` of a stream forgets its buffer there.
    """

    def __init__(self, dataset, column: str, length: int, encode: Callable[[str], list[int]], separator: int):
        arguments.whole("length", length)
        for method in ("state_dict", "load_state_dict", "__iter__"):
            if not hasattr(dataset, method):
                cure = 'use load_dataset(…, split="train", streaming=True)'
                raise TypeError(f"dataset: got {arguments.came(dataset)}, without {method}; {cure}")
        self.dataset, self.column, self.length = dataset, column, length
        self.encode, self.separator = encode, separator
        self.beginning = json.dumps(dataset.state_dict())
        self.texts, self.left, self.read = iter(dataset), [], 0

    def __call__(self, first: int, count: int) -> Tensor:
        arguments.whole("count", count)
        if first != self.read:
            raise ValueError(f"first: got {first}, expected {self.read}: a stream is read in order; make a new one")
        while len(self.left) < count * self.length:
            self.left += [*self.encode(self._next()), self.separator]
        ids, self.left = self.left[: count * self.length], self.left[count * self.length :]
        self.read += count
        return torch.tensor(ids).view(count, self.length)

    def _next(self) -> str:
        for _ in range(2):
            for example in self.texts:
                if self.column not in example:
                    raise ValueError(f"column: got {self.column!r}, expected one of {', '.join(example)}")
                return example[self.column]
            self._go_to(self.beginning)  # a dataset would begin where it was told to last
        raise ValueError("dataset: it has no texts; give another one")

    def _go_to(self, state: str) -> None:
        self.dataset.load_state_dict(json.loads(state))
        self.texts = iter(self.dataset)

    def carried(self) -> dict[str, Tensor]:
        """What a run saves: how much was read, what is left of the last text, and where the dataset is."""
        state = json.dumps(self.dataset.state_dict()).encode()
        return {
            "read": torch.tensor([self.read]),
            "left": torch.tensor(self.left, dtype=torch.int64),
            "dataset": torch.tensor(list(state), dtype=torch.uint8),
        }

    def carry(self, tensors: dict[str, Tensor]) -> None:
        """Go on where :meth:`carried` was asked."""
        self.read, self.left = int(tensors["read"]), tensors["left"].tolist()
        self._go_to(bytes(tensors["dataset"].tolist()).decode())
