"""The two tasks, the classifiers that count, the three stages: what each promises, at a size that takes seconds."""

import copy
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lmcourse import course, data, passages, probes, transfer
from lmcourse.transfer import Recipe
from lmcourse.ulmfit import AWDClassifier, AWDConfig, AWDLSTM, layer_groups

ROOT = Path(__file__).resolve().parent.parent


def generator(n=0):
    return torch.Generator().manual_seed(n)


def small(seed=0):
    return AWDLSTM(AWDConfig(course.SIZE, width=8, hidden=12), generator(seed))


@pytest.fixture(scope="module")
def glosses():
    return passages.passages("glosses", "train", 40, generator())


# ------------------------------------------------------------------------------------------------- tasks


@pytest.mark.parametrize("task", passages.TASKS)
def test_passages_are_balanced_and_begin_alike(task):
    found = passages.passages(task, "validation", 40, generator())
    assert found.labels.bincount().tolist() == [10] * 4
    assert found.tokens.shape == found.mask.shape and found.tokens.shape[1] <= passages.LENGTH[task]
    assert bool((found.tokens[:, 0] == course.SEP).all()) and bool(found.mask[:, 0].all())
    assert bool((found.tokens[~found.mask] == course.PAD).all())
    assert not bool((found.mask[:, 1:] & ~found.mask[:, :-1]).any())  # padding on the right


def test_a_smaller_set_is_the_beginning_of_a_larger_one(glosses):
    fewer = passages.passages("glosses", "train", 12, generator())
    assert torch.equal(fewer.tokens, glosses[:12].tokens) and torch.equal(fewer.labels, glosses[:12].labels)


def test_splits_share_no_document():
    texts = [{text for _, text in passages._texts("glosses", split)} for split in passages.SPLITS]
    assert not texts[0] & texts[1] and not texts[0] & texts[2] and not texts[1] & texts[2]
    eras = [sum(d.year >= start for start in passages.ERAS) for d in data.documents("addresses", "test")]
    assert [label for label, _ in passages._texts("eras", "test")] == eras


@pytest.mark.parametrize("wrong", [dict(task="films"), dict(split="dev"), dict(count=30), dict(count=10**6)])
def test_a_wrong_request_is_told(wrong):
    options = dict(task="glosses", split="train", count=40, generator=generator()) | wrong
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: got"):
        passages.passages(**options)


# --------------------------------------------------------------------------------------------- baselines


def test_counts_are_of_what_is_there(glosses):
    one = glosses[:3]
    x = passages.counts(one)
    assert set(x.unique().tolist()) == {0.0, 1.0}
    for row, tokens, mask in zip(x, one.tokens, one.mask):
        assert set(row[: course.SIZE].nonzero()[:, 0].tolist()) == set(tokens[mask].tolist())
    padded = passages.Passages(*(torch.nn.functional.pad(t, (0, 5)) if t.ndim > 1 else t for t in vars(one).values()))
    assert torch.equal(passages.counts(padded), x)


def test_naive_bayes_by_hand():
    """Two texts, [SEP] a and [SEP] b; a new text with a belongs to the first."""
    rows = torch.tensor([[course.SEP, 100], [course.SEP, 200], [course.SEP, 100]])
    texts = passages.Passages(rows, torch.tensor([0, 1, 0]), torch.ones_like(rows, dtype=torch.bool))
    assert passages.naive_bayes(texts[:2], 2, [texts])[0].tolist() == [0, 1, 0]
    assert passages.logistic_regression(texts[:2], 2, [texts], 1e-3)[0].tolist() == [0, 1, 0]


def test_both_beat_chance(glosses):
    other = passages.passages("glosses", "validation", 200, generator(1))
    for found in (passages.naive_bayes(glosses, 4, [other]), passages.logistic_regression(glosses, 4, [other], 1e-2)):
        assert float((found[0] == other.labels).float().mean()) > 0.35


# ------------------------------------------------------------------------------------------------ stages


def test_the_second_stage_lowers_what_the_text_costs():
    model, ids = small(), passages.unlabelled("glosses")[:20_000]
    before = transfer.bits(model, ids[:4000])
    log = transfer.tune_language_model(model, ids, Recipe(20, 1e-2, factor=1.0, length=16), seed=0)
    assert transfer.bits(model, ids[:4000]) < before - 0.05
    assert log[-1]["loss"] < log[0]["loss"]


def test_gradual_unfreezing_leaves_frozen_layers_as_they_are(glosses):
    model = AWDClassifier(small(), 4, generator=generator(1))
    start = [[p.detach().clone() for p in group] for group in layer_groups(model)]
    seen = []

    class Watched(AWDClassifier):
        def loss(self, *batch):
            seen.append([all(torch.equal(p, q) for p, q in zip(*pair)) for pair in zip(start, layer_groups(self))])
            return super().loss(*batch)

    model.__class__ = Watched
    transfer.tune_classifier(model, glosses, Recipe(10, 1e-2, gradual=True), seed=0)
    # Before step n, the groups that have learned: none, the head from step 1 on, layer 3 from step 3 on, …
    assert [sum(not same for same in step) for step in seen] == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert all(step == sorted(step, reverse=True) for step in seen)  # from the top
    assert all(p.requires_grad for group in layer_groups(model) for p in group)


