"""BERT: a Transformer that looks both ways and restores masked tokens (Devlin et al. 2019); RoBERTa, SpanBERT."""

import torch
from torch import Tensor, nn

from lmcourse.configuration import Config
from lmcourse.transformer import Embedding, Head, Stack, initialise


class BERT(nn.Module):
    """Token ids (B, T) → scores (B, T, V) for the token that stands at each place."""

    def __init__(self, config: Config, generator: torch.Generator | None = None):
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.stack = Stack(config)
        self.head = Head(config, self.embedding)
        self.pooler = nn.Sequential(nn.Linear(config.width, config.width), nn.Tanh()) if config.pooler else None
        initialise(self, config, generator)

    def hidden(
        self,
        tokens: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
        states: list[Tensor] | None = None,
    ) -> Tensor:
        """The last states (B, T, D). ``states``: a list to fill with the input and the output of each block."""
        x = self.embedding(tokens, attention_mask, segments)
        return self.stack(x, attention_mask, states=states)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        return self.head(self.hidden(tokens, attention_mask, segments))

    def loss(
        self,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        """-log p(targets | inputs), the mean over weights (B, T); all three from ``objectives.masked_lm``."""
        return self.head.loss(self.hidden(inputs, attention_mask, segments), targets, weights)
