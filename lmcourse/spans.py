"""Masking of whole spans, and what predicting them from their two neighbours needs (SpanBERT, Joshi et al. 2020)."""

from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from lmcourse import arguments
from lmcourse.objectives import SPLIT, budget, check_candidates, check_masking, replaced


@dataclass(frozen=True)
class MaskedSpans:
    """What a model reads and what it has to say, (B, T) each. Left, right and place are 0 where the weight is 0.

    Spans that met are one and may be long; SpanBERT's code predicts no more than 20 tokens of each from its neighbours.
    """

    inputs: Tensor  # int64
    targets: Tensor  # int64: the original tokens
    weights: Tensor  # float32: 1 for the tokens of a span
    left: Tensor  # int64: where the token before the span stands
    right: Tensor  # int64: where the token after it stands
    place: Tensor  # int64: 1 for the first token of a span, as in the paper


def span_length_probabilities(p: float = 0.2, longest: int = 10) -> Tensor:
    """[longest] float64: P(1), P(2), …, a geometric law cut off at ``longest`` and scaled to add up to 1.

    So does SpanBERT's code: mean 3.797. To clip at ``longest``, as the paper can be read, would give 4.463.
    """
    if not isinstance(p, Real) or not 0 < p < 1:
        raise ValueError(f"p: got {p!r}, expected a probability between 0 and 1, both excluded; the paper has 0.2")
    arguments.whole("longest", longest)
    shares = p * (1 - p) ** torch.arange(longest, dtype=torch.float64)
    return shares / shares.sum()


def span_masking(
    tokens: Tensor,
    word_starts: Tensor,
    *,
    mask_id: int,
    random_ids: range,
    candidates: Tensor | None = None,
    rate: float = 0.15,
    split: tuple[float, float, float] = SPLIT,
    p: float = 0.2,
    longest: int = 10,
    generator: torch.Generator,
) -> MaskedSpans:
    """Spans of whole words from the corrupted text. Joshi et al. 2020, sections 3.1 and 3.2.

    ``tokens`` (B, T), ``word_starts`` (B, T) bool: where a word begins. Spans start at a word drawn uniformly from
    those not yet hidden and take a length in words from :func:`span_length_probabilities`, until exactly
    :func:`lmcourse.objectives.budget` tokens of a row are hidden; the last span is cut there, within a word if need be,
    as in SpanBERT's code (which rounds the budget up and favours long words as starts). Spans stop before a token
    that ``candidates`` rules out. Those that touch or overlap are one span. Each span is masked, drawn anew or kept
    as a whole, with the shares ``split``. The first and the last token of a row are never hidden, so that a span has
    a token on either side; with [CLS] and [SEP] there, that rules out nothing.
    """
    candidates = check_masking(tokens, mask_id, random_ids, candidates, rate, split, generator).clone()
    candidates[:, [0, -1]] = False
    starts = _starts(word_starts, check_candidates(tokens, candidates))
    B, T = tokens.shape
    order = torch.rand(B, T, generator=generator).argsort(1).tolist()
    probabilities = span_length_probabilities(p, longest)
    lengths = torch.multinomial(probabilities.expand(B, -1), T, replacement=True, generator=generator).add_(1).tolist()
    counts = budget(candidates.sum(1), rate).tolist()
    rows = zip(starts.tolist(), candidates.tolist(), order, lengths, counts, strict=True)
    chosen = torch.tensor([_hidden(*row) for row in rows], device=tokens.device)
    left, right, place = boundaries(chosen)
    u = torch.rand(B, T, generator=generator).to(tokens.device).gather(1, left)  # one for the whole span
    inputs = replaced(tokens, chosen, u, mask_id, random_ids, split, generator)
    return MaskedSpans(inputs, tokens.clone(), chosen.float(), left, right, place)


def _hidden(starts: list, candidates: list, order: list, lengths: list, count: int) -> list[bool]:
    """Which tokens of one row are hidden: ``order`` says which place is tried when, ``lengths`` how many words."""
    chosen = [False] * len(starts)
    for at, words in zip(order, lengths, strict=True):
        if not starts[at] or chosen[at]:
            continue
        while count and candidates[at] and (words or not starts[at]):
            words -= starts[at]
            count -= not chosen[at]
            chosen[at] = True
            at += 1
    return chosen


def boundaries(chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(left, right, place) of each chosen token, (B, T) as in :class:`MaskedSpans`; a run of them is a span."""
    T = chosen.shape[1]
    at = torch.arange(T, device=chosen.device).expand_as(chosen)
    left = at.masked_fill(chosen, -1).cummax(1).values  # the last place so far that is not chosen
    right = at.masked_fill(chosen, T).flip(1).cummin(1).values.flip(1)
    return left * chosen, right * chosen, (at - left) * chosen


def _starts(word_starts: Tensor, candidates: Tensor) -> Tensor:
    """Where a span may start: at words, and at the first token after one that is ruled out."""
    if not isinstance(word_starts, Tensor) or word_starts.dtype != torch.bool:
        raise TypeError(f"word_starts: got {arguments.came(word_starts)}, expected bool [B, T]: where words begin")
    if word_starts.shape != candidates.shape:
        raise ValueError(f"word_starts: got shape {list(word_starts.shape)}, expected {list(candidates.shape)}")
    before = candidates.roll(1, dims=1)  # the first column is never a candidate
    return candidates & (word_starts | ~before)
