"""Rows of the course's tokenizer, or sentences, to what a model's ``loss`` takes: (inputs, targets, weights).

Each function takes ``rate`` too, the share of the tokens that is to be foreseen; only BERT's and T5's use it.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from lmcourse import course
from lmcourse.characters import bidirectional_lm
from lmcourse.corruption import corrupted_lengths, span_corruption_batch
from lmcourse.objectives import causal_lm, masked_lm, ordinary

Batch = tuple[Tensor, ...]
SENTINELS = range(course.FIRST_SENTINEL, course.FIRST_SENTINEL - course.SENTINELS, -1)
ORDINARY = range(len(course.SPECIALS), course.SIZE)


def begun(rows: Tensor) -> Tensor:
    """Each row after [CLS]: (B, T) → (B, T + 1)."""
    return F.pad(rows, (1, 0), value=course.CLS)


def causal(rows: Tensor, generator: torch.Generator, rate: float) -> Batch:
    """Each token from those before it, for GPT: rows (B, T) → three times (B, T)."""
    return causal_lm(begun(rows))


def masked(rows: Tensor, generator: torch.Generator, rate: float = 0.15) -> Batch:
    """Some tokens from all others, for BERT: rows (B, T) → three times (B, T + 1)."""
    rows = begun(rows)
    options = dict(mask_id=course.MASK, random_ids=ORDINARY, candidates=ordinary(rows, [course.CLS, course.SEP]))
    return masked_lm(rows, rate=rate, generator=generator, **options)


def spans(rows: Tensor, generator: torch.Generator, rate: float = 0.15) -> Batch:
    """Dropped spans from the rest, for T5: rows (B, T) → inputs (B, S), targets and weights (B, U)."""
    rows = begun(rows)
    lengths = dict(zip(("input_length", "target_length"), corrupted_lengths(rows.shape[1], rate)))
    ids = dict(sentinels=SENTINELS, end_id=course.END, pad_id=course.PAD)
    return span_corruption_batch(rows, rate=rate, **lengths, **ids, generator=generator)


def continued(rows: Tensor, generator: torch.Generator, rate: float) -> Batch:
    """Each token from all before it in the text, for AWD-LSTM: rows (B, T + 1) → three times (B, T)."""
    return causal_lm(rows)


def both_ways(sentences: list[list[str]], generator: torch.Generator, rate: float) -> Batch:
    """Each word from those before and from those after it, for ELMo: B sentences → (B, T, C) and twice (B, T)."""
    return bidirectional_lm(sentences, course.words())
