"""Recurrence: the tanh network and the LSTM as their equations stand, the same fast, and a language model of them.

Shapes: B batch, T time, E width of what comes in, D width of the state. A network's state is a tuple: (h,) of the tanh
network, (h, c) of the LSTM, each (B, D).
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lmcourse import arguments
from lmcourse.objectives import cross_entropy

KINDS = ("rnn", "lstm")
State = tuple[Tensor, ...]
States = dict[int, State]  # of each layer
Draws = torch.Generator | None  # None: torch's global stream


class Weights(NamedTuple):
    """W, U and b of W x + U h + b. The LSTM's rows are those of i, f, g, o, in torch's order, D each."""

    input: Tensor  # W: (D, E), or (4 D, E)
    recurrent: Tensor  # U: (D, D), or (4 D, D)
    bias: Tensor  # b: (D,), or (4 D,)


# ------------------------------------------------------------------------------------------------- plain


def preactivation(x: Tensor, h: Tensor, weights: Weights) -> Tensor:
    """W x + U h + b: x (B, E), h (B, D) → (B, D) or, for the four gates, (B, 4 D)."""
    return x @ weights.input.mT + h @ weights.recurrent.mT + weights.bias


def rnn_step(x: Tensor, state: State, weights: Weights) -> State:
    """h_t = tanh(W x_t + U h_{t-1} + b). Elman 1990, with tanh."""
    (h,) = state
    return (torch.tanh(preactivation(x, h, weights)),)


def lstm_gates(x: Tensor, state: State, weights: Weights) -> State:
    """i, f, g, o, each (B, D): input and forget gate, candidate (a tanh), output gate."""
    i, f, g, o = preactivation(x, state[0], weights).chunk(4, dim=-1)
    return torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)


def lstm_step(x: Tensor, state: State, weights: Weights) -> State:
    """c_t = f ⊙ c_{t-1} + i ⊙ g and h_t = o ⊙ tanh(c_t).

    Hochreiter & Schmidhuber 1997 have f = 1; the forget gate is from Gers et al. 2000.
    """
    i, f, g, o = lstm_gates(x, state, weights)
    c = f * state[1] + i * g
    return o * torch.tanh(c), c


STEPS = {"rnn": rnn_step, "lstm": lstm_step}


def plain_rnn(x: Tensor, state: State, weights: Weights) -> tuple[Tensor, State]:
    """:func:`rnn_step` along (B, T, E): all h, (B, T, D), and the last state."""
    return _along(rnn_step, x, state, weights)


def plain_lstm(x: Tensor, state: State, weights: Weights) -> tuple[Tensor, State]:
    """:func:`lstm_step` along (B, T, E): all h, (B, T, D), and the last state."""
    return _along(lstm_step, x, state, weights)


def _along(step: Callable, x: Tensor, state: State, weights: Weights) -> tuple[Tensor, State]:
    outputs = []
    for t in range(x.shape[1]):
        state = step(x[:, t], state, weights)
        outputs.append(state[0])
    return torch.stack(outputs, dim=1), state


# -------------------------------------------------------------------------------------------------- fast


def fast_rnn(x: Tensor, state: State, weights: Weights) -> tuple[Tensor, State]:
    """:func:`plain_rnn` by torch's own loop."""
    outputs, h = _torch(torch.rnn_tanh, x, state[0][None], weights)
    return outputs, (h[0],)


def fast_lstm(x: Tensor, state: State, weights: Weights) -> tuple[Tensor, State]:
    """:func:`plain_lstm` by torch's own loop."""
    outputs, h, c = _torch(torch.lstm, x, [part[None] for part in state], weights)
    return outputs, (h[0], c[0])


