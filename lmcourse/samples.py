"""What experiments on tokenizers share: the training text in three disjoint parts, and tokenizers cut short."""

import dataclasses

from lmcourse import arguments, data
from lmcourse.bpe import BPE

__all__ = ["shorter", "thirds"]


def thirds(corpus: str, paragraphs: int = 40) -> list[list[str]]:
    """The training text in three disjoint parts of about the same size, to see how far a result depends on the text.

    Documents are dealt out in turn; novels, of which there are five, in blocks of so many ``paragraphs``.
    """
    arguments.whole("paragraphs", paragraphs)
    texts = [d.text for d in data.documents(corpus, "train")]
    if corpus == "novels":
        parted = [text.split("\n\n") for text in texts]
        texts = ["\n\n".join(p[i : i + paragraphs]) for p in parted for i in range(0, len(p), paragraphs)]
    return [texts[i::3] for i in range(3)]


def shorter(tokenizer: BPE, size: int) -> BPE:
    """The tokenizer that training would have given, had it stopped at ``size`` pieces: merges come in order."""
    arguments.kind("tokenizer", tokenizer, BPE, "use ByteBPE.train(texts, size)")
    learned = {"".join(merge) for merge in tokenizer.merges}
    first = len(tokenizer) - len(learned)
    if not isinstance(size, int) or isinstance(size, bool) or not first <= size <= len(tokenizer):
        raise ValueError(f"size: got {size!r}, expected {first} to {len(tokenizer)}, from the alphabet to all pieces")
    vocabulary = tokenizer.vocabulary[:size]
    kept = frozenset(vocabulary)
    merges = tuple(merge for merge in tokenizer.merges if "".join(merge) in kept)
    return dataclasses.replace(tokenizer, vocabulary=vocabulary, merges=merges)
