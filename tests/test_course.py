"""The course's tokenizer and checkpoints: as the recipes make them, as good on held-out text as their record says."""

import json
from pathlib import Path

import pytest
import report
import torch
from lmcourse import batches, course, data, heldout
from lmcourse.bert import BERT
from lmcourse.bpe import ByteBPE
from lmcourse.configuration import differences
from lmcourse.gpt import GPT
from lmcourse.t5 import T5

BETTER = {"gpt": data.CORPORA, "bert": data.CORPORA, "t5": data.CORPORA, "awdlstm": ["novels"], "elmo": ["novels"]}  # than the n-gram model, on these test documents
ROOT = Path(__file__).resolve().parent.parent
RECORD = json.loads((ROOT / "recipes" / "checkpoints.json").read_text(encoding="utf-8"))


def test_the_tokenizer_comes_out_again():
    texts = [document.text for corpus in data.CORPORA for document in data.documents(corpus, "train")]
    again, kept = ByteBPE.train(texts, course.SIZE, course.SPECIALS), course.tokenizer()
    assert again == kept and len(kept) == course.SIZE


def test_marks_stand_where_the_constants_say():
    names = course.tokenizer().vocabulary
    assert [names[i] for i in (course.PAD, course.END, course.CLS, course.SEP, course.MASK)] == [
        "[PAD]", "[END]", "[CLS]", "[SEP]", "[MASK]",
    ]  # fmt: skip
    assert names[course.FIRST_SENTINEL] == "[X0]" and names[course.FIRST_SENTINEL - course.SENTINELS + 1] == "[X31]"
    assert not set(course.tokenizer().encode("[CLS] a [MASK]")) & set(range(len(course.SPECIALS))), "text gives no mark"


def test_all_checkpoints_are_there_and_small():
    assert set(RECORD) == set(course.MODELS)
    assert sum(entry["bytes"] for entry in RECORD.values()) <= 24e6
    for name, corpora in BETTER.items():
        assert all(RECORD[name]["held_out"][c]["bits"] < RECORD[name]["held_out"][c]["baseline"] for c in corpora)
    for name, entry in RECORD.items():
        assert (data.ASSETS / f"{name}.safetensors").stat().st_size == entry["bytes"]
        assert sum(p.numel() for p in course.load(name).parameters()) == entry["parameters"]


def test_the_trio_differs_in_mask_objective_and_cross_attention_only():
    gpt, bert, t5 = (course.load(name) for name in ("gpt", "bert", "t5"))
    assert (type(gpt), type(bert), type(t5)) == (GPT, BERT, T5)
    assert not differences(gpt.config, bert.config) and not differences(gpt.config, t5.config)
    shapes = [{name: p.shape for name, p in model.named_parameters()} for model in (gpt, bert, t5)]
    assert shapes[0] == shapes[1]
    shared = {name: shape for name, shape in shapes[2].items() if "cross_attention" not in name}
    one = {name.replace("stack.", f"{stack}."): x for stack in ("encoder", "decoder") for name, x in shapes[0].items()}
    assert shared == one, "two of GPT's stacks, one embedding"
    budgets = [{key: RECORD[name][key] for key in ("recipe", "steps")} for name in ("gpt", "bert", "t5")]
    assert budgets[0] == budgets[1] == budgets[2]
    tokens = [RECORD[name]["tokens"] for name in ("gpt", "bert", "t5")]
    assert tokens[0] == tokens[1] and 0.97 < tokens[2] / tokens[0] < 1, "T5's short rows hold a little less"


def test_t5s_decoder_looks_at_its_encoder():
    """With another text's encoder states a dropped piece costs more: what its first training never reached."""
    t5, ids = course.load("t5"), course.ids("validation")
    rows = ids[: 16 * 255].view(16, 255)
    inputs, targets, weights = batches.spans(rows, torch.Generator().manual_seed(0))
    with torch.inference_mode():
        own, another = (float(t5.loss(x, targets, weights)) for x in (inputs, inputs.roll(1, 0)))
    assert another > own + 0.5


@pytest.mark.parametrize("name", course.MODELS)
def test_a_checkpoint_is_as_good_as_its_record_says(name):
    """On the beginning of one document of each corpus, the first 20,000 characters; on all of them once, in the report."""
    model = course.load(name)
    assert not model.training
    for corpus, entry in RECORD[name]["held_out"].items():
        found = heldout.measure(model, None, report.short(corpus))
        assert found.bits == pytest.approx(entry["short"], rel=1e-4)


@pytest.mark.parametrize("name", course.MODELS)
def test_the_log_of_a_recipe_is_whole(name):
    lines = [json.loads(line) for line in (ROOT / "recipes" / "logs" / f"{name}.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines]
    assert steps == sorted(set(steps)) and steps[-1] == RECORD[name]["steps"]
    looks = [line["held_out"] for line in lines if "held_out" in line]
    assert looks[-1] == min(looks), "the run ended while its loss on held-out text still fell"


def test_what_load_refuses():
    with pytest.raises(ValueError, match="name: got 'gpt5', expected one of gpt, bert, t5, elmo"):
        course.load("gpt5")
