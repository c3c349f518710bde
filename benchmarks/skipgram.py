"""Skip-gram with negative sampling: lmcourse beside gensim, same words, same settings, two cores.

Both clocks start with the sentences as lists of words and the vocabulary built, and stop with trained
vectors: turning words into ids is timed in both. Runs alternate, one of each per seed. Words per second
count every known word of the text in every epoch, before subsampling. Each trains at its own learning rate:
gensim at its default, lmcourse at its default; ``gensim_at_0.05`` is gensim's quality at lmcourse's rate.

Prints one JSON object; ``run.py`` calls it.
"""

import json
import os
import statistics
import sys
import time
from dataclasses import asdict

import torch
from gensim.models import Word2Vec
from lmcourse.data import Vocabulary, documents, sentences, word_similarities
from lmcourse.embeddings import SkipGramConfig, WordVectors, train_negative_sampling
from lmcourse.probes import similarity

SEEDS, CORES, MIN_COUNT = (1, 2, 3), 2, 5
CONFIG = SkipGramConfig()


def wordsim(vectors: WordVectors) -> float:
    """Spearman's correlation of cosine and rating over the pairs of WordSim-353 that are known."""
    return similarity(vectors, word_similarities()).spearman


def lmcourse(text: list[list[str]], vocabulary: Vocabulary, seed: int) -> tuple[float, WordVectors]:
    start = time.perf_counter()
    model = train_negative_sampling(vocabulary.stream(text), vocabulary, CONFIG, torch.Generator().manual_seed(seed))
    return time.perf_counter() - start, model.word_vectors(vocabulary)


def gensim(text: list[list[str]], vocabulary: Vocabulary, seed: int, rate: float = 0.025) -> tuple[float, WordVectors]:
    model = Word2Vec(
        vector_size=CONFIG.width, window=CONFIG.window, sg=1, negative=CONFIG.negatives, ns_exponent=CONFIG.noise_power,
        sample=CONFIG.subsample, min_count=MIN_COUNT, workers=CORES, seed=seed, alpha=rate,
    )  # fmt: skip
    model.build_vocab(text)
    start = time.perf_counter()
    model.train(text, total_examples=model.corpus_count, epochs=CONFIG.epochs)
    seconds = time.perf_counter() - start
    return seconds, WordVectors(vocabulary, torch.stack([torch.tensor(model.wv[w]) for w in vocabulary.words]))


def main() -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    torch.set_num_threads(CORES)
    text = sentences(documents("novels") + documents("addresses"))
    vocabulary = Vocabulary.from_sentences(text, MIN_COUNT)
    words = int(vocabulary.counts.sum())
    runs: dict[str, list[tuple[float, float]]] = {"lmcourse": [], "gensim": []}
    for seed in SEEDS:
        for name, train in (("lmcourse", lmcourse), ("gensim", gensim)):
            seconds, vectors = train(text, vocabulary, seed)
            runs[name].append((CONFIG.epochs * words / seconds, wordsim(vectors)))
            print(f"skipgram {name} seed {seed}: {runs[name][-1][0]:,.0f} words/s", file=sys.stderr, flush=True)
    same_rate = [round(wordsim(gensim(text, vocabulary, seed, CONFIG.learning_rate)[1]), 4) for seed in SEEDS]
    result = {
        "task": f"skip-gram, {words:,} words, {len(vocabulary):,} of them different, {CONFIG.epochs} epochs, {CORES} cores",
        "unit": "words/s",
        "quality": "WordSim-353 Spearman",
        "runs": {name: [{"speed": round(s), "quality": round(q, 4)} for s, q in r] for name, r in runs.items()},
        "ratio": round(statistics.median(s for s, _ in runs["lmcourse"]) / statistics.median(s for s, _ in runs["gensim"]), 2),
        "config": asdict(CONFIG),
        f"gensim_at_{CONFIG.learning_rate}": same_rate,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
