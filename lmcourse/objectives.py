"""Pretraining objectives: a batch of tokens in, ``(inputs, targets, weights)`` out; one loss for all but pairs.

The model sees ``inputs``. The loss is the weighted mean of -log p(target), over the positions with weight > 0. The
objectives differ in what is hidden and what carries loss. :func:`causal_lm` leaves the hiding to GPT's causal mask: a
model that looks both ways would read the answers.

* :func:`causal_lm`: every token from those before it (GPT);
* :func:`masked_lm`: 15 % of the tokens from the corrupted text (BERT, RoBERTa);
* :func:`prefix_lm`: the second part of a text from the first (T5);
* whole spans from the rest: :mod:`lmcourse.spans` (SpanBERT) and :mod:`lmcourse.corruption` (T5);
* whether two passages follow one another: :mod:`lmcourse.pairs` (BERT).

All are pure: what is passed in stays as it was, and the generator alone decides what is drawn.
"""

from collections.abc import Sequence
from numbers import Real

import torch
from torch import Tensor
from torch.nn import functional as F

from lmcourse import arguments

SPLIT = (0.8, 0.1, 0.1)  # of the chosen tokens: replaced by [MASK], by a random token, left as they are

# ------------------------------------------------------------------------------------------ the loss


def cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Σ w · -log p(target) / Σ w, in nats: the weighted mean over positions, a scalar.

    ``logits`` (..., V), ``targets`` (...) int64, ``weights`` (...) from 0 on, or bool. Each position is weighted
    before the mean is taken. Where the weight is 0, the target may be anything (-100, too): neither loss nor
    gradient depends on it. ``ValueError`` where every weight is 0; on XLA, where values are not looked at, NaN. Half
    precision is summed in float32.
    """
    _check_loss(logits, targets, weights)
    counts = weights > 0
    V, single = logits.shape[-1], torch.promote_types(logits.dtype, torch.float32)
    losses = F.cross_entropy(  # -log p(target), one for each position
        logits.reshape(-1, V).to(single), targets.masked_fill(~counts, 0).flatten(), reduction="none"
    ).view(targets.shape)
    weights = weights.to(single)
    return (weights * losses.masked_fill(~counts, 0)).sum() / weights.sum()  # filled, since 0 · ∞ is NaN


# ------------------------------------------------------------------------------- from left to right


def causal_lm(tokens: Tensor, pad_id: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Every token from those before it: ``tokens`` (B, T) → inputs, targets, weights (B, T - 1).

    The target of a position is the token that follows it. Where that is ``pad_id``, the weight is 0; texts are
    padded on the right. Radford et al. 2018, eq. 1.
    """
    check_tokens(tokens, least=2)
    inputs, targets = tokens[:, :-1].clone(), tokens[:, 1:].clone()
    weights = torch.ones_like(targets, dtype=torch.float32)
    return inputs, targets, weights if pad_id is None else weights.masked_fill(targets == pad_id, 0)


def prefix_lm(tokens: Tensor, prefix: int | Tensor, pad_id: int) -> tuple[Tensor, Tensor, Tensor]:
    """The second part of a text from the first: inputs (B, S), targets and weights (B, R).

    ``prefix``: how many tokens of ``tokens`` (B, T) are inputs, one number for all or (B,) int64; from 1 on, and
    fewer than the row has without its padding on the right. Both parts are padded with ``pad_id`` to the longest of
    the batch; weights are 0 there. For an encoder and a decoder, which itself shifts the targets. Raffel et al. 2020,
    section 3.2.3; its code draws the prefix: :func:`draw_prefix`.
    """
    check_tokens(tokens, least=2)
    length = _lengths(tokens, pad_id)  # (B,)
    prefix = _check_prefix(prefix, length)
    place = torch.arange(tokens.shape[1], device=tokens.device)
    inputs = tokens.masked_fill(place >= prefix[:, None], pad_id)[:, : int(prefix.max())]
    suffix = place[: int((length - prefix).max())] + prefix[:, None]  # (B, R) places in tokens
    inside = suffix < length[:, None]
    targets = tokens.gather(1, suffix.clamp(max=tokens.shape[1] - 1)).masked_fill(~inside, pad_id)
    return inputs, targets, inside.float()


def _lengths(tokens: Tensor, pad_id: int) -> Tensor:
    """(B,): how many tokens stand before the padding on the right."""
    real = tokens != pad_id
    if bool((real[:, 1:] & ~real[:, :-1]).any()):
        raise ValueError(f"tokens: got a token after padding (id {pad_id}), expected padding on the right")
    return real.sum(1)


