"""The course's tokenizer and checkpoints: as the recipes make them, as good on held-out text as their record says."""

import json
from pathlib import Path

import pytest
import report
from lmcourse import course, data, heldout
from lmcourse.bert import BERT
from lmcourse.bpe import ByteBPE
from lmcourse.configuration import differences

BETTER = {"gpt": data.CORPORA, "bert": data.CORPORA, "awdlstm": ["novels"], "elmo": ["novels"]}  # than the n-gram model, on these test documents
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


def test_gpt_and_bert_differ_in_mask_and_objective_only():
    gpt, bert = course.load("gpt"), course.load("bert")
    assert type(bert) is BERT and not differences(gpt.config, bert.config)
    shapes = [{name: p.shape for name, p in model.named_parameters()} for model in (gpt, bert)]
    assert shapes[0] == shapes[1]
    budgets = [{key: RECORD[name][key] for key in ("recipe", "steps", "tokens")} for name in ("gpt", "bert")]
    assert budgets[0] == budgets[1]


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
    assert looks == sorted(looks, reverse=True), "the loss on held-out text fell to the end"


def test_what_load_refuses():
    with pytest.raises(ValueError, match="name: got 'gpt5', expected one of gpt, bert, elmo"):
        course.load("gpt5")
