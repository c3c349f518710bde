"""T5: an encoder that looks both ways and a decoder that never looks ahead but at the encoder (Raffel et al. 2020)."""

import torch
from torch import Tensor, nn

from lmcourse.configuration import Config
from lmcourse.initialisation import initialise
from lmcourse.multihead import Cache, tokens_read
from lmcourse.transformer import Embedding, Head, Stack


class T5(nn.Module):
    """Input ids (B, S) and output ids (B, T) → scores (B, T, V) for the output token at each place."""

    def __init__(self, config: Config, generator: torch.Generator | None = None):
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.encoder = Stack(config)
        self.decoder = Stack(config, causal=True, cross=True)
        self.head = Head(config, self.embedding)
        initialise(self, config, generator)

    def encode(
        self, tokens: Tensor, attention_mask: Tensor | None = None, states: list[Tensor] | None = None
    ) -> Tensor:
        """The encoder's states (B, S, D), the memory that the decoder looks at."""
        return self.encoder(self.embedding(tokens, attention_mask), attention_mask, states=states)

    def decode(
        self,
        tokens: Tensor,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        cache: Cache | None = None,
        states: list[Tensor] | None = None,
    ) -> Tensor:
        """The decoder's states (B, T, D) for output ``tokens`` that begin with the start token."""
        x = self.embedding(tokens, past=tokens_read(cache))
        return self.decoder(x, None, memory, memory_mask, cache, states)

    def forward(self, inputs: Tensor, outputs: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.head(self.decode(outputs, self.encode(inputs, attention_mask), attention_mask))

    def next_scores(
        self, tokens: Tensor, memory: Tensor, memory_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Scores (B, V) for the output token after the last, what ``generation.generate`` asks for."""
        return self.head(self.decode(tokens, memory, memory_mask, cache)[:, -1])

    def loss(
        self, inputs: Tensor, targets: Tensor, weights: Tensor, attention_mask: Tensor | None = None, start: int = 0
    ) -> Tensor:
        """-log p(targets | inputs), the mean over weights (B, T); from ``corruption.span_corruption`` or ``prefix_lm``.

        The decoder reads the targets shifted by one place, behind the id ``start``.
        """
        memory = self.encode(inputs, attention_mask)
        read = shifted(targets.masked_fill(weights == 0, start), start)  # where nothing counts, anything may stand
        return self.head.loss(self.decode(read, memory, attention_mask), targets, weights)


def shifted(targets: Tensor, start: int = 0) -> Tensor:
    """``start`` and all targets but the last: what a decoder has read when it predicts each target. (B, T) → (B, T)."""
    return torch.cat([torch.full_like(targets[:, :1], start), targets[:, :-1]], dim=1)
