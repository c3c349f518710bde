"""ULMFiT (Howard & Ruder 2018): AWD-LSTM, a classifier over it, and how both are fine-tuned.

Objective: ``objectives.causal_lm``, on a general text, then on the task's, then a label. The schedule is
``schedules.slanted_triangular``. Beyond a recurrent language model: five dropouts, two regularisers, pooling, groups.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmcourse import arguments
from lmcourse.gpt import last
from lmcourse.objectives import cross_entropy
from lmcourse.recurrent import RecurrentConfig, RecurrentLM, State, States
from lmcourse.transformer import label_loss

RATES = ("embedding_dropout", "input_dropout", "weight_dropout", "hidden_dropout", "output_dropout")


@dataclass(frozen=True)
class AWDConfig(RecurrentConfig):
    """A recurrent language model's sizes, and AWD-LSTM's dropouts: the defaults are small, for the course's texts."""

    embedding_dropout: float = 0.02  # whole words, wherever they stand
    input_dropout: float = 0.25  # of the token vectors, the same components at all times
    weight_dropout: float = 0.2  # of the matrices from state to state
    hidden_dropout: float = 0.15  # between the layers, the same components at all times
    output_dropout: float = 0.1  # before the head, the same components at all times
    alpha: float = 2.0  # of the mean square of the outputs: AR
    beta: float = 1.0  # of the mean square of their changes from one time to the next: TAR

    def __post_init__(self):
        super().__post_init__()
        for name in (*RATES, "alpha", "beta"):
            value, rate = getattr(self, name), name in RATES
            if not arguments.is_number(value) or not 0 <= value < (1 if rate else float("inf")):
                raise ValueError(f"{name}: got {value!r}, expected a number from 0 on{', below 1' if rate else ''}")

    @classmethod
    def published(cls, vocabulary: int) -> "AWDConfig":
        """The sizes and dropouts of Howard & Ruder 2018, section 4.1: 400 → 1150 → 1150 → 400, tied.

        Its code starts all biases as it does the matrices; here they start at 0.
        """
        sizes = dict(vocabulary=vocabulary, width=400, hidden=1150, layers=3, forget_bias=0.0)
        rates = dict(zip(RATES, (0.05, 0.4, 0.5, 0.3, 0.4)))
        return cls(**sizes, **rates)


# ----------------------------------------------------------------------------------------------- AWD-LSTM


def locked_dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """Dropout with one mask for all times of a text: (B, T, D). Gal & Ghahramani 2016."""
    if not training or not rate:
        return x
    return x * F.dropout(x.new_ones(len(x), 1, x.shape[2]), rate)


def embedding_dropout(x: Tensor, tokens: Tensor, vocabulary: int, rate: float, training: bool) -> Tensor:
    """Dropout of whole words: the vectors ``x`` (B, T, D) of a word that is dropped are 0 wherever it stands.

    The same as to drop rows of the table, without a copy of it. Gal & Ghahramani 2016; Merity et al. 2018, section 4.3.
    """
    if not training or not rate:
        return x
    return x * F.dropout(x.new_ones(vocabulary), rate)[tokens][..., None]


