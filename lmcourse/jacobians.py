"""How a gradient travels back through a recurrent network: one-step Jacobians, their products, and the norm bound.

One sequence xs (T, E) runs through a :class:`lmcourse.recurrent.Recurrent`, in float64. S is the size of the state: D
for the tanh network, 2 D for the LSTM, whose state is (h, c). Rows are what comes out, columns what goes in. Norms of
matrices are spectral norms, which are submultiplicative: ‖A B‖ ≤ ‖A‖ ‖B‖. Everything that grows or shrinks with the
distance comes as a natural logarithm, since e.g. 0.1^512 is 0 in float64.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lmcourse import arguments
from lmcourse.recurrent import STEPS, Recurrent, State, Weights, lstm_gates, preactivation


def trajectory(layer: Recurrent, xs: Tensor, state: State | None = None) -> tuple[Weights, State]:
    """The weights in float64, and the states 0 to T: a tuple of (T + 1, D), of which row t is the one after xs[:t].

    ``state``: the first one, a tuple of (1, D); None: zeros.
    """
    arguments.kind("layer", layer, Recurrent, 'use Recurrent("lstm", inputs, width)')
    if not isinstance(xs, Tensor) or xs.ndim != 2 or not len(xs) or xs.shape[1] != layer.inputs:
        raise ValueError(f"xs: got {arguments.came(xs)}, expected one sequence (T, {layer.inputs}), T from 1 on")
    weights = Weights(*(part.detach().double() for part in layer.weights))
    states = [tuple(part.double() for part in (layer.start(1) if state is None else layer.checked(state, 1)))]
    for x in xs.double():
        states.append(STEPS[layer.kind](x[None], states[-1], weights))
    return weights, tuple(torch.cat(parts) for parts in zip(*states))


# ---------------------------------------------------------------------------------------- one-step Jacobians


def jacobians(layer: Recurrent, xs: Tensor, state: State | None = None) -> Tensor:
    """∂s_t/∂s_{t-1} for t = 1 … T in closed form: (T, S, S). Partial derivatives: x_t is held fixed.

    tanh: diag(1 - h_t²) U. LSTM, with the four blocks of (h, c): ∂c_t/∂c_{t-1} = diag(f), ∂c_t/∂h_{t-1} as
    :func:`cell_jacobians` has it in brackets, and h_t = o ⊙ tanh(c_t) by the product rule.
    """
    weights, states = trajectory(layer, xs, state)
    h = _through(layer, weights, states, xs, weights.recurrent)
    if layer.kind == "rnn":
        return h
    _, f, _, o = lstm_gates(xs.double(), _before(states), weights)
    c = torch.diag_embed(f)  # c_{t-1} acts on c_t, and through it on h_t
    return torch.cat([h, torch.cat([_column(o * (1 - states[1][1:].tanh() ** 2)) * c, c], dim=1)], dim=2)


def input_jacobians(layer: Recurrent, xs: Tensor, state: State | None = None) -> Tensor:
    """∂s_t/∂x_t for t = 1 … T, s_{t-1} held fixed: (T, S, E)."""
    weights, states = trajectory(layer, xs, state)
    return _through(layer, weights, states, xs, weights.input)


def autograd_jacobians(layer: Recurrent, xs: Tensor, state: State | None = None) -> Tensor:
    """:func:`jacobians` by automatic differentiation of the step: (T, S, S)."""
    weights, states = trajectory(layer, xs, state)
    step, parts = STEPS[layer.kind], len(states)

    def flat(s: Tensor, x: Tensor) -> Tensor:
        return torch.cat(step(x[None], tuple(s[None].chunk(parts, dim=1)), weights), dim=1)[0]

    return torch.func.vmap(torch.func.jacrev(flat))(torch.cat(_before(states), dim=1), xs.double())


def cell_jacobians(layer: Recurrent, xs: Tensor, state: State | None = None) -> Tensor:
    """∂c_t/∂c_{t-1} for t = 2 … T along every path but the output gate's, o_{t-1} held fixed: (T - 1, D, D).

    diag(f) + [diag(c_{t-1} f (1 - f)) U_f + diag(g i (1 - i)) U_i + diag(i (1 - g²)) U_g] · diag(o_{t-1} (1 - tanh²
    c_{t-1})), gates at t where no index stands. Its product is diag(∏f) where U is 0; elsewhere ∏f bounds it on
    neither side.
    """
    if getattr(layer, "kind", None) == "rnn":
        raise ValueError("layer: got a tanh network, expected an LSTM, which has cells")
    weights, states = trajectory(layer, xs, state)
    D, gates = layer.width, lstm_gates(xs.double(), _before(states), weights)
    bracket = _through(layer, weights, states, xs, weights.recurrent)[1:, D:]
    o, c = gates[3][:-1], states[1][1:-1]  # of t - 1
    return torch.diag_embed(gates[1][1:]) + bracket * (o * (1 - c.tanh() ** 2))[:, None]


def log_forget(layer: Recurrent, xs: Tensor, state: State | None = None) -> Tensor:
    """ln f_t for t = 1 … T: (T, D). Summed over t, the logarithm of the direct path from cell to cell, ∏f."""
    weights, states = trajectory(layer, xs, state)
    return F.logsigmoid(preactivation(xs.double(), states[0][:-1], weights).chunk(4, dim=-1)[1])


def _through(layer: Recurrent, weights: Weights, states: State, xs: Tensor, matrix: Tensor) -> Tensor:
    """∂s_t through W x + U h + b alone, times ``matrix``: U for what comes from h_{t-1}, W for x_t. (T, S, …)."""
    if layer.kind == "rnn":
        return _column(1 - states[0][1:] ** 2) * matrix
    i, f, g, o = lstm_gates(xs.double(), _before(states), weights)
    to_i, to_f, to_g, to_o = matrix.chunk(4)
    before, after = states[1][:-1], states[1][1:].tanh()
    c = _column(before * f * (1 - f)) * to_f + _column(g * i * (1 - i)) * to_i + _column(i * (1 - g**2)) * to_g
    h = _column(o * (1 - o) * after) * to_o + _column(o * (1 - after**2)) * c
    return torch.cat([h, c], dim=1)


def _before(states: State) -> State:
    return tuple(part[:-1] for part in states)


def _column(x: Tensor) -> Tensor:
    """diag(x), for each t, as a factor that scales the rows of what stands on its right: (T, D, 1)."""
    return x[:, :, None]


# ------------------------------------------------------------------------------------------ over a distance


@dataclass(frozen=True)
class Decay:
    """The norm of the last loss's gradient at distances d = 0 … n, and its bounds: logarithms, (n + 1,) each."""

    gradient: Tensor  # ln ‖∂L_T/∂s_{T-d}‖
    norms: Tensor  # ln of its bound ‖∂L_T/∂s_T‖ · ∏‖J‖ over the last d Jacobians
    gamma: Tensor  # ln of the bound ‖∂L_T/∂s_T‖ · γ^d, γ the greatest ‖J‖ along the trajectory: vacuous from 1 on


