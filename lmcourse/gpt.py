"""GPT: a Transformer that never looks ahead and predicts the next token (Radford et al. 2018, 2019)."""

import torch
from torch import Tensor, nn

from lmcourse.attention import Cache
from lmcourse.configuration import Config
from lmcourse.transformer import Embedding, Head, Stack, initialise


class GPT(nn.Module):
    """Token ids (B, T) → scores (B, T, V) for the token that follows each."""

    def __init__(self, config: Config, generator: torch.Generator | None = None):
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.stack = Stack(config, causal=True)
        self.head = Head(config, self.embedding)
        initialise(self, config, generator)

    def hidden(
        self,
        tokens: Tensor,
        attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        states: list[Tensor] | None = None,
    ) -> Tensor:
        """The last states (B, T, D). ``states``: a list to fill with the input and the output of each block."""
        past = 0 if cache is None else cache.length
        x = self.embedding(tokens, attention_mask, past=past)
        return self.stack(x, attention_mask, cache=cache, states=states)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        return self.head(self.hidden(tokens, attention_mask, cache))

    def next_scores(self, tokens: Tensor, attention_mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Scores (B, V) for the token after the last, what ``generation.generate`` asks for."""
        return self.head(self.hidden(tokens, attention_mask, cache)[:, -1])

    def loss(
        self, inputs: Tensor, targets: Tensor, weights: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor:
        """-log p(targets | inputs), the mean over weights (B, T); inputs and targets from ``objectives.causal_lm``."""
        return self.head.loss(self.hidden(inputs, attention_mask), targets, weights)
