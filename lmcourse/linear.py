"""Linear probes: what a linear classifier, fitted on some examples, can read from the vectors of others."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmcourse import arguments
from lmcourse.elmo import LayerMix


def hold_out(groups: Sequence[object], generator: torch.Generator, share: float = 0.3) -> Tensor:
    """(N,) booleans, True at the examples held out: about ``share`` of the groups, each as a whole.

    With the word as the group no word of the test was seen in training, so that a probe cannot know it by sight.
    """
    arguments.cpu_generator(generator)
    names = list(dict.fromkeys(groups))
    chosen = torch.randperm(len(names), generator=generator)[: round(share * len(names))].tolist()
    held = {names[i] for i in chosen}
    if not held or len(held) == len(names):
        raise ValueError(f"groups: got {len(names)}, share {share}: expected some held out and some left")
    return torch.tensor([group in held for group in groups])


def standardised(x: Tensor, train: Tensor) -> Tensor:
    """x (N, D) in float64, each column with mean 0 and deviation 1 over the ``train`` rows; constant columns are 0."""
    x = x.double()
    centred = x - x[train].mean(0)
    deviation = centred[train].square().mean(0).sqrt()
    constant = deviation <= 1e-6 * x[train].abs().amax(0).clamp_min(1e-30)
    return torch.where(constant, 0.0, centred / deviation.masked_fill(constant, 1))


def of_one_size(layers: Tensor) -> Tensor:
    """Layers (layers + 1, N, D) in float64, each less its mean vector and divided by its root mean square."""
    layers = layers.double()
    layers = layers - layers.mean(1, keepdim=True)
    return layers / layers.square().mean((1, 2), keepdim=True).sqrt().clamp_min(1e-30)


def minimise(loss: Callable[[], Tensor], parameters: Sequence[Tensor], steps: int = 100) -> float:
    """Full-batch L-BFGS, without randomness; gives the loss reached."""
    optimiser = torch.optim.LBFGS(
        list(parameters), max_iter=steps, history_size=20, line_search_fn="strong_wolfe", tolerance_change=1e-10
    )

    def closure():
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    optimiser.step(closure)
    with torch.no_grad():
        return float(loss())


def _fitted_rows(n: int, labels: Tensor, held_out: Tensor) -> Tensor:
    """(n,) booleans: the rows to fit on."""
    if labels.shape != (n,):
        raise ValueError(f"labels: got shape {tuple(labels.shape)} for {n} examples, expected ({n},)")
    if held_out.dtype != torch.bool or held_out.shape != (n,) or held_out.all() or not held_out.any():
        raise ValueError(
            f"held_out: got {held_out.dtype} of shape {tuple(held_out.shape)}, expected ({n},) booleans, some True and "
            "some False; use hold_out(groups, generator)"
        )
    return ~held_out


def linear_probe(x: Tensor, labels: Tensor, held_out: Tensor, penalty: float = 1e-2) -> Tensor:
    """(held-out N,) booleans: where a linear classifier, fitted on the other rows of x (N, D), is right.

    Multinomial logistic regression on standardised columns, mean loss plus ``penalty`` · ‖W‖² / 2.
    """
    arguments.positive("penalty", penalty)
    train = _fitted_rows(len(x), labels, held_out)
    x, classes = standardised(x, train), int(labels.max()) + 1
    weight = torch.zeros(classes, x.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    score = lambda rows: F.linear(x[rows], weight, bias)  # noqa: E731
    labels = labels.long()
    minimise(lambda: F.cross_entropy(score(train), labels[train]) + penalty / 2 * weight.square().sum(), (weight, bias))
    return score(held_out).argmax(1) == labels[held_out]


def mix_probe(
    features: Callable[[Tensor], Tensor],
    layers: Tensor,
    labels: Tensor,
    held_out: Tensor,
    penalty: float = 1e-2,
    stay: float = 1e-3,
) -> tuple[Tensor, Tensor]:
    """(weights of the layers, where the held-out are right) of a layer mix and a linear classifier learned together.

    ``layers`` (layers + 1, M, D), ``features``: their mix (M, D) → (N, D'), what the classifier reads. Layers are first
    brought to one size, so that their weights can be compared. ``stay`` · Σ s² keeps the mix near the
    layers' mean: Peters et al. 2018, section 3.3; 0.001 is the smaller of the two values that section 5.1 names.
    """
    for name, value in (("penalty", penalty), ("stay", stay)):
        if not arguments.is_number(value) or value < 0:
            raise ValueError(f"{name}: got {value!r}, expected a number from 0 on")
    layers = of_one_size(layers)
    mix, train = LayerMix(len(layers)).double(), _fitted_rows(len(features(layers[0])), labels, held_out)
    labels = labels.long()
    head = nn.Linear(features(layers[0]).shape[1], int(labels.max()) + 1).double()
    for p in head.parameters():
        nn.init.zeros_(p)

    def loss():
        scores = head(features(mix(layers))[train])
        held = penalty / 2 * head.weight.square().sum() + stay * mix.scores.square().sum()
        return F.cross_entropy(scores, labels[train]) + held

    # γ stays 1: a linear classifier scales by itself, and under a penalty on its weights γ would only escape it.
    minimise(loss, [mix.scores, *head.parameters()])
    with torch.no_grad():
        right = head(features(mix(layers))[held_out]).argmax(1) == labels[held_out]
    return mix.weights.detach(), right


def mean_interval(values: Tensor, generator: torch.Generator, samples: int = 1000) -> tuple[float, float, float]:
    """(mean, low, high): 95 % bootstrap interval of the mean of ``values`` (N,), drawn with replacement."""
    arguments.cpu_generator(generator)
    values = torch.as_tensor(values, dtype=torch.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"values: got shape {tuple(values.shape)}, expected one number or more in a row")
    drawn = values[torch.randint(0, len(values), (samples, len(values)), generator=generator)].mean(1)
    low, high = drawn.quantile(values.new_tensor([0.025, 0.975])).tolist()
    return float(values.mean()), low, high


def group_means(values: Tensor, groups: Sequence[object]) -> Tensor:
    """(G,): the mean of ``values`` (N,) over each of the ``groups``, in the order in which they first come."""
    if len(groups) != len(values) or not len(values):
        raise ValueError(f"groups: got {len(groups)} for {len(values)} values, expected one for each")
    index = {name: i for i, name in enumerate(dict.fromkeys(groups))}
    place = torch.tensor([index[name] for name in groups])
    total = torch.zeros(len(index), dtype=torch.float64).index_add_(0, place, values.double())
    return total / torch.bincount(place)
