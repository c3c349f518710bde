"""Scaled dot-product attention three ways: plain, as the equation stands; online, in blocks; and fast, the same again
for the sake of speed, which may be skipped at first reading.

Shapes: queries (B, H, T, d), keys and values (B, G, S, d) with G = H, or G a divisor of H where heads share keys and
values. The T queries stand at the end of the S keys. A query that may see no key at all gets zeros.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lmcourse import masks
from lmcourse.arguments import came, kind, whole

SHORT = 512  # keys: a CPU's cache then still holds what one head's weights take


@dataclass(frozen=True)
class View:
    """What the queries may see, and how places enter the scores."""

    causal: bool = False  # no query sees a later key
    mask: Tensor | None = None  # booleans, broadcastable to (B, H, T, S): True where a query may look
    bias: Tensor | None = None  # added to the scores, broadcastable to (B, H, T, S)
    # cos and sin, (T, d/2) or (B, 1, T, d/2), by which the layer turns queries and keys before it attends
    rotation: tuple[Tensor, Tensor] | None = None
    dropout: float = 0.0  # of the weights

    def allowed(self, T: int, S: int, device: torch.device) -> Tensor | None:
        """``causal`` and ``mask`` in one mask, None where everything may be seen."""
        if not self.causal or T == 1:  # the last query sees every key
            return self.mask
        causal = masks.causal(T, S, device)
        return causal if self.mask is None else causal & self.mask


# ------------------------------------------------------------------------------------------------- plain


def masked_scores(q: Tensor, k: Tensor, view: View = View(), scale: float | None = None) -> Tensor:
    """QKᵀ/√d + bias + M: (B, H, T, S), -∞ where a query may not look. ``scale`` stands for 1/√d."""
    scores = q @ _repeat(k, q).mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if view.bias is not None:
        scores = scores + view.bias
    allowed = view.allowed(*scores.shape[-2:], q.device)
    return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)


def attention_weights(q: Tensor, k: Tensor, view: View = View(), scale: float | None = None) -> Tensor:
    """softmax(QKᵀ/√d + bias + M), for each query a distribution over the keys: (B, H, T, S).

    Vaswani et al. 2017, equation 1.
    """
    _shapes(q, k, k, view)
    scores = masked_scores(q, k, view, scale)
    # -∞ minus itself is not a number: a row without any key gets a finite maximum, and its weights are 0 / 1.
    greatest = scores.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    odds = (scores - greatest).exp()
    return odds / _or_one(odds.sum(-1, keepdim=True))


def plain_attention(q: Tensor, k: Tensor, v: Tensor, view: View = View(), scale: float | None = None) -> Tensor:
    """softmax(QKᵀ/√d + bias + M) V, as the equation stands: (B, H, T, d). Time and memory O(T·S)."""
    _shapes(q, k, v, view)
    return F.dropout(attention_weights(q, k, view, scale), view.dropout) @ _repeat(v, q)


# ------------------------------------------------------------------------------------------------ online


def online_attention(
    q: Tensor, k: Tensor, v: Tensor, view: View = View(), scale: float | None = None, size: int = 64
) -> Tensor:
    """The same, exactly, in one pass over blocks of ``size`` keys, never holding all T·S scores: (B, H, T, d).

    Each query keeps its greatest score so far, the sum of exponentials and the weighted sum of values; where a block
    brings a greater score, what was summed shrinks by exp(old - new). Milakov & Gimelshein 2018, algorithm 3; Dao et
    al. 2022 ("FlashAttention"), algorithm 1. No dropout.
    """
    _shapes(q, k, v, view)
    whole("size", size)
    if view.dropout:
        raise ValueError(f"view: got dropout {view.dropout}, expected 0: no weights are kept that could be dropped")
    allowed = view.allowed(q.shape[-2], k.shape[-2], q.device)
    greatest = q.new_full((*q.shape[:-1], 1), torch.finfo(q.dtype).min)  # (B, H, T, 1)
    total, weighted = torch.zeros_like(greatest), torch.zeros_like(q)
    for start in range(0, k.shape[-2], size):
        block = slice(start, start + size)
        part = View(mask=_columns(allowed, block), bias=_columns(view.bias, block))
        scores = masked_scores(q, k[..., block, :], part, scale)  # (B, H, T, size)
        new = torch.maximum(greatest, scores.amax(-1, keepdim=True))
        odds, shrink = (scores - new).exp(), (greatest - new).exp()
        total = total * shrink + odds.sum(-1, keepdim=True)
        weighted = weighted * shrink + odds @ _repeat(v[..., block, :], q)
        greatest = new
    return weighted / _or_one(total)


# -------------------------------------------------------------------------------------------------- fast


def fast_attention(q: Tensor, k: Tensor, v: Tensor, view: View = View(), scale: float | None = None) -> Tensor:
    """The same as fast as the device can: (B, H, T, d). Torch's own kernel, an online softmax where it can be.

    On a CPU the gradient of that kernel is slow in bfloat16, and it falls back for dropout and for a bias that learns.
    Training on up to ``SHORT`` keys keeps the weights there instead.
    """
    _shapes(q, k, v, view)
    T, S = q.shape[-2], k.shape[-2]
    training = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad)
    if training and q.device.type == "cpu" and S <= SHORT:
        return _kept_attention(q, _repeat(k, q), _repeat(v, q), view, scale)
    known = view.causal and view.mask is None and view.bias is None and T == S  # the kernel has this mask built in
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        None if known else _added(view, q, S),
        view.dropout,
        is_causal=known,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )


def _kept_attention(q: Tensor, k: Tensor, v: Tensor, view: View, scale: float | None) -> Tensor:
    """``plain_attention`` in few passes over memory: one matrix product adds the bias, heads are part of the batch."""
    B, H, T, d = q.shape
    added = _added(view, q, k.shape[2])
    sees_all = view.mask is None and view.bias is None  # a causal mask alone leaves each query itself
    unseen = None if sees_all else (added == -torch.inf).all(-1, keepdim=True)  # queries that see no key
    if unseen is not None:
        added = added.masked_fill(unseen, 0)
    queries, keys, values = q.reshape(B * H, T, d), k.reshape(B * H, -1, d), v.reshape(B * H, -1, d)
    something = added is not None
    added = added.expand(B, H, T, -1).reshape(B * H, T, -1) if something else queries.new_empty(1, 1, 1)
    scale = d**-0.5 if scale is None else scale
    scores = torch.baddbmm(added, queries, keys.mT, beta=int(something), alpha=scale)  # beta·added + alpha·QKᵀ
    heads = torch.bmm(F.dropout(scores.softmax(-1), view.dropout), values).view(B, H, T, d)
    return heads if unseen is None else heads.masked_fill(unseen, 0)


def _added(view: View, q: Tensor, S: int) -> Tensor | None:
    """bias + M, what is added to the scores: broadcastable to (B, H, T, S), None where nothing is."""
    allowed = view.allowed(q.shape[2], S, q.device)
    if allowed is None:
        return view.bias
    if view.bias is not None:
        return view.bias.masked_fill(~allowed, -torch.inf)
    return masks.additive(allowed, q.dtype)


def _or_one(total: Tensor) -> Tensor:
    """``total``, and 1 where it is 0: nothing was seen there, and 0 / 1 has a gradient that is 0."""
    return torch.where(total > 0, total, 1)


def _repeat(k: Tensor, q: Tensor) -> Tensor:
    """Keys or values (B, G, S, d) → (B, H, S, d): heads H/G·g to H/G·(g + 1) - 1 share group g."""
    return k if k.shape[1] == q.shape[1] else k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)


def _columns(x: Tensor | None, block: slice) -> Tensor | None:
    """The keys ``block`` of a mask or bias, whose last dimension may be 1 for all keys."""
    return x if x is None or x.shape[-1] == 1 else x[..., block]


def _shapes(q: Tensor, k: Tensor, v: Tensor, view: View) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) or x.ndim != 4:
            raise ValueError(f"{name}: got {came(x)}, expected (B, heads, length, d)")
    if q.shape[0] != k.shape[0] or q.shape[-1] != k.shape[-1] or q.shape[1] % k.shape[1] or k.shape != v.shape:
        shapes = ", ".join(str(list(x.shape)) for x in (q, k, v))
        raise ValueError(f"q, k, v: got {shapes}, expected (B, H, T, d) and twice (B, G, S, d), H a multiple of G")
    kind("view", view, View, "use View(causal=True)")
    B, H, T, S = *q.shape[:3], k.shape[2]
    for name, x in (("mask", view.mask), ("bias", view.bias)):
        if x is None:
            continue
        if not isinstance(x, Tensor) or (x.dtype == torch.bool) != (name == "mask"):
            raise TypeError(f"view.{name}: got {came(x)}, expected {'booleans' if name == 'mask' else 'numbers'}")
        if x.ndim > 4 or any(a not in (1, b) for a, b in zip(x.shape[::-1], (S, T, H, B))):
            raise ValueError(f"view.{name}: got {came(x)}, expected a shape that broadcasts to ({B}, {H}, {T}, {S})")
