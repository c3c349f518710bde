"""Which text a configuration asks for, how it is cut into rows or sentences, and which of it is held out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from lmcourse import arguments, course
from lmcourse.objectives import check_rate
from lmcourse.rows import Columns, Rows, Sentences, Stream


@dataclass(frozen=True)
class Data:
    """The table [data] of a configuration: whose text, and how much of it a step reads."""

    corpora: Sequence[str] = ("novels", "addresses")
    length: int = 255  # of a row: ids, [CLS] not counted; of a sentence: words
    batch: int = 16  # rows of a step
    rate: float = 0.15  # of the tokens that BERT and T5 have to foresee; GPT foresees all
    held_out: int = 4  # batches of validation documents, spread evenly; of a dataset, none
    dataset: dict = field(default_factory=dict)  # instead of corpora: what datasets.load_dataset takes, and column
    shorter: Sequence[Sequence[int]] = ()  # [[1000, 15], [3000, 63]]: rows of 15 in the first 1,000 steps, then of 63

    def __post_init__(self):
        for name in ("length", "batch", "held_out"):
            arguments.whole(name, getattr(self, name))
        check_rate(self.rate)
        listed = isinstance(self.corpora, list | tuple) and self.corpora
        if not listed or not all(corpus in course.CORPORA for corpus in self.corpora):
            raise ValueError(f"corpora: got {self.corpora!r}, expected a list of some of {', '.join(course.CORPORA)}")
        if not isinstance(self.dataset, dict):
            raise ValueError(f"dataset: got {self.dataset!r}, expected a table, such as [data.dataset] path = \"json\"")
        if not _rises(self.shorter, self.length):
            told = f"pairs of a step and a length, both rising, lengths below {self.length}: [[1000, 15], [3000, 63]]"
            raise ValueError(f"shorter: got {self.shorter!r}, expected {told}")


def _rises(pairs, length: int) -> bool:
    """Whether ``pairs`` are [[step, length], …], both rising from 1 on, and stay below ``length``."""
    if not isinstance(pairs, list | tuple) or not all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs):
        return False
    for numbers, end in zip(zip(*pairs), (float("inf"), length)):
        whole = all(isinstance(n, int) and not isinstance(n, bool) for n in numbers)
        if not whole or not all(a < b for a, b in zip((0, *numbers), (*numbers, end))):
            return False
    return True


def source(cut: str, table: Data, start: int) -> Callable:
    """The text, cut into "rows", "columns" or "sentences" in an order that begins from the seed ``start``."""
    if cut == "sentences":
        return Sentences(course.sentences("train", table.corpora), table.length, start)
    if not table.dataset:
        ids = course.ids("train", table.corpora)
        return Columns(ids, table.length, table.batch) if cut == "columns" else Rows(ids, table.length, start)
    if cut != "rows":
        raise ValueError("[data] dataset: got one, expected corpora: only GPT, BERT and T5 read a stream")
    try:
        from datasets import load_dataset
    except ImportError:
        raise ValueError("[data] dataset: it is read by a library that is missing; pip install datasets") from None
    options = dict(table.dataset)
    column = options.pop("column", "text")
    stream = load_dataset(**options, streaming=True)
    return Stream(stream, column, table.length, course.tokenizer().encode, course.SEP)


def shorter(cut: str, table: Data, start: int) -> list[tuple[int, Callable, int]]:
    """The short rows of the first steps, so many in a step that it reads about as much text as later ones."""
    if table.shorter and (cut != "rows" or table.dataset):
        raise ValueError(f"[data] shorter: got {table.shorter!r}, expected none: only rows of corpora can grow")
    rows = ((until, replace(table, length=length, shorter=())) for until, length in table.shorter)
    return [(until, source(cut, t, start), table.batch * ((table.length + 1) // (t.length + 1))) for until, t in rows]


def held_out(cut: str, table: Data) -> list:
    """``table.held_out`` batches of rows or sentences, from places spread evenly over the validation documents."""
    count = table.held_out * table.batch
    if cut == "sentences":
        found = course.sentences("validation", table.corpora)
        places = torch.linspace(0, len(found) - 1, min(count, len(found))).long().tolist()
        chosen = sorted((found[i][: table.length] for i in places), key=len)
        parts = [chosen[i : i + table.batch] for i in range(0, len(chosen), table.batch)]
    else:
        ids = course.ids("validation", table.corpora)
        if cut == "columns":
            columns = Columns(ids, table.length, table.batch)
            parts = [columns(i * table.batch, table.batch) for i in range(min(table.held_out, columns.epoch))]
        else:
            starts = torch.linspace(0, len(ids) - table.length, count).long()
            parts = ids[starts[:, None] + torch.arange(table.length)].split(table.batch)
    return list(parts)
