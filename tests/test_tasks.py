"""From a configuration file: three objectives on the same rows, and what a wrong file is told."""

import sys
from pathlib import Path

import pytest
import report
import torch
from lmcourse import batches, course, tasks
from lmcourse.corruption import restore
from lmcourse.gpt import GPT
from lmcourse.optimisation import Settings
from lmcourse.rows import Rows, Stream, joined
from lmcourse.vocabulary import Vocabulary

ROOT = Path(__file__).resolve().parent.parent
CONFIG = """model = "GPT"
[config]
positions = 32
layers = 1
width = 16
heads = 2
[data]
length = 31
batch = 2
held_out = 3
[training]
steps = 3
betas = [0.9, 0.99]
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    train = ["We the people of the United States. " * 30, "A second text. " * 30]
    texts = {"train": train, "validation": ["Held " * 99]}
    words = {split: [text.lower().split()[:9] for text in texts[split] for _ in range(40)] for split in texts}
    encode = course.tokenizer().encode
    monkeypatch.setattr(course, "ids", lambda split, corpora: joined(texts[split], encode, course.SEP))
    monkeypatch.setattr(course, "sentences", lambda split, corpora: words[split])
    monkeypatch.setattr(course, "words", lambda: Vocabulary.from_sentences(words["train"]))
    path = tmp_path / "small.toml"
    path.write_text(CONFIG)
    return path


def generator():
    return torch.Generator().manual_seed(0)


def rows_of(task, step=0):
    return task.draw.source(step * 2, 2)


def test_a_task_is_what_the_file_says(config):
    task = tasks.read(config)
    assert type(task.model) is GPT and (task.model.config.width, task.model.config.vocabulary) == (16, course.SIZE)
    assert task.training == Settings(steps=3, betas=(0.9, 0.99)) and task.spread == "ddp" and not task.cpu_bf16
    assert str(task) == f"GPT, {sum(p.numel() for p in task.model.parameters()):,} parameters"
    assert isinstance(task.draw.source, Rows) and task.draw.carried() == {}
    assert [len(batch[0]) for batch in task.held_out] == [2, 2, 2] and not task.carries


def test_the_three_models_read_the_same_rows_and_differ_in_the_objective(config):
    gpt, bert, t5 = (tasks.read(config, [f"model={kind}"]) for kind in ("GPT", "BERT", "T5"))
    for step in (0, 1, 7):
        rows = torch.nn.functional.pad(rows_of(gpt, step), (1, 0), value=course.CLS)
        inputs, targets, weights = gpt.draw(step, generator())
        assert inputs.equal(rows[:, :-1]) and targets.equal(rows[:, 1:]) and bool((weights == 1).all())
        inputs, targets, weights = bert.draw(step, generator())
        chosen = weights > 0
        assert targets[chosen].equal(rows[chosen]) and inputs[~chosen].equal(rows[~chosen])
        assert bool((inputs == course.MASK).any()) and not bool(chosen[rows < len(course.SPECIALS)].any())
        inputs, targets, weights = t5.draw(step, generator())
        for row, x, y in zip(rows, inputs, targets):
            assert restore(x, y, sentinels=batches.SENTINELS, end_id=course.END).equal(row)
        assert weights.equal((targets != course.PAD).float())
    for name, p in gpt.model.named_parameters():
        assert p.equal(dict(bert.model.named_parameters())[name])


def test_the_seed_draws_weights_and_rows(config):
    one, same, other = (tasks.read(config, [f"training.seed={seed}"]) for seed in (0, 0, 1))
    weight = "embedding.tokens.weight"
    assert one.model.state_dict()[weight].equal(same.model.state_dict()[weight])
    assert not one.model.state_dict()[weight].equal(other.model.state_dict()[weight])
    assert rows_of(one).equal(rows_of(same)) and not rows_of(one).equal(rows_of(other))


def test_held_out_rows_are_the_same_each_time_and_come_from_other_texts(config):
    one, other = (tasks.read(config, ["model=BERT", f"training.seed={seed}"]) for seed in (0, 1))
    for a, b in zip(one.held_out, other.held_out, strict=True):
        assert all(x.equal(y) for x, y in zip(a, b))
    text = course.tokenizer().decode(tasks.read(config).held_out[0][1][0].tolist())
    assert "Held" in text and "people" not in text


def test_changes_are_toml_or_words(config):
    task = tasks.read(config, ["model = BERT", "training.steps=7", "spread=fsdp", "cpu_bf16=true", "config.tied=false"])
    assert type(task.model).__name__ == "BERT" and task.training.steps == 7 and task.spread == "fsdp"
    assert task.cpu_bf16 and not task.model.config.tied
    assert tasks.read(config, ['data.corpora=["novels"]']).draw.about["data.corpora"] == ["novels"]


def test_rows_grow_step_by_step(config):
    task, plain = tasks.read(config, ["data.shorter=[[2, 3], [3, 14]]"]), tasks.read(config)
    shapes = [tuple(task.draw(step, generator())[0].shape) for step in range(4)]
    assert shapes == [(16, 3), (16, 3), (4, 14), (2, 31)], "about as much text in each step"
    assert task.draw(3, generator())[0].equal(plain.draw(3, generator())[0])
    assert not torch.equal(task.draw(0, generator())[0], task.draw(1, generator())[0])
    assert report.tokens(task) == 2 * 48 + 4 * 14 and report.tokens(plain) == 3 * 62
    assert task.draw.about != plain.draw.about, "a run does not go on with other rows"


def test_a_task_can_begin_from_the_courses_checkpoints(config):
    config.write_text((ROOT / "recipes" / "trio.toml").read_text())
    gpt, bert = course.load("gpt"), course.load("bert")
    task = tasks.read(config, ["start=gpt", "data.length=31"])
    assert same(task.model, gpt) and task.draw.about["start"] == "gpt"
    t5 = tasks.read(config, ["model=T5", "start=bert+gpt", "data.length=31"]).model
    assert same(t5.encoder, bert.stack) and same(gpt.stack, t5.decoder)
    tokens = torch.arange(40, 60)[None]
    with torch.inference_mode():
        assert torch.equal(t5.encode(tokens), bert.hidden(tokens)), "what BERT knows of a text, the encoder knows"
    table = t5.embedding.tokens.weight
    near = (table[batches.SENTINELS] - table[course.MASK]).norm(dim=1) / table[course.MASK].norm()
    assert 0 < near.min() and near.max() < 0.7 and len({tuple(row) for row in table[batches.SENTINELS].tolist()}) == 32


def same(ours, theirs) -> bool:
    """Whether all weights of ``ours`` are in ``theirs``."""
    found = theirs.state_dict()
    return all(found[name].equal(x) for name, x in ours.state_dict().items())


def test_what_a_draw_is_about_tells_texts_apart(config):
    changes = [], ["data.batch=4"], ["data.length=30"], ["model=T5"]
    about = [tasks.read(config, change).draw.about for change in changes]
    assert about[0] == about[3] != about[1] != about[2]


@pytest.mark.parametrize(
    "changes, message",
    [
        (["model=gpt"], "model: got 'gpt', expected one of GPT, BERT, T5, AWDLSTM, ELMo"),
        (["model=[1]"], r"model: got \[1\], expected one of GPT"),
        (["spread=wide"], "spread: got 'wide', expected one of ddp, fsdp"),
        (["spread=[1]"], r"spread: got \[1\], expected one of ddp, fsdp"),
        (["modle=GPT"], "entries: got modle, expected only model, start, spread"),
        (["cpu_bf16=1"], "cpu_bf16: got 1, expected true or false"),
        (["start=gpt5"], "start: got 'gpt5', expected gpt$"),
        (["start=gpt"], r"start: the course's gpt has another \[config\]"),
        (["model=T5", "start=bert"], "start: got 'bert', expected t5, or bert\\+gpt"),
        (["model=T5", "start=bert+gpt"], "bert: got another configuration, in positions, layers"),
        (["config=3"], r"config: got 3, expected a table, \[config\]"),
        (["config.depth=3"], r"\[config\]: got depth, expected only vocabulary, positions"),
        (["config.heads=3"], r"\[config\] heads: got 3, expected a divisor of width 16"),
        (["config.vocabulary=100"], r"\[config\] and \[data\] do not fit each other: tokens: got ids .* 0 to 99"),
        (['config.position="learned"', "data.length=64"], r"\[config\] and \[data\] do not .*: tokens: got 64 in a row, expected at most 32"),
        (["data.length=0"], r"\[data\] length: got 0, expected a whole number from 1 on"),
        (["data.batch=2.5"], r"\[data\] batch: got 2.5"),
        (["data.rate=1"], r"\[data\] rate: got 1, expected a share between 0 and 1"),
        (["model=AWDLSTM", "data.dataset.path=json"], r"\[config\]: got heads"),
        (["data.held_out=x"], r"\[data\] held_out: got 'x'"),
        (["data.corpora=novels"], r"\[data\] corpora: got 'novels', expected a list of some of novels, addresses"),
        (['data.corpora=["plays"]'], r"\[data\] corpora: got \['plays'\], expected a list of some of"),
        (['data.corpora=[["novels"]]'], r"\[data\] corpora: got \[\['novels'\]\], expected a list of some of"),
        (["data.dataset=json"], r"\[data\] dataset: got 'json', expected a table"),
        (["data.shorter=[[5, 7], [5, 15]]"], r"\[data\] shorter: got \[\[5, 7\], \[5, 15\]\], expected pairs of a step and a"),
        (["data.shorter=[[5, 31]]"], r"\[data\] shorter: got \[\[5, 31\]\], .* lengths below 31"),
        (["data.shorter=[[5]]"], r"\[data\] shorter: got"),
        (["data.shorter=[[0, 7]]"], r"\[data\] shorter: got"),
        (["data.shorter=[[1.5, 7]]"], r"\[data\] shorter: got"),
        (["data.shorter=5"], r"\[data\] shorter: got 5"),
        (["data.shorter=[[5, 7]]", "data.dataset.path=json"], r"\[data\] shorter: got .* only rows of corpora can grow"),
        (["training.rate=-1"], r"\[training\] rate: got -1, expected a number above 0"),
        (["training.seed=x"], r"\[training\] seed: got 'x'"),
        (["training.epochs=1"], r"\[training\]: got epochs, expected only steps, parts"),
        (["training=1"], "training: got 1, expected a table"),
    ],
)
def test_a_wrong_entry_is_refused_with_the_file_that_has_it(config, changes, message):
    with pytest.raises(ValueError, match=f"small.toml: {message}"):
        tasks.read(config, changes)


def test_steps_have_no_default(config):
    config.write_text('model = "GPT"\n')
    with pytest.raises(ValueError, match=r"small.toml: \[training\] .*missing.*'steps'"):
        tasks.read(config)


@pytest.mark.parametrize("change, message", [("model", "expected name=value"), ("model.x=3", "but model is no table")])
def test_a_change_that_cannot_be_is_refused(config, change, message):
    with pytest.raises(ValueError, match=f"change: got '{change}', {message}"):
        tasks.read(config, [change])


@pytest.mark.parametrize("content", [b"model = GPT", b"\xff", b"model = 'GPT'\nmodel = 'T5'"])
def test_what_is_not_toml_is_refused(content, tmp_path):
    (tmp_path / "wrong.toml").write_bytes(content)
    with pytest.raises(ValueError, match="wrong.toml: not TOML"):
        tasks.read(tmp_path / "wrong.toml")


def test_a_missing_file_is_named():
    with pytest.raises(FileNotFoundError, match="nothing.toml: no such file; recipes/trio.toml is one"):
        tasks.read("nothing.toml")


def test_a_dataset_is_read_as_a_stream(config, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    pytest.importorskip("datasets", reason="the extra 'stream' is not installed")
    (tmp_path / "texts.jsonl").write_text('{"body": "We the people"}\n{"body": "of the"}\n')
    path = (tmp_path / "texts.jsonl").as_posix()
    dataset = f'{{path = "json", data_files = "{path}", split = "train", column = "body"}}'
    task = tasks.read(config, [f"data.dataset={dataset}"])
    assert isinstance(task.draw.source, Stream) and task.held_out == []
    inputs, _, _ = task.draw(0, generator())
    text = course.tokenizer().decode([i for i in inputs[0, 1:].tolist() if i >= len(course.SPECIALS)])
    assert text.startswith("We the peopleof theWe the people")
    other = tasks.read(config, [f"data.dataset={dataset}"])
    other.draw.carry(task.draw.carried())
    assert all(a.equal(b) for a, b in zip(task.draw(1, generator()), other.draw(1, generator())))


def test_without_the_library_it_says_what_to_install(config, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match="small.toml: .*pip install datasets"):
        tasks.read(config, ["data.dataset.path=json"])


def test_the_courses_recipe_is_a_configuration(monkeypatch):
    monkeypatch.setattr(course, "ids", lambda split, corpora: 40 + torch.arange(9000) % 2000)
    gpt = tasks.read(ROOT / "recipes" / "trio.toml", ["data.held_out=1"])
    assert (gpt.draw.batch, gpt.draw.source.length) == (16, 255)


def test_awd_lstm_reads_on_and_elmo_reads_sentences(config):
    config.write_text('[config]\nwidth = 8\n[data]\nlength = 7\nbatch = 2\nheld_out = 2\n[training]\nsteps = 3\n')
    task = tasks.read(config, ["model=AWDLSTM", "config.hidden=8"])
    assert task.carries and type(task.model).__name__ == "AWDLSTM"
    (first, targets, weights), (second, *_) = task.draw(0, generator()), task.draw(1, generator())
    assert first.shape == targets.shape == (2, 7) and targets[:, -1:].equal(second[:, :1]) and bool(weights.all())
    with pytest.raises(ValueError, match="dataset: got one, expected corpora: only GPT, BERT and T5 read a stream"):
        tasks.read(config, ["model=AWDLSTM", "data.dataset.path=json"])
    task = tasks.read(config, ["model=ELMo", "config.units=12"])
    inputs, targets, weights = task.draw(0, generator())
    assert inputs.shape[:2] == targets.shape == weights.shape and len(inputs) == 2 and not task.carries
    assert len(task.held_out) == 2 and float(task.model.loss(inputs, targets, weights).detach()) > 0


def test_held_out_sentences_come_from_all_places_and_have_all_lengths(config, monkeypatch):
    found = [["the"] * (1 + i % 9) + [str(i)] for i in range(119)]  # two of each three are too many for 4 · 15
    monkeypatch.setattr(course, "sentences", lambda split, corpora: found)
    config.write_text('[config]\nwidth = 8\nunits = 12\n[data]\nbatch = 15\nheld_out = 4\n[training]\nsteps = 3\n')
    lengths = [int(n) - 3 for batch in tasks.read(config, ["model=ELMo"]).held_out for n in batch[2].sum(1)]
    assert len(lengths) == 60 and sorted(lengths) == lengths and max(lengths) == 9
    assert sum(lengths) / 60 == pytest.approx(5, abs=0.2)
    monkeypatch.setattr(course, "sentences", lambda split, corpora: found[:20])
    assert [len(batch[0]) for batch in tasks.read(config, ["model=ELMo"]).held_out] == [15, 5]
