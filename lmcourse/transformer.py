"""One Transformer block, and the stack, embedding and head around it: BERT, GPT and T5 are all made of these.

An encoder and a decoder are the same ``Stack``. The decoder's is told ``causal=True``, and T5's decoder has blocks with
``cross`` attention to the encoder's states. So GPT's weights fit into a BERT of the same configuration, and with
``bert.stack.causal = True`` it gives GPT's scores, bit for bit (a test does it). B batch, T tokens, S tokens that are
attended to, D width, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmcourse import arguments, masks
from lmcourse.attention import View
from lmcourse.configuration import Config
from lmcourse.multihead import Attention, Cache, LayerCache, tokens_read
from lmcourse.objectives import cross_entropy
from lmcourse.positions import RelativeBias, rotary, sinusoidal

GELU_TANH = nn.GELU(approximate="tanh")
ACTIVATIONS = {"gelu": F.gelu, "gelu_tanh": GELU_TANH, "relu": F.relu, "geglu": GELU_TANH, "swiglu": F.silu}
GATED = ("geglu", "swiglu")


def norm(config: Config) -> nn.Module:
    """LayerNorm (Ba et al. 2016) or RMSNorm (Zhang & Sennrich 2019): over the last dimension, ε under the root."""
    if config.norm == "rms":
        return RMSNorm(config.width, eps=config.epsilon)
    return nn.LayerNorm(config.width, eps=config.epsilon, bias=config.bias)


class RMSNorm(nn.RMSNorm):
    """torch's, with its weight in the type of ``x``: under autocast the two differ, and it would warn and slow down."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class FeedForward(nn.Module):
    """W₂ f(W₁ x): Vaswani et al. 2017, equation 2. With a gate W₂ (f(W₁ x) ⊙ W₃ x): Shazeer 2020, equation 6."""

    def __init__(self, config: Config):
        super().__init__()
        hidden = config.hidden or 4 * config.width
        self.activation, self.gated = ACTIVATIONS[config.activation], config.activation in GATED
        self.up = nn.Linear(config.width, hidden * (1 + self.gated), config.bias)  # W₁, with a gate f(W₁x) [W₁; W₃]
        self.down = nn.Linear(hidden, config.width, config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        if not self.gated:
            return self.down(self.activation(self.up(x)))
        gate, x = self.up(x).chunk(2, dim=-1)
        return self.down(self.activation(gate) * x)


class Residual(nn.Module):
    """x + f(norm(x)), as in GPT-2 and T5, or norm(x + f(x)), as in Vaswani et al. 2017 and BERT."""

    def __init__(self, config: Config, sublayer: nn.Module):
        super().__init__()
        self.norm, self.norm_first = norm(config), config.norm_first
        self.sublayer, self.dropout = sublayer, nn.Dropout(config.dropout)

    def forward(self, x: Tensor, **options) -> Tensor:
        if self.norm_first:
            return x + self.dropout(self.sublayer(self.norm(x), **options))
        return self.norm(x + self.dropout(self.sublayer(x, **options)))


class Block(nn.Module):
    """Tokens exchange what they know (attention), then each thinks alone (feed-forward): (B, T, D) → (B, T, D)."""

    def __init__(self, config: Config, cross: bool = False):
        super().__init__()
        self.attention = Residual(config, Attention(config))
        self.cross_attention = Residual(config, Attention(config, cross=True)) if cross else None
        self.feed_forward = Residual(config, FeedForward(config))

    def forward(
        self,
        x: Tensor,
        view: View = View(),
        memory: Tensor | None = None,
        memory_view: View = View(),
        cache: LayerCache | None = None,
    ) -> Tensor:
        x = self.attention(x, view=view, cache=cache)
        if self.cross_attention is not None:
            x = self.cross_attention(x, view=memory_view, memory=memory, cache=cache)
        return self.feed_forward(x)


class Stack(nn.Module):
    """``layers`` blocks, and a norm at the end where the norm comes first in each."""

    def __init__(self, config: Config, causal: bool = False, cross: bool = False):
        super().__init__()
        self.config, self.causal, self.cross = config, causal, cross
        self.blocks = nn.ModuleList(Block(config, cross) for _ in range(config.layers))
        self.norm = norm(config) if config.norm_first else nn.Identity()
        self.bias = RelativeBias(config.heads, both_sides=not causal) if config.position == "relative" else None

    def forward(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: Cache | None = None,
        states: list[Tensor] | None = None,
    ) -> Tensor:
        """(B, T, D) → (B, T, D).

        ``attention_mask``: booleans (B, S), True at real tokens, S = T or, with a cache, all tokens so far.
        ``memory`` (B, S, D) and ``memory_mask`` (B, S): an encoder's states for cross-attention.
        ``states``: a list that then holds layers + 1 tensors: the input, and what each block gave (the last normed).
        """
        self.check(x, memory, memory_mask, cache)
        view = self.view(x, attention_mask, cache)
        memory_view = View(mask=None if memory_mask is None else masks.padding(memory_mask))
        for i, block in enumerate(self.blocks):
            if states is not None:
                states.append(x)
            x = block(x, view, memory, memory_view, cache=None if cache is None else cache[i])
        x = self.norm(x)
        if states is not None:
            states.append(x)
        return x

    def check(self, x: Tensor, memory: Tensor | None, memory_mask: Tensor | None, cache: Cache | None) -> None:
        if self.cross:
            arguments.states("memory", memory, len(x), self.config.width)
            if memory_mask is not None:
                arguments.real_tokens("memory_mask", memory_mask, tuple(memory.shape[:2]))
        elif memory is not None:
            raise ValueError("memory: got states, expected None: these blocks have no cross-attention")
        if cache is not None:
            cache.check(len(x), len(self.blocks))

    def view(self, x: Tensor, attention_mask: Tensor | None, cache: Cache | None) -> View:
        """What the tokens of ``x`` may see, and how their places enter the scores."""
        T, past = x.shape[1], tokens_read(cache)
        mask = None if attention_mask is None else masks.padding(attention_mask)
        if self.config.window is not None and self.causal:
            near = masks.window(T, self.config.window, past + T, x.device)
            mask = near if mask is None else near & mask
        rotation = None
        if self.config.position == "rotary":
            where = places(T, past, attention_mask, x.device)
            cos, sin = rotary(where, self.config.d)  # (T, d/2) or (B, T, d/2)
            rotation = (cos, sin) if cos.ndim == 2 else (cos[:, None], sin[:, None])  # (B, 1, T, d/2): for every head
            rotation = tuple(part.to(x.dtype) for part in rotation)
        return View(
            causal=self.causal,
            mask=mask,
            bias=None if self.bias is None else self.bias(T, past + T),
            rotation=rotation,
        )


def places(T: int, past: int, attention_mask: Tensor | None, device: torch.device) -> Tensor:
    """0, 1, 2, … for the last T of past + T tokens: (T,), or (B, T) counted over real tokens where there is padding.

    Padding stands at one end; relative positions, which see distances only, would count it in the middle.
    """
    if attention_mask is None:
        return torch.arange(past, past + T, device=device)
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, past:]


