"""Spans cut out, one sentinel left for each, and the sequence that says what stood there (T5, Raffel et al. 2020)."""

import bisect
from collections.abc import Sequence
from numbers import Real

import torch
import torch.nn.functional as F
from torch import Tensor

from lmcourse import arguments
from lmcourse.objectives import check_rate, check_tokens


def noise_mask(T: int, *, rate: float = 0.15, mean_span: float = 3.0, generator: torch.Generator) -> Tensor:
    """(T,) bool: which tokens are cut out. Raffel et al. 2020, section 3.3.4, as in the released code.

    :func:`noise_and_spans` says how many tokens and spans. Kept and dropped text alternate, starting with kept text
    and ending with dropped; all ways to cut both into that many non-empty pieces are equally likely.
    """
    noise, spans = noise_and_spans(T, rate, mean_span)
    arguments.cpu_generator(generator)
    lengths = torch.stack([_pieces(T - noise, spans, generator), _pieces(noise, spans, generator)], dim=1)  # (spans, 2)
    return torch.tensor([False, True]).repeat(spans).repeat_interleave(lengths.flatten())


def noise_and_spans(T: int, rate: float = 0.15, mean_span: float = 3.0) -> tuple[int, int]:
    """(tokens, spans) to drop out of ``T``: round(T · rate) within 1 to T - 1, and that by ``mean_span``, rounded.

    At least one span, and never more than there are dropped or kept tokens.
    """
    if not isinstance(T, int) or T < 2:
        raise ValueError(f"tokens: got {T!r} of them, expected 2 or more: one to keep and one to drop")
    check_rate(rate)
    if not isinstance(mean_span, Real) or not 1 <= mean_span < float("inf"):
        raise ValueError(f"mean_span: got {mean_span!r}, expected a length of 1 or more; the paper has 3")
    noise = min(max(round(T * rate), 1), T - 1)
    return noise, min(max(round(noise / mean_span), 1), noise, T - noise)


def _pieces(n: int, pieces: int, generator: torch.Generator) -> Tensor:
    """(pieces,) lengths from 1 on that add up to ``n``, all such equally likely."""
    cuts = torch.randperm(n - 1, generator=generator)[: pieces - 1].sort().values + 1
    return torch.diff(cuts, prepend=torch.tensor([0]), append=torch.tensor([n]))


def corrupt(tokens: Tensor, noise: Tensor, *, sentinels: range, end_id: int | None = None) -> tuple[Tensor, Tensor]:
    """(inputs, targets) 1-D: ``tokens`` (T,) with one sentinel for each run of ``noise`` (T,), and what was dropped.

    Inputs: the kept text, the i-th run replaced by ``sentinels[i]``. Targets: each sentinel and the tokens that it
    stands for. A text that ends in kept text has one more sentinel, which closes the targets. ``end_id``, if
    given, is added to both. ``sentinels``: ids that count down, such as ``range(V - 1, V - 101, -1)``;
    in T5's checkpoints, whose table has spare rows, ``range(32_099, 31_999, -1)``.
    """
    _check_corruption(tokens, noise, sentinels, end_id)
    first = noise & ~F.pad(noise[:-1], (1, 0))  # (T,) where a run begins
    mark = sentinels[0] + 1 - first.cumsum(0)  # (T,) the sentinel of the run
    inputs = torch.where(first, mark, tokens)[first | ~noise]
    targets = torch.stack([mark, tokens], dim=1)[torch.stack([first, noise], dim=1)]  # a mark goes before its tokens
    closing = [] if noise[-1] else [int(mark[-1]) - 1]
    end = [] if end_id is None else [end_id]
    return torch.cat([inputs, tokens.new_tensor(end)]), torch.cat([targets, tokens.new_tensor(closing + end)])


def restore(inputs: Tensor, targets: Tensor, *, sentinels: range, end_id: int | None = None) -> Tensor:
    """The text (T,) that :func:`corrupt` took apart: each sentinel of ``inputs`` replaced by its part of ``targets``.

    Both 1-D, read up to ``end_id``, so that padding after it does not matter. What stands in ``targets`` before the
    first sentinel is left out. ``ValueError`` where ``targets`` lacks a sentinel of ``inputs``.
    """
    for name, ids in (("inputs", inputs), ("targets", targets)):
        if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.ndim != 1:
            raise TypeError(f"{name}: got {arguments.came(ids)}, expected int64 ids [T], one row of a batch")
    run, dropped = [], {}
    for token in _until(targets, end_id):
        if token in sentinels:
            run = dropped.setdefault(token, [])
        else:
            run.append(token)
    text = []
    for token in _until(inputs, end_id):
        if token in sentinels and token not in dropped:
            raise ValueError(f"targets: got no sentinel {token}, expected every one of inputs: they belong together")
        text += dropped[token] if token in sentinels else [token]
    return torch.tensor(text, dtype=torch.int64, device=inputs.device)


def _until(ids: Tensor, end_id: int | None) -> list[int]:
    ids = ids.tolist()
    return ids[: ids.index(end_id)] if end_id in ids else ids


