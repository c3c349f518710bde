"""The experiments of the chapter on ULMFiT: three stages, each ingredient left out, factors and cuts, forgetting.

    python recipes/ulmfit.py --log recipes/logs/ulmfit.jsonl                  # all of it
    python recipes/ulmfit.py --log runs/ulmfit.jsonl --seeds 0 --parts ablation

Each line of the log is one measurement, with what it is of and its seed; no clock. What stands in the log already is
not measured again, so a run that was stopped goes on. On a CPU that has instructions for it training is in bfloat16;
what is measured is in float32.
"""

import argparse
import copy
import functools
import itertools
import json
from pathlib import Path

import torch
from lmcourse import course, passages, transfer
from lmcourse.device import choose, seed, seed_from
from lmcourse.passages import TASKS
from lmcourse.transfer import Recipe
from lmcourse.ulmfit import AWDClassifier, AWDLSTM

LABELS = (20, 200, 600)  # labelled passages for training, equally many of each class
MIDDLE = 200  # of them, where rates are chosen and the grid is measured
DECAY = 1e-3  # of the logistic regression
HELD_OUT = 400  # passages, equally many of each class
# Factors and cuts; what the arms have already, 1 and 2.6 with the cut at 0.1, is left out.
CELLS = ((1.6, 0.1), (4.0, 0.1), (1.0, 0.3), (2.6, 0.3), (1.6, 0.3), (4.0, 0.3))
GENERAL = 12_800  # pieces of the held-out novel, and of the task's held-out text, that bits per byte are measured on

STEPS = 100  # of each stage
LM = Recipe(steps=STEPS, rate=8e-3)
BEGIN = Recipe(steps=STEPS, rate=8e-3, factor=1.0)  # where the language model starts from random weights
# Peaks of the rates, chosen on validation passages with a seed of its own. The choice was made when the second stage
# had 200 steps; --parts rates with 100, as in the log, agrees but for "three stages" on eras, where 3e-2 is best.
RATES = {
    "eras": {"three stages": 1e-2, "from scratch": 3e-3, "none of the three": 3e-3},
    "glosses": {"three stages": 3e-2, "from scratch": 3e-3, "none of the three": 3e-3},
}
FULL = dict(gradual=True)
ARMS = {  # name: (how the language model came about, what differs in the classifier's training, its pooling)
    "three stages": ("full", FULL, "concat"),
    "no target LM": ("general", FULL, "concat"),
    "no general LM": ("begun", FULL, "concat"),
    "from scratch": ("random", dict(factor=1.0), "concat"),
    "one rate for all layers": ("full", FULL | dict(factor=1.0), "concat"),
    "constant rate": ("full", FULL | dict(schedule="constant"), "concat"),
    "all layers from the start": ("full", dict(), "concat"),
    "last state only": ("full", FULL, "last"),
    "none of the three": ("full", dict(factor=1.0, schedule="constant"), "concat"),
}
MODELS = {  # name: (starts from the general model?, how it is trained on the task's text, if at all)
    "general": (True, None),
    "random": (False, None),
    "full": (True, LM),
    "begun": (False, BEGIN),
    "one rate for all layers": (True, Recipe(STEPS, LM.rate, factor=1.0)),
    "constant rate": (True, Recipe(STEPS, LM.rate, schedule="constant")),
}


@functools.cache
def language_model(task: str, name: str, start: int) -> AWDLSTM:
    """The model after the first two stages; the same for all arms that share them."""
    general, recipe = MODELS[name]
    model = course.load("awdlstm")
    if not general:
        model = AWDLSTM(model.config, seed(seed_from(start, 2)))
    if recipe:
        transfer.tune_language_model(model, passages.unlabelled(task), recipe, start, DEVICE)
    return model.eval()


def recipe_of(task: str, arm: str, **changes) -> Recipe:
    """How an arm's classifier is trained. An ingredient is left out at the rate of the whole recipe."""
    rates = RATES[task]
    return Recipe(STEPS, **dict(rate=rates.get(arm, rates["three stages"])) | ARMS[arm][1] | changes)


def classifier(task: str, name: str, texts, recipe: Recipe, start: int, pool: str = "concat"):
    """(classifier, log of its training) from a copy of the language model."""
    body = copy.deepcopy(language_model(task, name, start))
    model = AWDClassifier(body, len(TASKS[task]), generator=seed(seed_from(start, 3)), pool=pool)
    return model, transfer.tune_classifier(model, texts, recipe, start, DEVICE)


@functools.cache
def held_out(task: str, split: str):
    return passages.passages(task, split, HELD_OUT, torch.Generator().manual_seed(1))


@functools.cache
def labelled(task: str, start: int):
    """The smaller sets are the beginnings of this one: what more labels bring is not mixed with which they are."""
    return passages.passages(task, "train", max(LABELS), torch.Generator().manual_seed(seed_from(start, 4)))


