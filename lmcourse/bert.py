"""BERT: a Transformer that looks both ways and restores masked tokens (Devlin et al. 2019); RoBERTa, SpanBERT."""

import torch
from torch import Tensor, nn

from lmcourse.configuration import Config
from lmcourse.initialisation import initialise, new_linear
from lmcourse.objectives import cross_entropy
from lmcourse.spans import MaskedSpans
from lmcourse.transformer import Embedding, Head, Stack, label_loss


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


class Classifier(nn.Module):
    """A label for the text from the pooled state of its first token, [CLS]: (B, T) → (B, labels)."""

    def __init__(self, bert: BERT, labels: int, generator: torch.Generator | None = None):
        super().__init__()
        if bert.pooler is None:
            raise ValueError("bert: got one without a pooler, expected Config(pooler=True)")
        self.bert = bert
        self.dropout = nn.Dropout(bert.config.dropout)
        self.output = new_linear(bert.config, labels, generator)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        return self.scores(self.bert.hidden(tokens, attention_mask, segments))

    def scores(self, x: Tensor) -> Tensor:
        """States (B, T, D) → (B, labels)."""
        return self.output(self.dropout(self.bert.pooler(x[:, 0])))

    def loss(
        self,
        tokens: Tensor,
        labels: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        return label_loss(self(tokens, attention_mask, segments), labels)


class NextSentence(Classifier):
    """BERT with both of its objectives: masked tokens, and whether the second segment follows (0: it does)."""

    def __init__(self, bert: BERT, generator: torch.Generator | None = None):
        super().__init__(bert, 2, generator)

    def loss(
        self,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor,
        labels: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        x = self.bert.hidden(inputs, attention_mask, segments)
        return self.bert.head.loss(x, targets, weights) + label_loss(self.scores(x), labels)


class SpanBoundaryHead(nn.Module):
    """SpanBERT's second objective (Joshi et al. 2020, section 3.2): each token of a hidden span from the two tokens
    around the span and its place within, through two layers and BERT's own output matrix.
    """

    def __init__(self, bert: BERT, longest: int = 20, width: int = 200, generator: torch.Generator | None = None):
        super().__init__()
        D = bert.config.width
        self.places = nn.Embedding(longest, width)
        first = (nn.Linear(2 * D + width, D), nn.GELU(), nn.LayerNorm(D))
        self.transform = nn.Sequential(*first, nn.Linear(D, D), nn.GELU(), nn.LayerNorm(D))
        initialise(self, bert.config, generator)
        self.vocabulary = bert.head.vocabulary

    def forward(self, x: Tensor, spans: MaskedSpans) -> Tensor:
        """States (B, T, D) → scores (N, V) of the N hidden tokens, row by row. Places beyond ``longest`` share one."""
        rows, columns = spans.weights.nonzero(as_tuple=True)
        left, right = (x[rows, side[rows, columns]] for side in (spans.left, spans.right))  # (N, D) each
        place = self.places((spans.place[rows, columns] - 1).clamp(max=self.places.num_embeddings - 1))
        return self.vocabulary(self.transform(torch.cat([left, right, place], dim=-1)))

    def loss(self, x: Tensor, spans: MaskedSpans) -> Tensor:
        """-log p(token | the span's neighbours), the mean over hidden tokens; added to that of the masked head."""
        hidden = spans.weights > 0
        return cross_entropy(self(x, spans), spans.targets[hidden], spans.weights[hidden])