def span_corruption(
    tokens: Tensor,
    *,
    sentinels: range,
    end_id: int | None = None,
    rate: float = 0.15,
    mean_span: float = 3.0,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """(inputs, targets) 1-D: :func:`corrupt` of ``tokens`` (T,) by a :func:`noise_mask` drawn for it."""
    check_tokens(tokens, ndim=1, least=2)
    noise = noise_mask(len(tokens), rate=rate, mean_span=mean_span, generator=generator).to(tokens.device)
    return corrupt(tokens, noise, sentinels=sentinels, end_id=end_id)


def span_corruption_batch(
    texts: Sequence[Tensor], *, pad_id: int, input_length: int, target_length: int, **settings
) -> tuple[Tensor, Tensor, Tensor]:
    """inputs (B, S), targets and weights (B, T): :func:`span_corruption` of each text, padded to the lengths given.

    ``texts``: B tensors 1-D, or one (B, T); :func:`span_corruption_lengths` says how long they may be. Weights are 0
    for padding. ``settings``: those of :func:`span_corruption`.
    """
    arguments.listed("texts", texts, "tensors of ids, one a text")
    if not len(texts):
        raise ValueError("texts: got none, expected one or more")
    arguments.whole("pad_id", pad_id + 1)
    if pad_id in settings["sentinels"] or pad_id == settings.get("end_id"):
        raise ValueError(f"pad_id: got {pad_id}, expected neither a sentinel nor end_id; give it an id of its own")
    if any(bool((text == pad_id).any()) for text in texts):
        raise ValueError(f"texts: got padding (id {pad_id}) in them, expected texts of their own length")
    inputs, targets = zip(*(span_corruption(text, **settings) for text in texts), strict=True)
    inputs, _ = _padded("input_length", inputs, input_length, pad_id)
    return inputs, *_padded("target_length", targets, target_length, pad_id)


def _padded(name: str, rows: Sequence[Tensor], length: int, pad_id: int) -> tuple[Tensor, Tensor]:
    """(B, length) ids and 1 where they are not padding."""
    arguments.whole(name, length)
    longest = max(map(len, rows))
    if longest > length:
        raise ValueError(f"{name}: got {length}, expected {longest} or more; or cut the texts to be shorter")
    ids = rows[0].new_full((len(rows), length), pad_id)
    real = torch.zeros_like(ids, dtype=torch.float32)
    for i, row in enumerate(rows):
        ids[i, : len(row)], real[i, : len(row)] = row, 1
    return ids, real


def span_corruption_lengths(input_length: int, rate: float = 0.15, mean_span: float = 3.0) -> tuple[int, int]:
    """(T, targets): the longest text whose inputs are no longer than ``input_length``, and the length of its targets.

    Both counted with an ``end_id``: 512 inputs hold 568 tokens, with 114 targets. So does T5's code at its own
    rate and span from ten inputs on; it has no floor of one span and no guard on their number, so that other settings
    can differ, and it evens out the two lengths at a rate of 0.5.
    """
    arguments.whole("input_length", input_length)
    if input_length < 3:
        raise ValueError(f"input_length: got {input_length}, expected 3 or more: a token, a sentinel and the end")
    beyond = 3
    while corrupted_lengths(beyond, rate, mean_span)[0] <= input_length:
        beyond *= 2
    # Neither kept tokens nor spans become fewer as T grows, so that the inputs do not become shorter.
    T = 1 + bisect.bisect(range(2, beyond), input_length, key=lambda T: corrupted_lengths(T, rate, mean_span)[0])
    return T, corrupted_lengths(T, rate, mean_span)[1]


def corrupted_lengths(T: int, rate: float = 0.15, mean_span: float = 3.0) -> tuple[int, int]:
    """(inputs, targets): how long ``T`` tokens become, both with an ``end_id``."""
    noise, spans = noise_and_spans(T, rate, mean_span)
    return T - noise + spans + 1, noise + spans + 1


def _check_corruption(tokens: Tensor, noise: Tensor, sentinels: range, end_id: int | None) -> None:
    check_tokens(tokens, ndim=1)
    if not isinstance(noise, Tensor) or noise.dtype != torch.bool or noise.shape != tokens.shape:
        raise TypeError(f"noise: got {arguments.came(noise)}, expected bool {list(tokens.shape)}, as tokens")
    arguments.kind("sentinels", sentinels, range, "use range(V - 1, V - 101, -1)")
    if sentinels.step != -1 or not sentinels or sentinels[-1] < 0:
        raise ValueError(f"sentinels: got {sentinels}, expected ids that count down; use range(V - 1, V - 101, -1)")
    needed = int((noise & ~F.pad(noise[:-1], (1, 0))).sum() + ~noise[-1])  # one a run, one to close
    if needed > len(sentinels):
        raise ValueError(f"sentinels: got {len(sentinels)}, expected {needed}; give more, or a shorter text")
    taken = ((tokens >= sentinels[-1]) & (tokens <= sentinels[0])) | (tokens == (-1 if end_id is None else end_id))
    if bool(taken.any()):
        raise ValueError(f"tokens: got {int(tokens[taken][0])} among them, expected neither a sentinel nor the end_id")