class AWDLSTM(RecurrentLM):
    """Token ids (B, T) → scores (B, T, V): a ``RecurrentLM`` with the dropouts of Merity et al. 2018, sections 2 and 4.

    The optimiser of that paper, averaged SGD, is not here: ULMFiT does without it. Nor are back-propagation lengths
    drawn at random.
    """

    config: AWDConfig

    def __init__(self, config: AWDConfig, generator: torch.Generator | None = None):
        arguments.kind("config", config, AWDConfig, "use AWDConfig(vocabulary) or AWDConfig.published(vocabulary)")
        super().__init__(config, generator)

    def embed(self, tokens: Tensor) -> Tensor:
        """Ids (B, T) → (B, T, E), after two dropouts."""
        c = self.config
        x = embedding_dropout(self.embedding(tokens), tokens, c.vocabulary, c.embedding_dropout, self.training)
        return locked_dropout(x, c.input_dropout, self.training)

    def layer(self, i: int, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Weights are dropped once for the whole sequence: DropConnect, Wan et al. 2013. None after the last layer."""
        layer, c = self.layers[i], self.config
        x, state = layer(x, state, F.dropout(layer.weight_hh, c.weight_dropout, self.training))
        between = i < len(self.layers) - 1
        return locked_dropout(x, c.hidden_dropout, self.training) if between else x, state

    def forward(self, tokens: Tensor, state: States | None = None) -> Tensor:
        """(B, T) → (B, T, V), after the dropout of outputs."""
        x = self.hidden(tokens, state)
        return self.head(locked_dropout(x, self.config.output_dropout, self.training))

    def loss(self, inputs: Tensor, targets: Tensor, weights: Tensor, state: States | None = None) -> Tensor:
        """-log p(targets | inputs), the mean over weights (B, T); while training also α AR + β TAR.

        Merity et al. 2018, section 4.6: AR of the outputs after dropout, TAR before; mean squares over all places, as
        in their code, where the paper writes norms.
        """
        x = self.hidden(inputs, state)
        dropped = locked_dropout(x, self.config.output_dropout, self.training)
        loss = cross_entropy(self.head(dropped), targets, weights)
        if self.training and self.config.alpha:
            loss = loss + self.config.alpha * dropped.square().mean()
        if self.training and self.config.beta and x.shape[1] > 1:
            loss = loss + self.config.beta * (x[:, 1:] - x[:, :-1]).square().mean()
        return loss


# --------------------------------------------------------------------------------------------- classifier


def concat_pool(x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    """[h_T, maxpool(H), meanpool(H)] over real tokens: (B, T, D) → (B, 3 D). Howard & Ruder 2018, section 3.3.

    ``attention_mask``: booleans (B, T), True at real tokens; padding stands on the right.
    """
    if attention_mask is None:
        return torch.cat([x[:, -1], x.amax(1), x.mean(1)], dim=1)
    arguments.real_tokens("attention_mask", attention_mask, tuple(x.shape[:2]))
    if bool((attention_mask[:, 1:] & ~attention_mask[:, :-1]).any()):
        raise ValueError("attention_mask: got padding before a token, expected it on the right: states run through it")
    end, padding = last(x, attention_mask), ~attention_mask[..., None]
    mean = x.masked_fill(padding, 0).sum(1) / attention_mask.sum(1, keepdim=True)
    return torch.cat([end, x.masked_fill(padding, -torch.inf).amax(1), mean], dim=1)


POOLS = {"concat": (concat_pool, 3), "last": (last, 1)}  # how, and how many times as wide as a state


class AWDClassifier(nn.Module):
    """A label for the text from all states of its last layer: (B, T) → (B, labels).

    ``pool``: "concat", or "last" for the last state alone.

    The head has two blocks, to ``hidden`` and to the labels: batch norm, dropout, matrix, in the order of the authors'
    code and with its rates 0.4 and 0.1 (the paper names neither), ReLU between. Gradients run through the whole text,
    where the authors read it in parts, with the state carried but not its gradient (BPT3C).
    """

    def __init__(
        self,
        model: AWDLSTM,
        labels: int,
        hidden: int = 50,
        generator: torch.Generator | None = None,
        pool: str = "concat",
    ):
        super().__init__()
        arguments.kind("model", model, AWDLSTM, "use AWDLSTM(config)")
        arguments.whole("labels", labels), arguments.whole("hidden", hidden)
        if not isinstance(pool, str) or pool not in POOLS:
            raise ValueError(f"pool: got {pool!r}, expected one of {', '.join(POOLS)}")
        self.pool, times = POOLS[pool]
        pooled = times * model.config.sizes[-1]
        first, second = nn.Linear(pooled, hidden), nn.Linear(hidden, labels)
        for matrix in (first, second):
            nn.init.kaiming_uniform_(matrix.weight, generator=generator), nn.init.zeros_(matrix.bias)
        self.model = model
        self.output = nn.Sequential(
            *(nn.BatchNorm1d(pooled), nn.Dropout(0.4), first, nn.ReLU()),
            *(nn.BatchNorm1d(hidden), nn.Dropout(0.1), second),
        )

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(B, T) → (B, labels). ``attention_mask`` as for :func:`concat_pool`."""
        return self.output(self.pool(self.model.hidden(tokens), attention_mask))

    def loss(self, tokens: Tensor, labels: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """-log p(label | tokens), the mean over the batch; labels (B,)."""
        return label_loss(self(tokens, attention_mask), labels)


# --------------------------------------------------------------------------------------------- fine-tuning

Groups = list[list[nn.Parameter]]


def layer_groups(model: AWDLSTM | AWDClassifier) -> Groups:
    """The parameters from the bottom up: embedding, each LSTM, head. A tied matrix is the embedding's.

    Of a classifier's language model the head is left out, since the label does not depend on it.
    """
    lm = model.model if isinstance(model, AWDClassifier) else model
    arguments.kind("model", lm, AWDLSTM, "use AWDLSTM(config) or AWDClassifier(model, labels)")
    modules = (lm.embedding, *lm.layers, lm.head if lm is model else model.output)
    *below, head = [list(module.parameters()) for module in modules]
    return [*below, [p for p in head if p is not lm.embedding.weight]]


def discriminative(groups: Groups, rate: float, factor: float = 2.6) -> list[dict]:
    """Parameter groups for a torch optimiser: the top one learns at ``rate``, each below at 1/``factor`` of the next.

    Howard & Ruder 2018, section 3.2, where 2.6 was found empirically.
    """
    arguments.positive("rate", rate), arguments.positive("factor", factor)
    top = len(groups) - 1
    return [{"params": group, "lr": rate / factor ** (top - i)} for i, group in enumerate(groups)]


def unfreeze(groups: Groups, stage: int) -> None:
    """Gradual unfreezing: the top ``stage`` groups learn, those below do not. One more an epoch: section 3.3.

    An optimiser may hold all groups from the start: it leaves out what has no gradient.
    """
    arguments.whole("stage", stage)
    for i, group in enumerate(groups):
        for parameter in group:
            parameter.requires_grad_(i >= len(groups) - stage)
