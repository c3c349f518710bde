"""Scaled dot-product attention three ways (plain, online, fused), the layer with heads and groups, and its cache.

Shapes: queries (B, H, T, d), keys and values (B, G, S, d) with G = H, or G a divisor of H where heads share keys and
values. The T queries stand at the end of the S keys. A query that may see no key at all gets zeros.
"""

from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmcourse import masks
from lmcourse.arguments import came
from lmcourse.configuration import Config
from lmcourse.positions import rotate


@dataclass(frozen=True)
class View:
    """What the queries may see, and how places enter the scores."""

    causal: bool = False  # no query sees a key behind it
    mask: Tensor | None = None  # booleans, broadcastable to (B, H, T, S): True where a query may look
    bias: Tensor | None = None  # added to the scores, broadcastable to (B, H, T, S)
    rotation: tuple[Tensor, Tensor] | None = None  # cos and sin, (T, d/2) or (B, 1, T, d/2): turn queries and keys
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
    _shapes(q, k, k)
    scores = masked_scores(q, k, view, scale)
    # -∞ minus itself is not a number: a row without any key gets a finite maximum, and its weights are 0 / tiny = 0.
    greatest = scores.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    odds = (scores - greatest).exp()
    return odds / odds.sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, view: View = View(), scale: float | None = None) -> Tensor:
    """softmax(QKᵀ/√d + bias + M) V, as the equation stands: (B, H, T, d). Time and memory O(T·S)."""
    _shapes(q, k, v)
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
    _shapes(q, k, v)
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
    return weighted / total.clamp(min=torch.finfo(q.dtype).tiny)


# ------------------------------------------------------------------------------------------------- fused


def fused_attention(q: Tensor, k: Tensor, v: Tensor, view: View = View(), scale: float | None = None) -> Tensor:
    """The same by torch's own kernel, which is an online softmax where it can be: (B, H, T, d)."""
    _shapes(q, k, v)
    T, S = q.shape[-2], k.shape[-2]
    whole = view.causal and view.mask is None and view.bias is None and T == S  # the kernel knows this mask itself
    allowed = None if whole else view.allowed(T, S, q.device)
    if view.bias is not None:
        allowed = view.bias if allowed is None else view.bias.masked_fill(~allowed, -torch.inf)
    return F.scaled_dot_product_attention(
        q, k, v, allowed, view.dropout, is_causal=whole, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )


def _repeat(k: Tensor, q: Tensor) -> Tensor:
    """Keys or values (B, G, S, d) → (B, H, S, d): heads H/G·g to H/G·(g + 1) - 1 share group g."""
    return k if k.shape[1] == q.shape[1] else k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)


def _columns(x: Tensor | None, block: slice) -> Tensor | None:
    """The keys ``block`` of a mask or bias, whose last dimension may be 1 for all keys."""
    return x if x is None or x.shape[-1] == 1 else x[..., block]


def _shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) or x.ndim != 4:
            raise ValueError(f"{name}: got {came(x)}, expected (B, heads, length, d)")
    if q.shape[0] != k.shape[0] or q.shape[-1] != k.shape[-1] or q.shape[1] % k.shape[1] or k.shape != v.shape:
        shapes = ", ".join(str(list(x.shape)) for x in (q, k, v))
        raise ValueError(f"q, k, v: got {shapes}, expected (B, H, T, d) and twice (B, G, S, d), H a multiple of G")


# ------------------------------------------------------------------------------------------------- layer


