"""The models that are trained on XLA, one entry each: how to make one, and a batch for its ``loss``.

Every batch of a family has the same shapes, since XLA compiles for shapes. Texts have unlike lengths, and the last row
is nothing but padding. A recurrent model is written out step by step when it is compiled: keep its T at 8 or less.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from lmcourse import masks, objectives
from lmcourse.bert import BERT
from lmcourse.characters import MARKS, bidirectional_lm
from lmcourse.configuration import Config
from lmcourse.corruption import span_corruption_batch, span_corruption_lengths
from lmcourse.elmo import ELMo, ELMoConfig
from lmcourse.gpt import GPT
from lmcourse.t5 import T5
from lmcourse.ulmfit import AWDLSTM, AWDConfig
from lmcourse.vocabulary import Vocabulary
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


def awd_batch(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Eight steps, without padding: a recurrent model has no attention mask."""
    return objectives.causal_lm(torch.randint(WORDS.start, WORDS.stop, (4, 9), generator=generator))


def elmo_batch(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Sentences of 6, 5, 4 and 3 words, each of three letters."""
    drawn = torch.randint(len(SPELLED), (4, 6), generator=generator).tolist()
    return bidirectional_lm([[SPELLED.words[i] for i in row[: 6 - n]] for n, row in enumerate(drawn)], SPELLED)


SPELLED = Vocabulary(tuple("".join(letters) for letters in itertools.product("abcd", repeat=3)))
AWD = AWDConfig(64, 16, 24, 2, embedding_dropout=0, input_dropout=0, weight_dropout=0, hidden_dropout=0, output_dropout=0)
ELMO = ELMoConfig(len(SPELLED) + MARKS, ((1, 8), (2, 8)), width=16, units=24, layers=1)

FAMILIES = {
    "gpt": Family(lambda g, **changes: GPT(Config(positions=T, **SIZES | changes), g), gpt_batch),
    "bert": Family(lambda g, **changes: BERT(Config.bert(positions=T, **SIZES | changes), g), bert_batch),
    "t5": Family(lambda g, **changes: T5(Config.t5(**SIZES | changes), g), t5_batch),
    "awdlstm": Family(lambda g, dropout=0.0: AWDLSTM(replace(AWD, input_dropout=dropout), g), awd_batch),
    "elmo": Family(lambda g, **changes: ELMo(replace(ELMO, **changes), g), elmo_batch, ties=0),
}
