"""ELMo: two language models read a text from both ends, and their layers are mixed (Peters et al. 2018).

Token layer: a convolution over a word's characters, so that every word has a vector, seen before or not. Objective: the
next word from those on the left and the previous one from those on the right, jointly, with one token layer and one
softmax for both. The directions meet only where their states are put side by side: neither has read the other's.
B sentences, T words and sentence marks, C characters, D width, V vocabulary.
"""

import warnings
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmcourse import arguments
from lmcourse.characters import CharacterCNN, words_in
from lmcourse.objectives import cross_entropy
from lmcourse.recurrent import Weights, lstm_gates

ROWS = 256  # of scores at once on a CPU: its cache holds them, and the loss takes 0.6 of the time


@dataclass(frozen=True)
class ELMoConfig:
    """The sizes of ELMo. The defaults are the course's own; dropout is 0 unless asked for."""

    vocabulary: int  # V: the words that the softmax knows and characters.MARKS
    filters: tuple[tuple[int, int], ...] = ((1, 16), (2, 16), (3, 32), (4, 64), (5, 64))  # (characters wide, how many)
    character_width: int = 16
    longest: int = 50  # characters of a word, its two marks included; what is longer is cut
    highways: int = 1
    width: int = 128  # D: of a token's vector and of each direction's states
    units: int = 256  # of each LSTM, before the projection to D
    layers: int = 2  # of LSTMs in each direction
    clip: float | None = None  # cells and states are cut to ±clip, which torch's LSTM cannot do; None: they are not
    dropout: float = 0.0  # of what each LSTM and the softmax read

    def __post_init__(self):
        for field in fields(self):
            if field.type is int:
                arguments.whole(field.name, getattr(self, field.name))
        self.check_filters()
        if self.units <= self.width:
            raise ValueError(f"units: got {self.units}, expected more than width={self.width}, their projection's")
        if self.clip is not None:
            arguments.positive("clip", self.clip)
        if not (arguments.is_number(self.dropout) and 0 <= self.dropout < 1):
            raise ValueError(f"dropout: got {self.dropout!r}, expected a number from 0 to below 1")

    def check_filters(self) -> None:
        try:
            pairs = tuple((wide, many) for wide, many in self.filters)
        except (TypeError, ValueError):
            raise ValueError(f"filters: got {self.filters!r}, expected pairs (characters wide, how many)") from None
        object.__setattr__(self, "filters", pairs)  # lists, as JSON has them, become tuples
        for number in (n for pair in pairs for n in pair):
            arguments.whole("filters", number)
        if not pairs or max(wide for wide, _ in pairs) > self.longest:
            raise ValueError(f"filters: got {pairs!r}, expected some, at most longest={self.longest} characters wide")

    @classmethod
    def published(cls, vocabulary: int = 793_471) -> "ELMoConfig":
        """The original: 93,600,864 parameters beside the softmax, trained with dropout 0.1."""
        filters = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
        return cls(vocabulary, filters, highways=2, width=512, units=4096, clip=3.0)


# ------------------------------------------------------------------------------------ the two directions


def plain_lstm(
    x: Tensor, weight_x: Tensor, weight_h: Tensor, bias: Tensor, projection: Tensor, clip: float | None = None
) -> Tensor:
    """An LSTM with projected states, step by step: x (B, T, D) → (B, T, D). Sak et al. 2014, without peepholes.

    The gates are those of ``recurrent.lstm_gates``;  c_t = f ⊙ c_{t-1} + i ⊙ g;  h_t = R (o ⊙ tanh(c_t)).
    """
    weights = Weights(weight_x, weight_h, bias)
    h, c = x.new_zeros(len(x), len(projection)), x.new_zeros(len(x), projection.shape[1])
    outputs = []
    for x_t in x.unbind(1):
        i, f, g, o = lstm_gates(x_t, (h, c), weights)
        c = f * c + i * g
        c = c if clip is None else c.clamp(-clip, clip)
        h = (o * torch.tanh(c)) @ projection.mT
        h = h if clip is None else h.clamp(-clip, clip)
        outputs.append(h)
    return torch.stack(outputs, 1)