def test_a_seed_repeats_a_run(glosses):
    runs = []
    for seed in (0, 0, 1):
        model = AWDClassifier(small(), 4, generator=generator(1))
        transfer.tune_classifier(model, glosses, Recipe(3, 1e-2), seed=seed)
        runs.append(model(glosses.tokens, glosses.mask))
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


# ------------------------------------------------------------------------------------------ measurements


def test_bits_of_a_model_that_knows_nothing():
    model = small()
    for p in model.parameters():
        torch.nn.init.zeros_(p)
    ids = passages.unlabelled("glosses")[:4000]
    parts = ids[: len(ids) // 16 * 16].view(16, -1)[:, 1 : 1 + 3 * 64]
    size = sum(len(course.tokenizer().vocabulary[i]) for i in parts.flatten().tolist())
    assert transfer.bits(model, ids) == pytest.approx(11 * parts.numel() / size, rel=1e-5)  # log2 of 2,048 pieces


def test_drift_by_hand():
    start, model = small(), small()
    with torch.no_grad():
        model.embedding.weight.mul_(1.5)
    assert transfer.drift(model, start) == pytest.approx([0.5, 0, 0, 0])


def test_travel_by_hand_and_as_a_bound(glosses):
    by_hand = transfer.travel(Recipe(20, 0.01, gradual=True), 4)
    assert [float(f"{x:.4g}") for x in by_hand] == [0.1031, 0.02664, 0.004841, 0.0005482]
    model, recipe = AWDClassifier(small(), 4, generator=generator(1)), Recipe(10, 1e-2, gradual=True)
    start = copy.deepcopy(model)
    transfer.tune_classifier(model, glosses, recipe, seed=0)
    for a, b, most in zip(layer_groups(model), layer_groups(start), transfer.travel(recipe)[::-1]):
        moved = max(float((p - q).detach().abs().max()) for p, q in zip(a, b))
        assert 0 < moved <= transfer.longest_step() * most
    with pytest.raises(ValueError, match="betas"):
        transfer.longest_step((0.9, 0.5))


def test_marked_states_do_not_see_what_follows():
    items = probes.probe_sentences()[:3]
    states = transfer.marked_states(small(), items)
    assert states.shape == (4, 3, 12)
    longer = replace(items[0], sentence=items[0].sentence + " And more.")
    assert torch.equal(transfer.marked_states(small(), [longer])[:, 0], states[:, 0])


# ---------------------------------------------------------------------------------------------- the log


def test_the_log_is_in_the_package_and_whole():
    text = (ROOT / "recipes" / "logs" / "ulmfit.jsonl").read_text(encoding="utf-8")
    assert data.read_asset("ulmfit.jsonl") == text
    log = [json.loads(line) for line in text.splitlines()]
    about = ("experiment", "task", "arm", "model", "labels", "rate", "factor", "cut", "seed")
    assert len({tuple(r.get(k) for k in about) for r in log}) == len(log)  # each measurement once
    for name in ("stages", "ablation", "baselines", "grid"):
        seeds = {r["seed"] for r in log if r["experiment"] == name}
        assert seeds == {0, 1, 2}


def test_which_intervals_of_the_ablation_exclude_zero():
    """The chapter says it in words: mean ± 4.30 s/√3 of the three paired differences, at 200 labels."""
    log = [json.loads(line) for line in data.read_asset("ulmfit.jsonl").splitlines()]
    runs = [r for r in log if r["experiment"] == "ablation" and r["labels"] == 200]

    def interval(task, arm, than):
        found = {(r["task"], r["arm"], r["seed"]): r["accuracy"] for r in runs}
        paired = torch.tensor([found[task, arm, seed] - found[task, than, seed] for seed in (0, 1, 2)])
        half = 4.30 * float(paired.std()) / 3**0.5
        return float(paired.mean()) - half, float(paired.mean()) + half

    others = {r["arm"] for r in runs} - {"three stages"}
    intervals = {(task, arm): interval(task, "three stages", arm) for task in passages.TASKS for arm in others}
    excluded = {name for name, (low, high) in intervals.items() if not low <= 0 <= high}
    assert len(others) * len(passages.TASKS) == 16
    assert excluded == {
        ("eras", "no general LM"),
        ("glosses", "no general LM"),
        ("glosses", "from scratch"),
        ("glosses", "all layers from the start"),
        ("glosses", "last state only"),
    }
    for task in passages.TASKS:  # the general stage with the recipe, against neither
        low, high = interval(task, "no target LM", "from scratch")
        assert low < 0 < high


def test_the_table_of_film_reviews_is_that_of_the_log():
    log, arms = Path(__file__).parent.parent / "recipes" / "logs" / "sentiment.jsonl", {}
    for line in map(json.loads, log.read_text(encoding="utf-8").splitlines()):
        arms.setdefault(line["arm"], []).append(line["accuracy"])
    page = (log.parents[2] / "notebooks" / "ulmfit.py").read_text(encoding="utf-8")
    assert len(arms) == 5 and {len(found) for found in arms.values()} == {3}
    for arm, found in arms.items():
        said = [float(x) for x in re.search(rf"^# \| {arm} \| ([0-9.]+) \| ([0-9.]+), ([0-9.]+) \|$", page, re.M).groups()]
        assert said == pytest.approx([sum(found) / 3, min(found), max(found)], abs=5.01e-4), arm
    assert all(a > b > c for a, b, c in zip(*(arms[k] for k in ("three stages", "no target LM", "from scratch"))))