class LayerCache:
    """The keys and values of one layer for the tokens read so far, in buffers that grow by doubling. No gradients."""

    def __init__(self):
        self.length = 0
        self.buffers: tuple[Tensor, Tensor] | None = None  # keys, values: (B, G, capacity, d)
        self.memory: tuple[Tensor, Tensor] | None = None  # those of an encoder's states, which do not grow

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append (B, G, T, d) keys and values; return all so far."""
        start, self.length = self.length, self.length + k.shape[2]
        if self.buffers is None or self.length > self.buffers[0].shape[2]:
            self.buffers = tuple(self._grown(old, new) for old, new in zip(self.buffers or (None, None), (k, v)))
        for buffer, new in zip(self.buffers, (k, v)):
            buffer[:, :, start : self.length] = new
        return tuple(buffer[:, :, : self.length] for buffer in self.buffers)

    def _grown(self, old: Tensor | None, new: Tensor) -> Tensor:
        B, G, _, d = new.shape
        grown = new.new_zeros(B, G, max(64, 2 * self.length), d)
        if old is not None:
            grown[:, :, : old.shape[2]] = old
        return grown


class Cache(dict):
    """A ``LayerCache`` for each layer, made when it is first asked for: generation then reads each token once."""

    def __missing__(self, layer: int) -> LayerCache:
        return self.setdefault(layer, LayerCache())

    @property
    def length(self) -> int:
        """How many tokens were read."""
        return self[0].length

    @property
    def bytes(self) -> int:
        """What the keys and values so far take: 2·layers·B·G·T·d numbers."""
        pairs = [layer.buffers for layer in self.values() if layer.buffers]
        return sum(x[:, :, : self.length].numel() * x.element_size() for pair in pairs for x in pair)


class Attention(nn.Module):
    """Multi-head attention, Vaswani et al. 2017, section 3.2.2; grouped-query (Ainslie et al. 2023) with ``kv_heads``.

    Queries come from ``x``; keys and values from ``x`` too, or from the ``memory`` of an encoder (cross-attention).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.d, self.dropout = config.d, config.dropout
        self.scale = None if config.scale_scores else 1.0
        self.query = nn.Linear(config.width, config.heads * config.d, config.bias)
        self.key_value = nn.Linear(config.width, 2 * config.groups * config.d, config.bias)
        self.output = nn.Linear(config.heads * config.d, config.width, config.bias)
        self.kernel = fused_attention

    def forward(
        self, x: Tensor, view: View = View(), memory: Tensor | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        q = self.split(self.query(x))  # (B, H, T, d)
        if view.rotation is not None:
            q = rotate(q, *view.rotation)
        k, v = self.keys_values(x, view, cache) if memory is None else self.memory_keys_values(memory, cache)
        if self.training and self.dropout:
            view = replace(view, dropout=self.dropout)
        heads = self.kernel(q, k, v, view, self.scale)  # (B, H, T, d)
        return self.output(heads.transpose(1, 2).flatten(2))  # (B, T, H·d) → (B, T, D)

    def keys_values(self, x: Tensor, view: View, cache: LayerCache | None) -> tuple[Tensor, Tensor]:
        k, v = (self.split(part) for part in self.key_value(x).chunk(2, dim=-1))  # (B, G, T, d) each
        if view.rotation is not None:
            k = rotate(k, *view.rotation)
        return (k, v) if cache is None else cache.extend(k, v)

    def memory_keys_values(self, memory: Tensor, cache: LayerCache | None) -> tuple[Tensor, Tensor]:
        if cache is not None and cache.memory is not None:
            return cache.memory
        k, v = (self.split(part) for part in self.key_value(memory).chunk(2, dim=-1))
        if cache is not None:
            cache.memory = k, v
        return k, v

    def split(self, x: Tensor) -> Tensor:
        """(B, T, H·d) → (B, H, T, d)."""
        return x.unflatten(-1, (-1, self.d)).transpose(1, 2)


@contextmanager
def recorded(model: nn.Module):
    """Within it, ``model`` uses plain attention and keeps the weights: yields a list of (B, H, T, S), one a call."""
    weights: list[Tensor] = []

    def kernel(q, k, v, view, scale):
        weights.append(attention_weights(q, k, view, scale).detach())
        return plain_attention(q, k, v, view, scale)

    layers = [module for module in model.modules() if isinstance(module, Attention)]
    before = [layer.kernel for layer in layers]
    try:
        for layer in layers:
            layer.kernel = kernel
        yield weights
    finally:
        for layer, old in zip(layers, before):
            layer.kernel = old