def decay(jacobians: Tensor, gradient: Tensor) -> Decay:
    """``jacobians`` (n, S, S), the last n along a sequence, and ``gradient`` (S,), ∂L_T/∂s_T: the distances 0 … n.

    It is the gradient of the loss at T alone, not of the sum of all losses. To come to an input, multiply by
    :func:`input_jacobians`. Pascanu et al. 2013, section 2.1, where γ is η (their γ bounds the slope of σ alone).
    """
    _check_jacobians(jacobians)
    if not isinstance(gradient, Tensor) or gradient.shape != jacobians.shape[1:2]:
        raise ValueError(f"gradient: got {arguments.came(gradient)}, expected ({jacobians.shape[1]},), as the states")
    row, logs = _shrunk(gradient.double(), [jacobians.new_zeros(())])
    for J in jacobians.flip(0):  # from the last step back
        row, logs = _shrunk(row @ J, logs)
    lengths = torch.linalg.matrix_norm(jacobians, ord=2).log()
    norms = torch.cat([logs[1][None], lengths.flip(0)]).cumsum(0)
    gamma = torch.cat([logs[1][None], lengths.max().expand(len(lengths))]).cumsum(0)  # 0 · -∞ is NaN
    return Decay(torch.stack(logs[1:]), norms, gamma)


def log_norms(jacobians: Tensor) -> Tensor:
    """ln ‖J_T J_{T-1} ⋯ J_{T-d+1}‖ for d = 1 … n: (n,). ``jacobians`` (n, S, S), of which the last is J_T."""
    _check_jacobians(jacobians)
    product, logs, scaled = torch.eye(jacobians.shape[1]).double(), [jacobians.new_zeros(())], []
    for J in jacobians.flip(0):
        product, logs = _shrunk(product @ J, logs)
        scaled.append(product)
    return torch.stack(logs[1:]) + torch.linalg.matrix_norm(torch.stack(scaled), ord=2).log()


def _shrunk(x: Tensor, logs: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """``x`` divided by its Euclidean length, whose logarithm is added to the last of ``logs``; a 0 stays 0."""
    length = x.norm()
    return x / length.clamp(min=torch.finfo(x.dtype).tiny), [*logs, logs[-1] + length.log()]


def _check_jacobians(jacobians: Tensor) -> None:
    square = isinstance(jacobians, Tensor) and jacobians.ndim == 3 and jacobians.shape[1] == jacobians.shape[2]
    if not square or not len(jacobians):
        came = arguments.came(jacobians)
        raise ValueError(f"jacobians: got {came}, expected (n, S, S), square matrices, n from 1 on")
    if jacobians.dtype != torch.float64:
        raise TypeError(f"jacobians: got {jacobians.dtype}, expected float64: a product of hundreds needs the digits")