def _torch(function: Callable, x: Tensor, state, weights: Weights) -> tuple:
    """What ``nn.LSTM`` and ``nn.RNN`` call, with weights that need not be parameters: W, U, b and a second b of 0."""
    flat, training = [*weights, torch.zeros_like(weights.bias)], torch.is_grad_enabled()
    with warnings.catch_warnings():  # CUDA copies such weights into one piece at each call, and says so
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
        return function(x, state, flat, True, 1, 0.0, training, False, True)


PLAIN = {"rnn": plain_rnn, "lstm": plain_lstm}
FAST = {"rnn": fast_rnn, "lstm": fast_lstm}


class Recurrent(nn.Module):
    """One layer, "rnn" or "lstm": (B, T, E) and a state → (B, T, D) and the state after.

    The matrices start uniform within ±1/√D, torch's choice, the biases at 0, but ``forget_bias`` for the forget gate
    (1 in Jozefowicz et al. 2015). As in torch the bias is kept as a sum of two. ``kernel`` is what runs:
    ``recurrent.FAST[kind]``, or ``PLAIN[kind]`` in its place.
    """

    def __init__(self, kind: str, inputs: int, width: int, forget_bias: float = 1.0, generator: Draws = None):
        super().__init__()
        _check_kind(kind)
        arguments.whole("inputs", inputs), arguments.whole("width", width)
        self.kind, self.inputs, self.width, self.kernel = kind, inputs, width, FAST[kind]
        rows = width if kind == "rnn" else 4 * width
        self.weight_ih, self.weight_hh = (nn.Parameter(torch.empty(rows, columns)) for columns in (inputs, width))
        self.bias_ih, self.bias_hh = nn.Parameter(torch.empty(rows)), nn.Parameter(torch.empty(rows))
        self.reset(forget_bias, generator)

    @torch.no_grad()
    def reset(self, forget_bias: float = 1.0, generator: Draws = None) -> None:
        """Draw the weights anew."""
        if not arguments.is_number(forget_bias):
            raise ValueError(f"forget_bias: got {forget_bias!r}, expected a number; 1 is usual")
        for matrix in (self.weight_ih, self.weight_hh):
            matrix.uniform_(-(self.width**-0.5), self.width**-0.5, generator=generator)
        nn.init.zeros_(self.bias_ih), nn.init.zeros_(self.bias_hh)
        if self.kind == "lstm":
            self.bias_ih[self.width : 2 * self.width] = forget_bias

    @property
    def weights(self) -> Weights:
        """W, U and b, the sum of both biases."""
        return Weights(self.weight_ih, self.weight_hh, self.bias_ih + self.bias_hh)

    def start(self, B: int) -> State:
        """The state before the first token: zeros, one (B, D) for the tanh network, two for the LSTM."""
        return tuple(self.weight_hh.new_zeros(B, self.width) for _ in range(2 if self.kind == "lstm" else 1))

    def forward(self, x: Tensor, state: State | None = None, recurrent: Tensor | None = None) -> tuple[Tensor, State]:
        """``state``: None starts with zeros. ``recurrent``: stands for U, as where some of its weights are dropped."""
        if not isinstance(x, Tensor) or x.ndim != 3 or x.shape[2] != self.inputs or not x.shape[1]:
            raise ValueError(f"x: got {arguments.came(x)}, expected (B, T, {self.inputs}), T from 1 on")
        state = self.start(len(x)) if state is None else self.checked(state, len(x))
        weights = self.weights
        return self.kernel(x, state, weights if recurrent is None else weights._replace(recurrent=recurrent))

    def checked(self, state: State, B: int) -> State:
        expected = [(B, self.width)] * (2 if self.kind == "lstm" else 1)
        got = [tuple(part.shape) for part in state] if isinstance(state, tuple) else arguments.came(state)
        if got != expected:
            raise ValueError(f"state: got {got}, expected a tuple of {expected}; None begins a text")
        return state


# ---------------------------------------------------------------------------------------- language model


