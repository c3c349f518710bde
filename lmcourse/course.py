"""The course's own tokenizer and small checkpoints, made by the scripts in ``recipes/`` and kept in the package."""

import functools
from collections.abc import Sequence

from torch import Tensor

from lmcourse import checkpoints, data
from lmcourse.bpe import ByteBPE
from lmcourse.rows import joined
from lmcourse.vocabulary import Vocabulary

SENTINELS = 32
# In the order of their ids. Sentinels count down: [X0], which marks the first span, has the greatest id of all.
SPECIALS = ("[PAD]", "[END]", "[CLS]", "[SEP]", "[MASK]", *(f"[X{i}]" for i in reversed(range(SENTINELS))))
PAD, END, CLS, SEP, MASK = range(5)
FIRST_SENTINEL = len(SPECIALS) - 1
SIZE = 2048  # pieces
WORDS = 5000  # that ELMo's softmax knows
CORPORA = tuple(data.CORPORA)
MODELS = ("gpt", "bert", "t5", "elmo", "awdlstm")


@functools.cache
def tokenizer() -> ByteBPE:
    """Byte-level BPE of 2,048 pieces, learned on the training documents of both corpora: ``recipes/tokenizer.py``.

    Texts are joined by [SEP]; a row begins with [CLS]; [END] closes T5's inputs and targets.
    """
    return ByteBPE.load(data.asset("pieces.json"))


@functools.cache
def words() -> Vocabulary:
    """The 5,000 most frequent words of the training documents, which ELMo predicts; it reads any."""
    return Vocabulary.from_sentences(sentences("train"), 2, WORDS)


def sentences(split: str, corpora: Sequence[str] = CORPORA) -> list[list[str]]:
    """All sentences of a split, in lower-case words."""
    return [s for corpus in corpora for s in data.sentences(data.documents(corpus, split))]


def ids(split: str, corpora: Sequence[str] = CORPORA) -> Tensor:
    """All documents of a split in pieces of :func:`tokenizer`, [SEP] after each: (N,)."""
    texts = [document.text for corpus in corpora for document in data.documents(corpus, split)]
    return joined(texts, tokenizer().encode, SEP)


def load(name: str) -> checkpoints.Own:
    """One of the course's checkpoints, not training: "gpt", "bert", "t5", "elmo" or "awdlstm".

    The first three share configuration, tokenizer, text and number of steps, and differ in mask, objective and T5's
    second stack with its cross-attention; T5 began from the other two. AWD-LSTM has read the novels only. How each
    was made, and what it costs on held-out text: ``recipes/``.
    """
    if name not in MODELS:
        raise ValueError(f"name: got {name!r}, expected one of {', '.join(MODELS)}")
    return checkpoints.load_own(data.asset(f"{name}.safetensors")).eval()
