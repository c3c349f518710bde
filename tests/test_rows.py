"""Rows: each epoch reads the text once, in another order and cut elsewhere; a stream goes on where it was."""

import json

import pytest
import small_runs as small
import torch
from lmcourse.rows import Columns, Rows, Sentences, Stream, joined
from lmcourse.training import Settings, fit

IDS = torch.arange(103)


def encode(text):
    return [ord(letter) for letter in text]


def test_texts_are_joined_each_with_its_separator():
    assert joined(["ab", "", "c"], encode, 0).tolist() == [97, 98, 0, 0, 99, 0]
    assert joined(["a"], encode, 0).dtype == torch.int64


@pytest.mark.parametrize("N, length", [(103, 10), (100, 10), (20, 10), (29, 10), (12, 5), (7, 1)])
def test_an_epoch_reads_every_row_once(N, length):
    rows = Rows(torch.arange(N), length, seed=3)
    assert rows.epoch == N // length - 1
    for epoch in range(6):
        read = rows(epoch * rows.epoch, rows.epoch)
        assert read.shape == (rows.epoch, length)
        starts = read[:, 0].sort().values
        assert (read == read[:, :1] + torch.arange(length)).all()  # each is a stretch of the text
        assert (starts.diff() == length).all() and starts[0] < length  # neighbours touch: nothing is read twice
        assert int(read.max()) < N


def test_each_epoch_has_another_order_and_another_cut():
    rows = Rows(torch.arange(1003), 10)
    epochs = [rows(epoch * rows.epoch, rows.epoch)[:, 0] for epoch in range(20)]
    cuts = {int(starts.min()) for starts in epochs}
    assert len(cuts) > 5 and max(cuts) == 9
    orders = {tuple((starts - starts.min()).tolist()) for starts in epochs}
    assert len(orders) == 20


def test_rows_depend_on_text_length_and_seed_only_and_start_anywhere():
    rows = Rows(IDS, 10, seed=1)
    whole = rows(0, 60)
    for first, count in ((0, 1), (8, 3), (59, 1), (5, 40)):  # in any order, and over the ends of epochs
        assert Rows(IDS, 10, seed=1)(first, count).equal(whole[first : first + count])
        assert rows(first, count).equal(whole[first : first + count])
    assert not Rows(IDS, 10, seed=2)(0, 60).equal(whole)


def test_rows_are_copies():
    rows = Rows(IDS.clone(), 10)
    rows(0, 2).zero_()
    assert rows.ids.equal(IDS)


# ------------------------------------------------------------------------------------------ columns, sentences


def test_columns_go_on_where_those_before_ended_and_read_the_whole_text():
    columns = Columns(torch.arange(103), length=5, batch=3)  # three parts of 34 ids
    assert columns.epoch == 6
    for i in range(6):
        rows = columns(i * 3, 3)
        assert rows.shape == (3, 6) and rows[:, 0].tolist() == [i * 5, 34 + i * 5, 68 + i * 5]
        assert (rows.diff() == 1).all()
        assert columns((6 + i) * 3, 3).equal(rows)  # the next epoch
    for i in range(5):
        assert columns(i * 3, 3)[:, -1].equal(columns(i * 3 + 3, 3)[:, 0])


