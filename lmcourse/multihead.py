"""Attention with many heads as a layer, the cache of its keys and values, and a way to see its weights."""

from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from lmcourse.arguments import came, kind
from lmcourse.attention import View, attention_weights, fast_attention, plain_attention
from lmcourse.configuration import Config
from lmcourse.positions import rotate


class LayerCache:
    """The keys and values of one layer for the tokens read so far, in buffers that grow by doubling. No gradients."""

    def __init__(self):
        self.length = 0
        self.buffers: tuple[Tensor, Tensor] | None = None  # keys, values: (B, G, capacity, d)
        self.memory: tuple[Tensor, Tensor, Tensor] | None = None  # an encoder's states, their keys and values

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append (B, G, T, d) keys and values; return all so far."""
        if k.requires_grad:
            raise ValueError("cache: got states with gradients, expected none; use it within torch.inference_mode()")
        length = self.length + k.shape[2]
        if self.buffers is None or length > self.buffers[0].shape[2]:
            self.buffers = tuple(self._grown(old, new) for old, new in zip(self.buffers or (None, None), (k, v)))
        for buffer, new in zip(self.buffers, (k, v)):
            buffer[:, :, self.length : length] = new
        self.length = length
        return tuple(buffer[:, :, :length] for buffer in self.buffers)

    def _grown(self, old: Tensor | None, new: Tensor) -> Tensor:
        B, G, T, d = new.shape
        grown = new.new_zeros(B, G, max(64, 2 * (self.length + T)), d)
        if old is not None:
            grown[:, :, : old.shape[2]] = old
        return grown


class Cache(dict):
    """A ``LayerCache`` for each layer, made when it is first asked for: generation then reads each token once.

    Write and read it in one mode throughout, ``torch.inference_mode()`` or ``torch.no_grad()``.
    """

    def __missing__(self, layer: int) -> LayerCache:
        return self.setdefault(layer, LayerCache())

    @property
    def length(self) -> int:
        """How many tokens were read."""
        return self[0].length

    def check(self, B: int, layers: int) -> None:
        """Raise where another batch or another model was read before, or a call was interrupted halfway."""
        lengths = [self[i].length for i in range(layers)]
        if len(self) > layers or len(set(lengths)) > 1:
            raise ValueError(f"cache: got layers that read {lengths} tokens, expected as many each; use a new Cache()")
        if self.length and len(self[0].buffers[0]) != B:
            before = len(self[0].buffers[0])
            raise ValueError(f"cache: got a batch of {B}, expected {before}, as before; use a new Cache()")

    @property
    def bytes(self) -> int:
        """What the keys and values so far take: 2·layers·B·G·T·d numbers."""
        pairs = [layer.buffers for layer in self.values() if layer.buffers]
        return sum(x[:, :, : self.length].numel() * x.element_size() for pair in pairs for x in pair)


def tokens_read(cache: Cache | None) -> int:
    """How many tokens stand in ``cache``; 0 without one."""
    if cache is None:
        return 0
    kind("cache", cache, Cache, "use Cache()")
    return cache.length


class Attention(nn.Module):
    """Multi-head attention, Vaswani et al. 2017, section 3.2.2; grouped-query (Ainslie et al. 2023) with ``kv_heads``.

    Queries come from ``x``; keys and values from ``x`` too, or from the ``memory`` of an encoder (cross-attention).
    """

    def __init__(self, config: Config, cross: bool = False):
        super().__init__()
        D, d = config.width, config.d
        self.d, self.dropout, self.cross = d, config.dropout, cross
        self.width = D
        self.sizes = config.heads * d, config.groups * d, config.groups * d  # of all queries, keys, values
        self.scale = None if config.scale_scores else 1.0  # None: 1/√d
        if cross:
            self.query = nn.Linear(D, self.sizes[0], config.bias)
            self.key_value = nn.Linear(D, sum(self.sizes[1:]), config.bias)
        else:
            self.query_key_value = nn.Linear(D, sum(self.sizes), config.bias)  # three matrices in one product
        self.output = nn.Linear(self.sizes[0], D, config.bias)
        self.kernel = fast_attention

    def forward(
        self, x: Tensor, view: View = View(), memory: Tensor | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        kind("view", view, View, "use View(mask=…) or View(causal=True)")
        if x.shape[-1] != self.width:
            raise ValueError(f"x: got {came(x)}, expected (B, T, {self.width}), the width of the model")
        if (memory is not None) != self.cross:
            raise ValueError(f"memory: got {came(memory)}, expected {'states (B, S, D)' if self.cross else 'None'}")
        q, k, v = self.self_attention(x, view, cache) if memory is None else self.cross_attention(x, memory, cache)
        if self.training and self.dropout:
            view = replace(view, dropout=self.dropout)
        heads = self.kernel(q, k, v, view, self.scale)  # (B, H, T, d)
        return self.output(heads.transpose(1, 2).flatten(2))  # (B, T, H·d) → (B, T, D)

    def self_attention(self, x: Tensor, view: View, cache: LayerCache | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, T, d), keys and values (B, G, S, d) of the same tokens and those in the cache."""
        q, k, v = (self.split(part) for part in self.query_key_value(x).split(self.sizes, dim=-1))
        if view.rotation is not None:
            q, k = rotate(q, *view.rotation), rotate(k, *view.rotation)
        return (q, k, v) if cache is None else (q, *cache.extend(k, v))

    def cross_attention(self, x: Tensor, memory: Tensor, cache: LayerCache | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of ``x``, keys and values of ``memory``, which a cache keeps from the first call on."""
        pair = None
        if cache is not None and cache.memory is not None:
            before, *pair = cache.memory
            if before is not memory:
                raise ValueError("cache: got another memory than before, expected the same; use a new Cache()")
        if pair is None:
            pair = tuple(self.split(part) for part in self.key_value(memory).split(self.sizes[1:], dim=-1))
            if cache is not None:
                cache.memory = memory, *pair
        return self.split(self.query(x)), *pair

    def split(self, x: Tensor) -> Tensor:
        """(B, T, H·d) → (B, H, T, d)."""
        return x.unflatten(-1, (-1, self.d)).transpose(1, 2)


@contextmanager
def recorded(model: nn.Module):
    """``with recorded(model) as weights:`` the model uses plain attention and appends its weights (B, H, T, S).

    One tensor each time that a layer attends: for GPT and BERT ``weights[i]`` is that of layer i; T5 gives those of
    its encoder, then for each layer of its decoder self- and cross-attention. ``generate`` calls the model again and
    again, and each call appends.
    """
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