@dataclass(frozen=True)
class RecurrentConfig:
    """The sizes of a recurrent language model; the last layer is as wide as the embedding where the head is tied."""

    vocabulary: int  # V
    width: int = 128  # of the token vectors
    hidden: int = 320  # of the states between the layers
    layers: int = 3
    kind: str = "lstm"
    tied: bool = True  # the head's matrix is the embedding: Press & Wolf 2017
    forget_bias: float = 1.0

    def __post_init__(self):
        for name in ("vocabulary", "width", "hidden", "layers"):
            arguments.whole(name, getattr(self, name))
        _check_kind(self.kind)
        if not isinstance(self.tied, bool):
            raise ValueError(f"tied: got {self.tied!r}, expected True or False")

    @property
    def sizes(self) -> list[int]:
        """layers + 1 widths: what goes into each layer, and what comes out of the last."""
        return [self.width] + [self.hidden] * (self.layers - 1) + [self.width if self.tied else self.hidden]


class RecurrentLM(nn.Module):
    """Token ids (B, T) → scores (B, T, V) for the token that follows each, as ``GPT`` gives them.

    ``state``, in all methods, is a dictionary that the caller makes, ``{}`` at the start of a text, and passes again
    with the text's next tokens. It then holds the state of each layer without its past's gradient: back-propagation
    through time is cut there (truncated). Padding stands on the right, where no real token sees it.
    What AWD-LSTM adds, its dropouts, stands in :mod:`lmcourse.ulmfit`.
    """

    def __init__(self, config: RecurrentConfig, generator: Draws = None):
        super().__init__()
        arguments.kind("config", config, RecurrentConfig, "use RecurrentConfig(vocabulary)")
        self.config, sizes = config, config.sizes
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1, generator=generator)  # Merity et al. 2018, section 5
        made = (Recurrent(config.kind, *pair, config.forget_bias, generator) for pair in zip(sizes, sizes[1:]))
        self.layers = nn.ModuleList(made)
        self.head = nn.Linear(sizes[-1], config.vocabulary)
        nn.init.uniform_(self.head.weight, -0.1, 0.1, generator=generator), nn.init.zeros_(self.head.bias)
        if config.tied:
            self.head.weight = self.embedding.weight

    def embed(self, tokens: Tensor) -> Tensor:
        """Ids (B, T) → (B, T, E)."""
        return self.embedding(tokens)

    def layer(self, i: int, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Layer i: (B, T, E) and its state → (B, T, D) and its state after."""
        return self.layers[i](x, state)

    def hidden(self, tokens: Tensor, state: States | None = None, states: list[Tensor] | None = None) -> Tensor:
        """The last layer's h (B, T, D). ``states``: a list to fill with the input and the output of each layer."""
        arguments.token_ids("tokens", tokens, self.config.vocabulary)
        state, states = {} if state is None else state, [] if states is None else states
        arguments.kind("state", state, dict, "use {} at the start of a text")
        x, new = self.embed(tokens), {}
        for i in range(len(self.layers)):
            states.append(x)
            x, new[i] = self.layer(i, x, state.get(i))
        states.append(x)
        state.update({i: tuple(part.detach() for part in parts) for i, parts in new.items()})
        return x

    def forward(self, tokens: Tensor, state: States | None = None) -> Tensor:
        """(B, T) → (B, T, V)."""
        return self.head(self.hidden(tokens, state))

    def next_scores(self, tokens: Tensor, cache: States | None = None) -> Tensor:
        """Scores (B, V) for the token after the last, for ``generation.generate``, whose cache then holds the state."""
        return self.head(self.hidden(tokens, cache)[:, -1])

    def loss(self, inputs: Tensor, targets: Tensor, weights: Tensor, state: States | None = None) -> Tensor:
        """-log p(targets | inputs), the mean over weights (B, T); all three from ``objectives.causal_lm``."""
        return cross_entropy(self(inputs, state), targets, weights)


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"kind: got {kind!r}, expected one of {', '.join(KINDS)}")
