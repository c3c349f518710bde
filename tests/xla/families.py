"""The models that are trained on XLA, one entry each: how to make one, and a batch for its ``loss``.

Every batch of a family has the same shapes, since XLA compiles for shapes. Texts have unlike lengths, and the last row
is nothing but padding. A recurrent model is written out step by step when it is compiled: keep its T at 8 or less.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from lmcourse import masks, objectives
from lmcourse.bert import BERT
from lmcourse.configuration import Config
from lmcourse.corruption import span_corruption_batch, span_corruption_lengths
from lmcourse.gpt import GPT
from lmcourse.t5 import T5
from torch import Tensor, nn
from torch.nn import functional as F

PAD, MASK, END, WORDS, SENTINELS = 0, 1, 2, range(3, 60), range(63, 59, -1)
SIZES = dict(vocabulary=64, layers=1, width=32, heads=4)
T = 12


@dataclass(frozen=True)
class Family:
    model: Callable[..., nn.Module]  # (generator, dropout=…)
    batch: Callable[[torch.Generator], tuple[Tensor, ...]]  # what ``model.loss`` takes
    ties: int = 1  # parameters that stand in more than one place


def texts(generator: torch.Generator) -> list[Tensor]:
    """Four texts of T, T - 1, … tokens."""
    return [torch.randint(WORDS.start, WORDS.stop, (T - i,), generator=generator) for i in range(4)]


def padded(generator: torch.Generator) -> Tensor:
    """The same in one tensor (4, T)."""
    return nn.utils.rnn.pad_sequence(texts(generator), batch_first=True, padding_value=PAD)


def with_padding(inputs: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
    """One row more, of padding, and the attention mask that goes with ``inputs``."""
    rows = (F.pad(x, (0, 0, 0, 1)) for x in (inputs, targets, weights, inputs != PAD))
    return tuple(rows)


def gpt_batch(generator: torch.Generator) -> tuple[Tensor, ...]:
    return with_padding(*objectives.causal_lm(padded(generator), pad_id=PAD))


def bert_batch(generator: torch.Generator) -> tuple[Tensor, ...]:
    tokens = padded(generator)
    options = dict(mask_id=MASK, random_ids=WORDS, candidates=tokens != PAD, generator=generator)
    return with_padding(*objectives.masked_lm(tokens, **options))


def t5_batch(generator: torch.Generator) -> tuple[Tensor, ...]:
    lengths = dict(input_length=T, target_length=span_corruption_lengths(T)[1])
    options = dict(sentinels=SENTINELS, end_id=END, pad_id=PAD, generator=generator)
    return with_padding(*span_corruption_batch(texts(generator), **lengths, **options))


FAMILIES = {
    "gpt": Family(lambda g, **changes: GPT(Config(positions=T, **SIZES | changes), g), gpt_batch),
    "bert": Family(lambda g, **changes: BERT(Config.bert(positions=T, **SIZES | changes), g), bert_batch),
    "t5": Family(lambda g, **changes: T5(Config.t5(**SIZES | changes), g), t5_batch),
}
