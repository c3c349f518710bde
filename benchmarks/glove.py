"""GloVe: lmcourse beside bicleaner-ai-glove, the same co-occurrences, width and x_max, two cores.

The peer is a fork of glove-python (Cython, OpenMP, one entry at a time) that pip installs on Python 3.11 and 3.12;
glove-python itself no longer builds there. It has one table for both sides and one bias a word, and visits each
unordered pair once; lmcourse has the paper's two tables and visits each pair in both directions. Both clocks
start with the co-occurrences in the form that each library takes, and stop with trained vectors. The peer runs
at its default learning rate for 30 epochs (at 15 its correlation was still rising); lmcourse runs its defaults.
Speed is complete trainings an hour. ``details`` has seconds, entries a second and the loss of the paper's
formula, mean over all entries, by the same code for both; ``counting`` times the co-occurrences themselves.

Prints one JSON object; ``run.py`` calls it.
"""

import json
import os
import statistics
import sys
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import scipy.sparse
import torch

# This file has the name of the peer's package and would hide it.
sys.path = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]
from glove import Corpus as PeerCorpus
from glove import Glove as PeerGlove
from lmcourse.data import Vocabulary, documents, sentences, word_similarities
from lmcourse.embeddings import WordVectors
from lmcourse.glove import GloveConfig, cooccurrences, glove_loss, train_glove
from lmcourse.probes import similarity

SEEDS, CORES, MIN_COUNT, WINDOW = (1, 2, 3), 2, 5, 10
CONFIG, PEER_EPOCHS = GloveConfig(), 30


def wordsim(vectors: WordVectors) -> float:
    """Spearman's correlation of cosine and rating over the pairs of WordSim-353 that are known."""
    return similarity(vectors, word_similarities()).spearman


def mean_loss(parameters, entries) -> float:
    total = 0.0
    for part in zip(*(x.split(1 << 18) for x in entries)):
        total += float(glove_loss(*parameters, *part, CONFIG.x_max, CONFIG.power))
    return total / len(entries[0])


def run_lmcourse(entries, vocabulary: Vocabulary, seed: int) -> dict:
    start = time.perf_counter()
    model = train_glove(entries, vocabulary, CONFIG, torch.Generator().manual_seed(seed))
    seconds = time.perf_counter() - start
    parameters = (model.w, model.w_tilde, model.b, model.b_tilde)
    return row(seconds, CONFIG.epochs * len(entries[0]), model.word_vectors(vocabulary), parameters, entries)


def run_peer(entries, vocabulary: Vocabulary, seed: int) -> dict:
    rows, columns, values = (x.numpy() for x in entries)
    once = rows <= columns
    matrix = scipy.sparse.coo_matrix((values[once], (rows[once], columns[once])), shape=(len(vocabulary),) * 2)
    model = PeerGlove(no_components=CONFIG.width, alpha=CONFIG.power, max_count=CONFIG.x_max, random_state=seed)
    start = time.perf_counter()
    model.fit(matrix, epochs=PEER_EPOCHS, no_threads=CORES)
    seconds = time.perf_counter() - start
    table, bias = torch.from_numpy(model.word_vectors), torch.from_numpy(model.word_biases)
    visited = PEER_EPOCHS * int(once.sum())
    return row(seconds, visited, WordVectors(vocabulary, table), (table, table, bias, bias), entries)


def row(seconds: float, visited: int, vectors: WordVectors, parameters, entries) -> dict:
    return {
        "speed": round(3600 / seconds, 1),
        "quality": round(wordsim(vectors), 4),
        "seconds": round(seconds, 2),
        "entries_per_second": round(visited / seconds),
        "mean_loss": round(mean_loss(parameters, entries), 5),
    }


def count(text, vocabulary: Vocabulary) -> tuple[tuple, dict]:
    start = time.perf_counter()
    entries = cooccurrences(vocabulary.stream(text), vocabulary, WINDOW)
    ours = time.perf_counter() - start
    start = time.perf_counter()
    PeerCorpus(dictionary=vocabulary.index).fit(text, window=WINDOW, ignore_missing=True)
    return entries, {"seconds": {"lmcourse": round(ours, 2), "peer": round(time.perf_counter() - start, 2)}}


def main() -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    torch.set_num_threads(CORES)
    text = sentences(documents("novels") + documents("addresses"))
    vocabulary = Vocabulary.from_sentences(text, MIN_COUNT)
    entries, counting = count(text, vocabulary)
    runs: dict[str, list[dict]] = {"lmcourse": [], "glove-python": []}
    for seed in SEEDS:
        for name, train in (("lmcourse", run_lmcourse), ("glove-python", run_peer)):
            runs[name].append(train(entries, vocabulary, seed))
            print(f"glove {name} seed {seed}: {runs[name][-1]}", file=sys.stderr, flush=True)
    ours, peer = (statistics.median(r["speed"] for r in x) for x in runs.values())
    result = {
        "task": f"GloVe, {len(entries[0]):,} entries of {len(vocabulary):,} words, {CORES} cores; "
        f"{CONFIG.epochs} epochs against {PEER_EPOCHS}",
        "unit": "trainings/h",
        "quality": "WordSim-353 Spearman",
        "runs": {name: [{"speed": r["speed"], "quality": r["quality"]} for r in x] for name, x in runs.items()},
        "ratio": round(ours / peer, 2),
        "details": runs,
        "counting": counting,
        "config": asdict(CONFIG) | {"window": WINDOW, "min_count": MIN_COUNT},
        "peer": {"package": "bicleaner-ai-glove", "version": version("bicleaner-ai-glove"), "epochs": PEER_EPOCHS},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
