"""GPT: a Transformer that never looks ahead and predicts the next token (Radford et al. 2018, 2019).

Mask: causal. Objective: ``objectives.causal_lm``. Beyond what all three models share: a cache, for generation.
"""

import torch
from torch import Tensor, nn

from lmcourse.arguments import can_look, no_padding_last
from lmcourse.configuration import Config
from lmcourse.initialisation import initialise, new_linear
from lmcourse.multihead import Cache, tokens_read
from lmcourse.transformer import Embedding, Head, Stack, label_loss


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
        x = self.embedding(tokens, attention_mask, past=tokens_read(cache))
        return self.stack(x, attention_mask, cache=cache, states=states)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        return self.head(self.hidden(tokens, attention_mask, cache))

    def next_scores(self, tokens: Tensor, attention_mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Scores (B, V) for the token after the last, what ``generation.generate`` asks for."""
        no_padding_last(attention_mask)
        return self.head(self.hidden(tokens, attention_mask, cache)[:, -1])

    def loss(
        self, inputs: Tensor, targets: Tensor, weights: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor:
        """-log p(targets | inputs), the mean over weights (B, T); all three from ``objectives.causal_lm``.

        With padding on the right no ``attention_mask`` is needed: no token sees it.
        """
        return self.head.loss(self.hidden(inputs, attention_mask), targets, weights)


class GPTClassifier(nn.Module):
    """A label for the text from the state of its last token (Radford et al. 2018, section 3.2): (B, T) → (B, labels).

    The new matrix is the only random part; gradients reach the whole of ``gpt``.
    """

    def __init__(self, gpt: GPT, labels: int, generator: torch.Generator | None = None):
        super().__init__()
        self.gpt = gpt
        self.output = new_linear(gpt.config, labels, generator)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.output(last(self.gpt.hidden(tokens, attention_mask), attention_mask))

    def loss(
        self, tokens: Tensor, labels: Tensor, attention_mask: Tensor | None = None, auxiliary: float = 0.5
    ) -> Tensor:
        """-log p(label | tokens) + ``auxiliary`` times the loss of the language model: equation 5, λ = 0.5
        (there both are sums over the texts, here means).

        Texts of one token have nothing to predict: they need ``auxiliary=0``.
        """
        x = self.gpt.hidden(tokens, attention_mask)
        loss = label_loss(self.output(last(x, attention_mask)), labels)
        if not auxiliary:
            return loss
        if tokens.shape[1] < 2:
            raise ValueError("tokens: got texts of one token, expected two or more to predict; or use auxiliary=0")
        real = torch.ones_like(tokens, dtype=torch.bool) if attention_mask is None else attention_mask
        follows = (real[:, 1:] & real[:, :-1]).to(x.dtype)
        return loss + auxiliary * self.gpt.head.loss(x[:, :-1], tokens[:, 1:], follows)


def last(x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    """The state of the last real token of each row: (B, T, D) → (B, D)."""
    if attention_mask is None:
        return x[:, -1]
    if can_look(attention_mask) and not bool(attention_mask.any(-1).all()):
        raise ValueError("attention_mask: got a row that is False throughout, expected a token or more in each")
    places = torch.arange(x.shape[1], device=x.device) * attention_mask  # 0 at padding
    return x[torch.arange(len(x), device=x.device), places.argmax(-1)]
