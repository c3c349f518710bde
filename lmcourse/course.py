"""The course's own tokenizer and small checkpoints, made by the scripts in ``recipes/`` and kept in the package."""

import functools

from lmcourse.bpe import ByteBPE
from lmcourse.data import asset

SENTINELS = 32
# In the order of their ids. Sentinels count down: [X0], which marks the first span, has the greatest id of all.
SPECIALS = ("[PAD]", "[END]", "[CLS]", "[SEP]", "[MASK]", *(f"[X{i}]" for i in reversed(range(SENTINELS))))
PAD, END, CLS, SEP, MASK = range(5)
FIRST_SENTINEL = len(SPECIALS) - 1
SIZE = 2048  # pieces


@functools.cache
def tokenizer() -> ByteBPE:
    """Byte-level BPE of 2,048 pieces, learned on the training documents of both corpora: ``recipes/tokenizer.py``.

    Texts are joined by [SEP]; a row begins with [CLS]; [END] closes T5's inputs and targets.
    """
    return ByteBPE.load(asset("pieces.json"))
