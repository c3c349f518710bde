"""What a language model keeps of the distant past: the last loss's gradient by each input, and a text to be copied.

Shapes: B batch, T time, D width, S size of a recurrent state (D of the tanh network, 2 D of the LSTM's (h, c)).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmcourse import arguments
from lmcourse.jacobians import input_jacobians, jacobians, trajectory
from lmcourse.recurrent import RecurrentLM


def input_gradients(model: nn.Module, tokens: Tensor) -> Tensor:
    """ln ‖∂L_T/∂x_t‖ for t = 1 … T of each row: ids (B, T + 1) → float64 (B, T).

    x_t is what ``model.embedding`` gives for token t, L_T = -log p of the last id given the T before it: the last loss
    alone, not their sum. For ``GPT`` and for ``RecurrentLM`` with any number of layers, without dropout. Use
    ``model.double()``: what is below 1e-45 in float32, or below 1e-323 in float64, is 0, its logarithm -∞.
    """
    arguments.kind("model", model, nn.Module, "use a GPT or a RecurrentLM")
    if not isinstance(getattr(model, "embedding", None), nn.Module):
        raise TypeError(f"model: got {type(model).__name__} without an embedding, expected a GPT or a RecurrentLM")
    if not isinstance(tokens, Tensor) or tokens.ndim != 2 or tokens.shape[1] < 2:
        raise ValueError(f"tokens: got {arguments.came(tokens)}, expected ids (B, T + 1), T from 1 on")
    read: list[Tensor] = []

    def keep(_module, _inputs, x: Tensor) -> Tensor:
        read.append(x.detach().requires_grad_())  # the graph begins here, so that nothing acts on the token's vector
        return read[0]

    hook = model.embedding.register_forward_hook(keep)
    try:
        with torch.enable_grad():
            loss = F.cross_entropy(model(tokens[:, :-1])[:, -1].double(), tokens[:, -1], reduction="sum")
            (gradient,) = torch.autograd.grad(loss, read)
    finally:
        hook.remove()
    gradient = gradient.double()
    largest = gradient.abs().amax(dim=2, keepdim=True)  # divided by first, since squares of 1e-163 are 0
    return largest[..., 0].log() + (gradient / largest.masked_fill(largest == 0, 1)).norm(dim=2).log()


@dataclass(frozen=True)
class Chain:
    """The factors of ∂L_T/∂x_t in a network of one layer, float64: ``last`` · J_T ⋯ J_{t+1} · ``first[t]``."""

    last: Tensor  # ∂L_T/∂s_T: (S,)
    jacobians: Tensor  # J_t = ∂s_t/∂s_{t-1}, of t = 1 … T: (T, S, S)
    first: Tensor  # ∂s_t/∂x_t, s_{t-1} held fixed: (T, S, E)


def chain(model: RecurrentLM, tokens: Tensor) -> Chain:
    """The factors along one text, ids (T + 1,), from a state of zeros."""
    arguments.kind("model", model, RecurrentLM, "use RecurrentLM(RecurrentConfig(vocabulary, layers=1))")
    if len(model.layers) != 1:
        raise ValueError(f"model: got {len(model.layers)} layers, expected one; with more, gradients take several ways")
    if not isinstance(tokens, Tensor) or tokens.ndim != 1 or len(tokens) < 2:
        raise ValueError(f"tokens: got {arguments.came(tokens)}, expected ids (T + 1,), T from 1 on")
    with torch.no_grad():
        layer, xs = model.layers[0], model.embedding(tokens[:-1]).double()
        _, states = trajectory(layer, xs)
        head, bias = model.head.weight.double(), model.head.bias.double()
        p = torch.softmax(states[0][-1] @ head.T + bias, dim=0)
        last = (p - F.one_hot(tokens[-1], len(p))) @ head  # expected minus observed
        last = F.pad(last, (0, layer.width * (len(states) - 1)))  # c acts on the loss through h alone
        return Chain(last, jacobians(layer, xs), input_jacobians(layer, xs))


def slope(logs: Tensor, first: int, last: int) -> float:
    """The least-squares slope of ``logs`` (n,) over the places first … last: nats per step."""
    arguments.listed("logs", logs, "a tensor (n,), such as Decay.gradient")
    if not 0 <= first < last < len(logs):
        raise ValueError(f"first, last: got {first} and {last}, expected 0 <= first < last < {len(logs)}")
    y, x = logs[first : last + 1].double(), torch.arange(first, last + 1).double()
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


# ------------------------------------------------------------------------------------------------- copying


def copy_rows(count: int, delay: int, generator: torch.Generator, symbols: int = 8, length: int = 3) -> Tensor:
    """The copy task: ``length`` symbols, ``delay`` blanks, a mark, the same symbols.

    Ids (count, 2 length + delay + 1). Symbols are 0 … ``symbols`` - 1, drawn alike; the blank is ``symbols``, the mark
    ``symbols`` + 1. A model that has lost them can do no better than 1 / ``symbols``. After Arjovsky et al. 2016,
    section 4.1, with a shorter text to copy.
    """
    for name, value in (("count", count), ("delay", delay), ("symbols", symbols), ("length", length)):
        arguments.whole(name, value)
    arguments.cpu_generator(generator)
    first = torch.randint(symbols, (count, length), generator=generator)
    blanks, mark = first.new_full((count, delay), symbols), first.new_full((count, 1), symbols + 1)
    return torch.cat([first, blanks, mark, first], dim=1)
