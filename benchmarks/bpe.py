"""Training byte-level BPE: lmcourse beside the ``tokenizers`` library, same documents, same settings, two cores.

Both clocks start with the documents as a list of str and stop with the merges: splitting into words is timed in both.
Runs alternate. Quality is the share of lmcourse's merges that are the library's at the same place. ``encoding`` gives
the seconds that each takes for the ids of all documents with the merges of the last run, ids equal: each from one
document after the other, and the library also with all documents in one call, where it uses both cores.

Prints one JSON object; ``run.py`` calls it.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable

os.environ["TOKENIZERS_PARALLELISM"] = "true"

from lmcourse.bpe import ByteBPE  # noqa: E402
from lmcourse.data import documents  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402

RUNS, CORES, SIZE = 3, 2, 8192


def lmcourse(texts: list[str]) -> ByteBPE:
    return ByteBPE.train(texts, SIZE)


def tokenizers(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=SIZE, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def timed(call: Callable, *arguments) -> tuple[float, object]:
    start = time.perf_counter()
    result = call(*arguments)
    return time.perf_counter() - start, result


def equal_share(ours: ByteBPE, library: Tokenizer) -> float:
    merges = [tuple(merge) for merge in json.loads(library.to_str())["model"]["merges"]]
    return sum(a == b for a, b in zip(ours.merges, merges)) / max(len(ours.merges), len(merges))


def encoding(ours: ByteBPE, library: Tokenizer, texts: list[str]) -> dict:
    seconds, ids = timed(lambda: [ours.encode(text) for text in texts])
    theirs, found = timed(lambda: [library.encode(text).ids for text in texts])
    batch, _ = timed(library.encode_batch_fast, texts)
    rounded = {"lmcourse": seconds, "tokenizers": theirs, "tokenizers, one call": batch}
    return {"ids equal": ids == found, **{name: round(value, 2) for name, value in rounded.items()}}


def main() -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    texts = [document.text for document in documents("novels") + documents("addresses")]
    size = sum(len(text.encode()) for text in texts) / 1e6
    runs: dict[str, list[tuple[float, float]]] = {"lmcourse": [], "tokenizers": []}
    for run in range(RUNS):
        seconds, ours = timed(lmcourse, texts)
        theirs, library = timed(tokenizers, texts)
        runs["lmcourse"].append((size / seconds, equal_share(ours, library)))
        runs["tokenizers"].append((size / theirs, 1.0))
        print(f"bpe run {run + 1}: lmcourse {seconds:.2f} s, tokenizers {theirs:.2f} s", file=sys.stderr, flush=True)
    result = {
        "task": f"byte-level BPE, {size:.1f} MB, {SIZE:,} pieces, {CORES} cores",
        "unit": "MB/s",
        "quality": "share of equal merges",
        "runs": {name: [{"speed": round(s, 2), "quality": round(q, 4)} for s, q in r] for name, r in runs.items()},
        "ratio": round(statistics.median(s for s, _ in runs["lmcourse"]) / statistics.median(s for s, _ in runs["tokenizers"]), 2),
        "config": {"size": SIZE, "bytes": round(size * 1e6)},
        "encoding": encoding(ours, library, texts),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