class Embedding(nn.Module):
    """Token + position + segment vectors: (B, T) ids → (B, T, D). Not times √D, as Vaswani et al. 2017 have it."""

    def __init__(self, config: Config):
        super().__init__()
        arguments.kind("config", config, Config, "use Config(vocabulary) or Config.gpt2()")
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.positions, config.width) if config.position == "learned" else None
        self.segments = nn.Embedding(config.segments, config.width) if config.segments else None
        self.norm = nn.Identity() if config.norm_first else norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, tokens: Tensor, attention_mask: Tensor | None = None, segments: Tensor | None = None, past: int = 0
    ) -> Tensor:
        self.check(tokens, attention_mask, segments, past)
        x = self.tokens(tokens)
        if self.config.position in ("learned", "sinusoidal"):
            where = places(tokens.shape[1], past, attention_mask, tokens.device)
            if self.positions is None:
                x = x + sinusoidal(where, self.config.width).to(x.dtype)
            else:
                x = x + self.positions(where + self.config.first_position)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(tokens) if segments is None else segments)
        return in_autocast_type(self.dropout(self.norm(x)))

    def check(self, tokens: Tensor, attention_mask: Tensor | None, segments: Tensor | None, past: int) -> None:
        arguments.token_ids("tokens", tokens, self.config.vocabulary, self.config.longest, past)
        if attention_mask is not None:
            arguments.real_tokens("attention_mask", attention_mask, (len(tokens), past + tokens.shape[1]))
        if segments is not None:
            if self.segments is None:
                raise ValueError("segments: got some, expected None: this model has none; use Config(segments=2)")
            arguments.token_ids("segments", segments, self.config.segments)
            if segments.shape != tokens.shape:
                raise ValueError(f"segments: got {list(segments.shape)}, expected {list(tokens.shape)}, as tokens")


def in_autocast_type(x: Tensor) -> Tensor:
    """Under autocast the stream is kept in half precision from the start: nothing is converted back and forth."""
    kind = x.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return x
    return x.to(torch.get_autocast_dtype(kind))


class Head(nn.Module):
    """States to scores over the vocabulary: (..., D) → (..., V). The matrix is the embedding's unless untied.

    Press & Wolf 2017 (tying); BERT's code (the transform before it); T5's code (the factor 1/√D).
    """

    def __init__(self, config: Config, embedding: Embedding):
        super().__init__()
        D, V = config.width, config.vocabulary
        self.transform = nn.Sequential(nn.Linear(D, D), nn.GELU(), norm(config)) if config.head_transform else None
        self.vocabulary = nn.Linear(D, V, config.head_bias)
        if config.tied:
            self.vocabulary.weight = embedding.tokens.weight
        self.scale = D**-0.5 if config.head_scaled and config.tied else 1.0

    def forward(self, x: Tensor) -> Tensor:
        if self.transform is not None:
            x = self.transform(x)
        return self.vocabulary(x if self.scale == 1 else x * self.scale)

    def loss(self, x: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """The weighted mean of -log p(target) over (B, T): scores are computed only where the weight is not 0."""
        if arguments.can_look(weights) and not bool((counted := weights != 0).all()):
            x, targets, weights = x[counted], targets[counted], weights[counted]  # (N, D), (N,), (N,)
        return cross_entropy(self(x), targets, weights)


def label_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """The mean of -log p(label) over a batch of texts: scores (B, labels), labels (B,)."""
    return cross_entropy(scores, labels, torch.ones_like(labels, dtype=scores.dtype))