def costs(model: AWDLSTM, task: str) -> dict:
    """Bits per byte of the held-out novel and of the task's held-out text, and how far each layer has moved."""
    general, target = course.ids("validation", ["novels"])[:GENERAL], passages.unlabelled(task, "validation")[:GENERAL]
    found = {"general": transfer.bits(model, general), "target": transfer.bits(model, target)}
    return rounded(found | {"drift": transfer.drift(model, course.load("awdlstm"))})


def rounded(found: dict) -> dict:
    return {k: [round(x, 4) for x in v] if isinstance(v, list) else round(v, 4) for k, v in found.items()}


# ---------------------------------------------------------------------------------------------- the experiments


def rates(task: str, start: int):
    """On validation passages: the peaks for the recipe, from random weights, and without any ingredient."""
    for arm, rate in itertools.product(RATES[task], (3e-3, 1e-2, 3e-2)):
        recipe = recipe_of(task, arm, rate=rate)
        yield dict(arm=arm, rate=rate), functools.partial(_accuracy, task, ARMS[arm][0], recipe, start, "validation")


def _accuracy(task: str, name: str, recipe: Recipe, start: int, split: str) -> dict:
    model, _ = classifier(task, name, labelled(task, start)[:MIDDLE], recipe, start)
    return rounded({"accuracy": transfer.accuracy(model, held_out(task, split))})


def stages(task: str, start: int):
    """What each language model costs on both texts: forgetting, and what the second stage is for."""
    for name in MODELS:
        yield dict(model=name), lambda name=name: costs(language_model(task, name, start), task)


def ablation(task: str, start: int):
    """Each arm at each number of labels, on the test passages."""
    for arm, labels in itertools.product(ARMS, LABELS):
        yield dict(arm=arm, labels=labels), functools.partial(_tested, task, arm, labels, start)


def _tested(task: str, arm: str, labels: int, start: int) -> dict:
    name, _, pool = ARMS[arm]
    model, log = classifier(task, name, labelled(task, start)[:labels], recipe_of(task, arm), start, pool)
    found = {"accuracy": transfer.accuracy(model, held_out(task, "test")), "loss": log[-1]["loss"]}
    if name == "full" and labels == MIDDLE and task == "eras":  # the language model's head on the classifier's body
        return rounded(found) | costs(model.model, task)
    return rounded(found)


def baselines(task: str, start: int):
    """One class's share, naive Bayes, and logistic regression: both count pieces and pairs of them."""
    for labels in LABELS:
        yield dict(labels=labels), functools.partial(_baselines, task, labels, start)


def _baselines(task: str, labels: int, start: int) -> dict:
    texts, classes = labelled(task, start)[:labels], len(TASKS[task])
    tests = held_out(task, "test")
    share = lambda found: float((found[0] == tests.labels).float().mean())  # noqa: E731
    found = {"majority": 1 / classes, "bayes": share(passages.naive_bayes(texts, classes, [tests]))}
    return rounded(found | {"logistic": share(passages.logistic_regression(texts, classes, [tests], DECAY))})


def grid(task: str, start: int):
    """Other factors and cuts, on the test passages: nothing is chosen by it."""
    for factor, cut in CELLS:
        recipe = recipe_of(task, "three stages", factor=factor, cut_frac=cut)
        yield dict(factor=factor, cut=cut), functools.partial(_accuracy, task, "full", recipe, start, "test")


PARTS = {  # experiment: (of which tasks, seeds or None for those asked for)
    rates: (tuple(TASKS), (100,)),
    stages: (("eras",), None),
    ablation: (tuple(TASKS), None),
    baselines: (tuple(TASKS), None),
    grid: (tuple(TASKS), None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--log", type=Path, required=True, help="a .jsonl file; what stands in it is not run again")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    names = [part.__name__ for part in PARTS]
    parser.add_argument("--parts", nargs="+", choices=names, default=names)
    options = parser.parse_args()
    options.log.parent.mkdir(parents=True, exist_ok=True)
    lines = options.log.read_text(encoding="utf-8").splitlines() if options.log.is_file() else []
    done = [json.loads(line) for line in lines]
    for part, (tasks, seeds) in PARTS.items():
        if part.__name__ not in options.parts:
            continue
        for start, task in itertools.product(seeds or options.seeds, tasks):
            for about, measure in part(task, start):
                about = {"experiment": part.__name__, "task": task, **about, "seed": start}
                if any(about.items() <= line.items() for line in done):
                    continue
                with open(options.log, "a", encoding="utf-8") as file:
                    file.write(json.dumps(about | measure()) + "\n")


if __name__ == "__main__":
    DEVICE = choose(cpu_bf16=True)
    main()