class ProjectedLSTM(nn.LSTM):
    """torch's LSTM with projection, (B, T, D) → (B, T, D), and with one bias, where torch would add two.

    The bias is the last column of the input's matrix, the weight of an input that is always 1, and decays as it does.
    """

    def __init__(self, width: int, units: int, clip: float | None = None):
        super().__init__(width + 1, units, proj_size=width, bias=False, batch_first=True)
        self.clip = clip

    def forward(self, x: Tensor) -> Tensor:
        if self.clip is not None:
            return self.plain(x)
        with warnings.catch_warnings():  # that oneDNN has no LSTM with projection, and torch takes its own
            warnings.filterwarnings("ignore", "LSTM with projections", UserWarning)
            return super().forward(F.pad(x, (0, 1), value=1.0))[0]

    def plain(self, x: Tensor) -> Tensor:
        """The same from its equations, and the only way where states are clipped."""
        weight, bias = self.weight_ih_l0[:, :-1], self.weight_ih_l0[:, -1]
        return plain_lstm(x, weight, self.weight_hh_l0, bias, self.weight_hr_l0, self.clip)


class Direction(nn.Module):
    """LSTMs one above the other, from the second on with what they read added to what they give: (B, T, D) each."""

    def __init__(self, config: ELMoConfig):
        super().__init__()
        self.lstms = nn.ModuleList(ProjectedLSTM(config.width, config.units, config.clip) for _ in range(config.layers))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> list[Tensor]:
        states = []
        for i, lstm in enumerate(self.lstms):
            x = self.dropout(x)
            x = lstm(x) + x if i else lstm(x)
            states.append(x)
        return states


def reverse(x: Tensor, lengths: Tensor) -> Tensor:
    """Each row of x (B, T, D) backwards within its length, padding left where it is. Twice gives x.

    Not by packing rows of different lengths: their shapes depend on the data, which fails on XLA.
    """
    place = torch.arange(x.shape[1], device=x.device)
    place = torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)  # (B, T)
    return x.gather(1, place[..., None].expand_as(x))