def draw_prefix(tokens: Tensor, pad_id: int, generator: torch.Generator) -> Tensor:
    """(B,) lengths for :func:`prefix_lm`, uniform on 1 to n - 1 for a row of n tokens without its padding."""
    check_tokens(tokens, least=2)
    arguments.cpu_generator(generator)
    most = _lengths(tokens, pad_id) - 1
    _check_prefix(most.clamp(min=1), most + 1)
    u = torch.rand(len(tokens), generator=generator, dtype=torch.float64).to(tokens.device)
    return 1 + (u * most).long()


# ------------------------------------------------------------------------------------- masked tokens


def ordinary(tokens: Tensor, special_ids: Sequence[int]) -> Tensor:
    """bool, like ``tokens``: where none of ``special_ids`` ([CLS], [SEP], padding) stands, so what may be chosen."""
    return ~torch.isin(tokens, torch.tensor(special_ids, dtype=torch.int64, device=tokens.device))


def masked_lm(
    tokens: Tensor,
    *,
    mask_id: int,
    random_ids: range,
    candidates: Tensor | None = None,
    rate: float = 0.15,
    split: tuple[float, float, float] = SPLIT,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor]:
    """Some tokens from the corrupted text: inputs, targets, weights (B, T), all three like ``tokens`` (B, T).

    Of the n tokens of a row that ``candidates`` (B, T) bool allows (all, if None; see :func:`ordinary`), exactly
    :func:`budget` are chosen; they have weight 1. Of those the shares ``split`` become ``mask_id``, an id drawn from
    ``random_ids`` (ordinary ids; it may be the same one again), or stay. Devlin et al. 2019, section 3.1. Their code
    counts [CLS] and [SEP] in n as well. Called anew for each epoch, this is RoBERTa's dynamic masking.
    """
    candidates = check_masking(tokens, mask_id, random_ids, candidates, rate, split, generator)
    B, T = tokens.shape
    order = torch.rand(B, T, generator=generator).to(tokens.device).masked_fill(~candidates, 2).argsort(1)
    first = torch.arange(T, device=tokens.device) < budget(candidates.sum(1), rate)[:, None]
    chosen = torch.zeros_like(candidates).scatter_(1, order, first)
    u = torch.rand(B, T, generator=generator).to(tokens.device)
    return replaced(tokens, chosen, u, mask_id, random_ids, split, generator), tokens.clone(), chosen.float()


def static_masked_lm(tokens: Tensor, *, copies: int = 10, generator: torch.Generator, **settings) -> list:
    """BERT's static masking: ``copies`` draws of :func:`masked_lm`, made once. Epoch e takes ``[e % copies]``."""
    arguments.whole("copies", copies)
    return [masked_lm(tokens, generator=generator, **settings) for _ in range(copies)]


def budget(n: Tensor, rate: float) -> Tensor:
    """How many of ``n`` tokens are chosen: rate · n rounded (halves to even), but at least 1. int64, like ``n``."""
    return (n.double() * rate).round().long().clamp(min=1)


def replaced(
    tokens: Tensor, chosen: Tensor, u: Tensor, mask_id: int, random_ids: range, split: tuple, generator: torch.Generator
) -> Tensor:
    """``tokens`` (B, T) with the ``chosen`` ones masked, drawn anew or kept, as ``u`` (B, T) in [0, 1) falls."""
    drawn = torch.randint(random_ids.start, random_ids.stop, tokens.shape, generator=generator).to(tokens.device)
    masked, random = u < split[0], u < split[0] + split[1]
    inputs = torch.where(chosen & random, drawn, tokens)
    return inputs.masked_fill(chosen & masked, mask_id)


# -------------------------------------------------------------------------------------- bad input


def _check_loss(logits: Tensor, targets: Tensor, weights: Tensor) -> None:
    if not isinstance(logits, Tensor) or not logits.is_floating_point() or not logits.ndim:
        raise TypeError(f"logits: got {arguments.came(logits)}, expected floating scores [..., V]; use model(inputs)")
    if not isinstance(targets, Tensor) or targets.dtype != torch.int64:
        raise TypeError(f"targets: got {arguments.came(targets)}, expected int64 ids; use targets.long()")
    if not isinstance(weights, Tensor) or weights.is_complex():
        raise TypeError(f"weights: got {arguments.came(weights)}, expected numbers from 0 on; use torch.ones(...)")
    V, shape = logits.shape[-1], list(logits.shape[:-1])
    for name, value in (("targets", targets), ("weights", weights)):
        if list(value.shape) != shape:
            raise ValueError(f"{name}: got shape {list(value.shape)}, expected {shape}: one for each row of logits")
    if not arguments.can_look(weights):
        return
    right = (weights >= 0) & (weights < torch.inf)
    known = (weights == 0) | ((targets >= 0) & (targets < V))
    some, right, known = torch.stack([(weights > 0).any(), right.all(), known.all()]).tolist()  # one wait for a device
    if not right:
        raise ValueError("weights: some are negative, NaN or infinite, expected numbers from 0 on")
    if not some:
        raise ValueError("weights: every weight is 0, so there is nothing to take a mean over; drop the batch")
    if not known:
        raise ValueError(f"targets: got ids outside 0 to {V - 1} with weight above 0; one vocabulary for ids and model")


