"""T5: an encoder that looks both ways and a decoder that never looks ahead but at the encoder (Raffel et al. 2020).

Mask: none but padding in the encoder, causal in the decoder. Objective: ``corruption.span_corruption`` or
``objectives.prefix_lm``. Beyond what all three models share: two stacks, joined by cross-attention; a cache.
"""

import torch
from torch import Tensor, nn

from lmcourse.bert import BERT
from lmcourse.configuration import Config, differences
from lmcourse.gpt import GPT
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
        return self.decoder(x, memory=memory, memory_mask=memory_mask, cache=cache, states=states)

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
        """-log p(targets | inputs), the mean over weights (B, T); from ``span_corruption`` or ``prefix_lm``.

        The decoder reads the targets shifted by one place, after the id ``start`` (GPT's objective shifts, T5's model
        does). With padding in ``inputs``, give its ``attention_mask``, or it is read like text; padding of targets, on
        the right, is never seen.
        """
        memory = self.encode(inputs, attention_mask)
        unknown = (targets < 0) | (targets >= self.config.vocabulary)  # where nothing counts, anything may stand
        read = shifted(targets.masked_fill(unknown & (weights == 0), start), start)
        return self.head.loss(self.decode(read, memory, attention_mask), targets, weights)

    @torch.no_grad()
    def begin_from(self, bert: BERT, gpt: GPT, mask_id: int, sentinels: range, generator: torch.Generator) -> None:
        """Take BERT's stack as encoder and GPT's as decoder, with new cross-attention (BERT2GPT of Rothe et al. 2020).

        The embedding is BERT's. There a sentinel begins as [MASK], which also asks what stood in its place, moved by
        what ``generator`` draws, so that no two are alike. ``ValueError`` where the three configurations differ.
        """
        for name, other in (("bert", bert), ("gpt", gpt)):
            if found := differences(self.config, other.config):
                raise ValueError(f"{name}: got another configuration, in {', '.join(found)}; expected this model's")
        self.encoder.load_state_dict(bert.stack.state_dict())
        self.decoder.load_state_dict(gpt.stack.state_dict(), strict=False)  # it has no cross-attention
        table, marks = self.embedding.tokens.weight, list(sentinels)
        self.embedding.load_state_dict(bert.embedding.state_dict())
        noise = torch.empty(len(marks), self.config.width).normal_(0, self.config.initial or 1.0, generator=generator)
        table[sorted(marks)] = table[mask_id] + noise


def shifted(targets: Tensor, start: int = 0) -> Tensor:
    """``start`` and all targets but the last: what a decoder has read when it predicts each target. (B, T) → (B, T)."""
    return torch.cat([torch.full_like(targets[:, :1], start), targets[:, :-1]], dim=1)