class ELMo(nn.Module):
    """Characters (B, T, C) → scores (B, T, V) for the word after each place and for the word before it."""

    def __init__(self, config: ELMoConfig, generator: torch.Generator | None = None):
        super().__init__()
        arguments.kind("config", config, ELMoConfig, "use ELMoConfig(vocabulary)")
        self.config = config
        sizes = config.filters, config.width, config.character_width, config.highways, config.longest
        self.tokens = CharacterCNN(*sizes)
        self.forwards, self.backwards = Direction(config), Direction(config)
        self.dropout = nn.Dropout(config.dropout)
        self.softmax = nn.Linear(config.width, config.vocabulary)
        initialise(self, generator)

    def read(self, characters: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor], Tensor]:
        """The token layer, the states from the left and from the right, all (B, T, D); where words stand (B, T)."""
        x, real = self.tokens(characters), words_in(characters)
        lengths = real.sum(1)
        right = self.backwards(reverse(x, lengths))
        return x, self.forwards(x), [reverse(states, lengths) for states in right], real

    def states(self, characters: Tensor) -> Tensor:
        """(layers + 1, B, T, 2D): the token layer, then each layer's states from the left beside those from the right.

        The token layer knows no direction and is put beside itself, as in the original. 0 where there is no word.
        """
        x, left, right, real = self.read(characters)
        layers = torch.stack([torch.cat(pair, -1) for pair in zip([x, *left], [x, *right])])
        return layers.masked_fill(~real[..., None], 0)

    def forward(self, characters: Tensor) -> tuple[Tensor, Tensor]:
        _, left, right, _ = self.read(characters)
        return self.softmax(self.dropout(left[-1])), self.softmax(self.dropout(right[-1]))

    def loss(self, characters: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """-log p(next word | left) and -log p(previous word | right), means over weights, and the mean of the two.

        All three from ``characters.bidirectional_lm``: the word at each place, (B, T), and what it counts as a target.
        Section 3.1, where it is a sum over places and directions; the original's code takes these means.
        """
        _, left, right, real = self.read(characters)
        for name, value in (("targets", targets), ("weights", weights)):
            if not isinstance(value, Tensor) or value.shape != real.shape:
                expected = f"{list(real.shape)}: one for each word of characters"
                raise ValueError(f"{name}: got {arguments.came(value)}, expected {expected}")
        both = real[:, 1:]  # whether a place and the one before it hold a word
        after = self.one_loss(left[-1][:, :-1], targets[:, 1:], weights[:, 1:] * both)
        before = self.one_loss(right[-1][:, 1:], targets[:, :-1], weights[:, :-1] * both)
        return (after + before) / 2

    def counts(self, characters: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        return weights[:, 1:].sum()  # what both means of the loss are over: either way, one mark is no target

    def one_loss(self, x: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """One direction's, with scores only where they count, as in ``transformer.Head.loss``."""
        rows = len(x)
        if arguments.can_look(x):  # there, a shape that depends on the data would compile anew at each step
            counted = weights != 0
            x, targets, weights = x[counted], targets[counted], weights[counted]  # (N, D), (N,), (N,)
            rows = ROWS if x.device.type == "cpu" else max(len(x), 1)
        parts = zip(self.dropout(x).split(rows), targets.split(rows), weights.split(rows))
        return sum(cross_entropy(self.softmax(x), y, w) * w.sum() for x, y, w in parts) / weights.sum()


@torch.no_grad()
def initialise(model: ELMo, generator: torch.Generator | None = None) -> None:
    """The original's: characters ±1, filters ±0.05, matrices normal with deviation 1/√(fan-in), LSTMs Glorot's.

    Biases are 0 but for two: gates of highways -2, so that a word's features pass at first, and forget gates 1 (there
    added in the cell, here in its bias).
    """
    if generator is not None:
        arguments.kind("generator", generator, torch.Generator, "use lmcourse.device.seed(0)")
    uniform = lambda weight, bound: weight.uniform_(-bound, bound, generator=generator)  # noqa: E731
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            uniform(module.weight, 1)[0] = 0  # where there is no word
        elif isinstance(module, nn.Conv1d):
            uniform(module.weight, 0.05)
            module.bias.zero_()
        elif isinstance(module, nn.Linear):
            module.weight.normal_(0, module.in_features**-0.5, generator=generator)
            module.bias.fill_(-2 if name.endswith("gate") else 0)
        elif isinstance(module, ProjectedLSTM):
            D, units = module.proj_size, module.hidden_size
            for weight in (module.weight_ih_l0, module.weight_hh_l0):  # one matrix from 2D to 4 units in the original
                uniform(weight, (6 / (2 * D + 4 * units)) ** 0.5)
            uniform(module.weight_hr_l0, (6 / (D + units)) ** 0.5)
            module.weight_ih_l0[:, -1] = 0
            module.weight_ih_l0[units : 2 * units, -1] = 1


class LayerMix(nn.Module):
    """γ Σ_l w_l h_l with w = softmax(s): states (layers + 1, …) → (…). Peters et al. 2018, equation 1."""

    def __init__(self, layers: int):
        """``layers``: how many are mixed, the token layer among them. At first all weigh the same, and γ is 1."""
        super().__init__()
        arguments.whole("layers", layers)
        self.scores, self.scale = nn.Parameter(torch.zeros(layers)), nn.Parameter(torch.ones(()))  # s and γ

    @property
    def weights(self) -> Tensor:
        """(layers,): above 0, their sum is 1."""
        return torch.softmax(self.scores, 0)

    def forward(self, states: Tensor) -> Tensor:
        if not isinstance(states, Tensor) or states.ndim < 2 or len(states) != len(self.scores):
            came = arguments.came(states)
            raise ValueError(f"states: got {came}, expected {len(self.scores)} layers first; use ELMo.states")
        return self.scale * torch.tensordot(self.weights, states, 1)