def check_tokens(tokens: Tensor, ndim: int = 2, least: int = 1) -> None:
    """``tokens`` is int64 (B, T) or, with ``ndim`` 1, (T,); T is at least ``least`` and B at least 1."""
    shape = "[B, T]" if ndim == 2 else "[T]"
    if not isinstance(tokens, Tensor) or tokens.dtype != torch.int64:
        raise TypeError(f"tokens: got {arguments.came(tokens)}, expected int64 ids {shape}; use torch.tensor([...])")
    if tokens.ndim != ndim or not tokens.numel() or tokens.shape[-1] < least:
        raise ValueError(f"tokens: got shape {list(tokens.shape)}, expected {shape} with T of {least} or more")
    if int(tokens.min()) < 0:
        raise ValueError(f"tokens: got id {int(tokens.min())}, expected ids from 0 on; pad with an id of its own")


def check_masking(tokens, mask_id, random_ids, candidates, rate, split, generator) -> Tensor:
    """The candidates, bool (B, T), at least one in each row."""
    check_tokens(tokens)
    arguments.cpu_generator(generator)
    arguments.kind("random_ids", random_ids, range, "use range(first, last + 1) of the ordinary ids")
    if not random_ids or random_ids.step != 1 or random_ids.start < 0:
        raise ValueError(f"random_ids: got {random_ids}, expected ids from 0 on, at least one, step 1")
    if not isinstance(mask_id, int) or mask_id < 0 or mask_id in random_ids:
        raise ValueError(f"mask_id: got {mask_id!r}, expected an id from 0 on outside random_ids, {random_ids}")
    check_rate(rate)
    if not all(isinstance(s, Real) and 0 <= s <= 1 for s in split) or len(split) != 3 or abs(sum(split) - 1) > 1e-9:
        raise ValueError(f"split: got {split!r}, expected three shares that add up to 1; use (0.8, 0.1, 0.1)")
    return check_candidates(tokens, candidates)


def check_candidates(tokens: Tensor, candidates: Tensor | None) -> Tensor:
    """``candidates``, or where it is None, everything: bool like ``tokens``, at least one in each row."""
    if candidates is None:
        return torch.ones_like(tokens, dtype=torch.bool)
    if not isinstance(candidates, Tensor) or candidates.dtype != torch.bool:
        raise TypeError(f"candidates: got {arguments.came(candidates)}, expected bool; use ordinary(tokens, [...])")
    if candidates.shape != tokens.shape:
        raise ValueError(f"candidates: got shape {list(candidates.shape)}, expected {list(tokens.shape)}, as tokens")
    some = candidates.any(1)
    if not bool(some.all()):
        raise ValueError(f"candidates: all tokens of row {int(some.int().argmin())} are ruled out; drop the row")
    return candidates


def check_rate(rate: float) -> None:
    if not isinstance(rate, Real) or not 0 < rate < 1:
        raise ValueError(f"rate: got {rate!r}, expected a share between 0 and 1, both excluded; 0.15 is usual")


def _check_prefix(prefix: int | Tensor, length: Tensor) -> Tensor:
    """(B,) numbers of tokens, each from 1 to one less than ``length`` (B,)."""
    prefix = torch.as_tensor(prefix, device=length.device)
    if prefix.dtype != torch.int64:
        raise TypeError(f"prefix: got {arguments.came(prefix)}, expected a whole number or [B] int64")
    if prefix.ndim and prefix.shape != length.shape:
        raise ValueError(f"prefix: got shape {list(prefix.shape)}, expected {list(length.shape)}: one number a row")
    prefix = prefix.expand_as(length)
    bad = (prefix < 1) | (prefix >= length)
    if bool(bad.any()):
        row = int(bad.int().argmax())
        raise ValueError(
            f"prefix: got {int(prefix[row])} for row {row} of {int(length[row])} tokens, expected 1 to "
            f"{int(length[row]) - 1}, so that both parts have a token"
        )
    return prefix