def words(count, seed=0):
    lengths = torch.randint(1, 30, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
    return [[f"{i}-{j}" for j in range(length)] for i, length in enumerate(lengths)]


def test_an_epoch_reads_every_sentence_once_and_in_another_order():
    given = words(1000)
    sentences = Sentences(given, longest=12, seed=1)
    cut = [s[i : i + 12] for s in given for i in range(0, len(s), 12)]
    epochs = []
    for epoch in range(2):
        count = len(cut) // 4
        read = [s for i in range(count) for s in sentences((epoch * count + i) * 4, 4)]
        assert len(read) == count * 4 and len({tuple(s) for s in read}) == count * 4
        assert {tuple(s) for s in read} <= {tuple(s) for s in cut}
        epochs.append(read)
    assert epochs[0] != epochs[1]
    assert Sentences(given, longest=12, seed=1)(40, 4) == sentences(40, 4) != Sentences(given, 12, seed=2)(40, 4)
    spread = [max(map(len, batch)) - min(map(len, batch)) for i in range(200) if (batch := sentences(i * 4, 4))]
    assert sum(spread) / 200 < 1  # of about the same length: there is little padding


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: joined([], encode, 0), "texts: got none, expected one or more"),
        (lambda: joined("text", encode, 0), "texts: got str, expected"),
        (lambda: Rows(IDS, 0), "length: got 0, expected a whole number from 1 on"),
        (lambda: Rows(IDS.float(), 5), "ids: got torch.float32 .*, expected int64"),
        (lambda: Rows(IDS.view(1, -1), 5), "ids: got .*, expected"),
        (lambda: Rows(IDS, 52), "ids: got 103, expected two rows of 52 or more; give more text"),
        (lambda: Rows(IDS, 5)(0, 0), "count: got 0, expected"),
        (lambda: Rows(IDS, 5)(-1, 2), "first: got -1, expected a whole number from 0 on"),
        (lambda: Columns(IDS, 5, 20), "ids: got 103, expected 120 or more"),
        (lambda: Columns(IDS, 0, 2), "length: got 0"),
        (lambda: Columns(IDS, 5, 3)(0, 2), "count: got 2, expected 3, the parts of the text"),
        (lambda: Sentences([["a"]] * 3, 5)(0, 4), "count: got 4, expected at most 3, the sentences that there are"),
        (lambda: Sentences([["a"]], 0), "longest: got 0"),
        (lambda: Stream(["a"], "text", 5, encode, 0), "dataset: got list, without state_dict; use load_dataset"),
        (lambda: Stream(Texts("abc"), "text", 0, encode, 0), "length: got 0"),
        (lambda: Stream(Texts(), "text", 2, encode, 0)(0, 1), "dataset: it has no texts; give another one"),
        (lambda: Stream(Texts("ab"), "body", 2, encode, 0)(0, 1), "column: got 'body', expected one of text"),
        (lambda: Stream(Texts("ab"), "text", 2, encode, 0)(3, 1), "first: got 3, expected 0: a stream is read"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


# ------------------------------------------------------------------------------------------ streams


class Texts:
    """A stand-in for a dataset: as there, it begins where it was told to last, until it is told otherwise."""

    def __init__(self, *texts):
        self.texts, self.start, self.place = texts, 0, 0

    def __iter__(self):
        self.place = self.start
        while self.place < len(self.texts):
            self.place += 1
            yield {"text": self.texts[self.place - 1]}

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.start = self.place = state["place"]


TEXTS = ("first", "", "second text", "3", "the fourth text is the longest of them", "x")


def stream(texts=TEXTS):
    return Stream(Texts(*texts), "text", 4, encode, 0)


def flat(texts, times):
    return torch.tensor([i for _ in range(times) for text in texts for i in (*encode(text), 0)])


def test_a_stream_reads_all_texts_in_order_and_then_anew():
    ids = flat(TEXTS, 3)
    read = stream()
    for first in range(0, 30, 3):
        assert read(first, 3).flatten().equal(ids[first * 4 : (first + 3) * 4])


@pytest.mark.parametrize("after", range(0, 30, 3))
def test_a_stream_goes_on_where_it_was_also_into_the_next_round(after):
    ids, read = flat(TEXTS, 4), stream()
    if after:
        read(0, after)
    carried = {name: x.clone() for name, x in read.carried().items()}
    other = stream()
    other.carry(carried)
    for first in range(after, after + 18, 3):  # beyond the end of the texts
        assert other(first, 3).flatten().equal(ids[first * 4 : (first + 3) * 4])
    assert read(after, 3).flatten().equal(ids[after * 4 : (after + 3) * 4])  # nor was the first one disturbed


def test_without_what_was_left_of_a_text_it_would_go_on_elsewhere():
    read = stream()
    read(0, 3)
    other = stream()
    other.carry(read.carried() | {"left": torch.tensor([], dtype=torch.int64)})
    assert not other(3, 3).flatten().equal(flat(TEXTS, 1)[12:24])


class Source:
    """Batches for GPT from a stream, which a run carries along."""

    def __init__(self, read):
        self.read = read

    def __call__(self, step, generator):
        return small.objective("GPT", self.read(step * 2, 2) % 50 + small.FIRST, generator)

    def carried(self):
        return self.read.carried()

    def carry(self, tensors):
        self.read.carry(tensors)


def goes_on(folder, make):
    settings = Settings(steps=9, log=1, save=2)
    whole = fit(small.small("GPT"), Source(make()), settings, device=small.CPU)
    for step in (3, 7):
        with pytest.raises(KeyboardInterrupt):
            progress = small.stopped_at(step, settings)
            fit(small.small("GPT"), Source(make()), settings, folder=folder, device=small.CPU, progress=progress)
    again = fit(small.small("GPT"), Source(make()), settings, folder=folder, device=small.CPU)
    return again == whole and len({entry["loss"] for entry in whole}) == 9


def long(texts):
    return Stream(texts, "text", 12, encode, 0)


def test_a_run_over_a_stream_goes_on_exactly(tmp_path):
    assert goes_on(tmp_path, lambda: long(Texts(*TEXTS)))


def test_a_dataset_of_hugging_face_goes_on_exactly(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets = pytest.importorskip("datasets", reason="the extra 'stream' is not installed")
    for name, texts in (("a", TEXTS[:4]), ("b", TEXTS[4:])):
        lines = [json.dumps({"text": text, "number": 1}) + "\n" for text in texts]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))

    def make(**options):
        files = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
        return datasets.load_dataset("json", data_files=files, streaming=True, **options)

    ids, read = flat(TEXTS, 5), Stream(make(split="train"), "text", 4, encode, 0)
    for first in range(0, 36, 3):
        other = Stream(make(split="train"), "text", 4, encode, 0)
        other.carry(read.carried())
        for i in range(first, first + 24, 3):  # beyond the end of the texts
            assert other(i, 3).flatten().equal(ids[i * 4 : (i + 3) * 4])
        assert read(first, 3).flatten().equal(ids[first * 4 : (first + 3) * 4])
    assert goes_on(tmp_path / "run", lambda: long(make(split="train")))
    with pytest.raises(TypeError, match="dataset: got IterableDatasetDict, without state_dict; use load_dataset"):
        Stream(make(), "text", 4, encode, 0)
