"""How a model is trained: the settings of a run, AdamW, and which parameters decay."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from lmcourse import arguments, schedules

SCHEDULES = {
    "constant": lambda step, s: schedules.constant(step, s.steps, s.warmup),
    "linear": lambda step, s: schedules.warmup_linear(step, s.steps, s.warmup),
    "cosine": lambda step, s: schedules.warmup_cosine(step, s.steps, s.warmup),
    "slanted_triangular": lambda step, s: schedules.slanted_triangular(step, s.steps, s.cut_frac),
}


@dataclass(frozen=True)
class Settings:
    """How to train. What is left out keeps its default; all of it stands in a run's state, and may not change later."""

    steps: int
    parts: int = 1  # a batch is read in so many parts, one after the other: memory for one part is enough
    rate: float = 1e-3  # the peak of the learning rate
    schedule: str = "cosine"  # constant, linear, cosine or slanted_triangular
    warmup: int = 0  # steps; the slanted triangle has its own
    cut_frac: float = 0.1  # the share of the steps in which the slanted triangle rises
    decay: float = 0.1  # of matrices, see parameter_groups
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float | None = 1.0  # the greatest norm of all gradients together; None: any
    seed: int = 0
    log: int = 10  # steps from one line of the log to the next; so for states saved and looks at held-out text
    save: int = 500
    validate: int = 500

    def __post_init__(self):
        for name, value in vars(self).items():  # NumPy's numbers become Python's, as a run's state and log have them
            object.__setattr__(self, name, value.item() if isinstance(value, np.generic) else value)
        for name in ("steps", "parts", "log", "save", "validate"):
            arguments.whole(name, getattr(self, name))
        arguments.positive("rate", self.rate)
        if self.clip is not None:
            arguments.positive("clip", self.clip)
        if not isinstance(self.schedule, str) or self.schedule not in SCHEDULES:
            raise ValueError(f"schedule: got {self.schedule!r}, expected one of {', '.join(SCHEDULES)}")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or not 0 <= self.seed < 2**63:
            raise ValueError(f"seed: got {self.seed!r}, expected a whole number from 0 on, below 2^63")
        _share("decay", self.decay, "0.1 is usual")
        betas = self.betas if isinstance(self.betas, list | tuple) else ()
        if len(betas) != 2:
            raise ValueError(f"betas: got {self.betas!r}, expected two numbers, such as (0.9, 0.95)")
        for beta in betas:
            _share("betas", beta, "(0.9, 0.95) is usual")
        object.__setattr__(self, "betas", tuple(betas))
        if self.warmup and self.schedule == "slanted_triangular":
            raise ValueError(f"warmup: got {self.warmup!r}, expected 0: the slanted triangle rises by itself")
        self.factor(0)  # the schedule's own check of warmup

    def factor(self, step: int) -> float:
        """The learning rate of ``step``, counted from 0, as a share of its peak."""
        return SCHEDULES[self.schedule](step, self)

    def due(self, name: str, done: int) -> bool:
        """Whether to log, save or validate after ``done`` steps: every so many, and at the end."""
        return done == self.steps or done % getattr(self, name) == 0


def _share(name: str, value, cure: str) -> None:
    if not arguments.is_number(value) or not 0 <= value < 1:
        raise ValueError(f"{name}: got {value!r}, expected a number from 0 on, below 1; {cure}")


def parameter_groups(model: nn.Module, decay: float) -> list[dict]:
    """Two groups for a torch optimiser, each with ``names`` beside ``params``: what decays, and what does not.

    The policy: matrices decay, embeddings among them; vectors (biases, the norms' weights) do not. So GPT's
    (2018) and BERT's code have it. Tied weights stand in one group, once; what needs no gradient stands in none.
    """
    arguments.kind("model", model, nn.Module, "use GPT(config)")
    _share("decay", decay, "0.1 is usual")
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not trained:
        raise ValueError("model: none of its parameters needs a gradient, expected some to train; thaw a layer")
    matrices = [(name, p) for name, p in trained if p.ndim > 1]
    vectors = [(name, p) for name, p in trained if p.ndim < 2]
    return [_group(pairs, rate) for pairs, rate in ((matrices, decay), (vectors, 0.0)) if pairs]


def _group(pairs: Iterable[tuple[str, nn.Parameter]], decay: float) -> dict:
    names, parameters = zip(*pairs)
    return {"params": list(parameters), "names": list(names), "weight_decay": decay}


def adamw(groups: list[dict], rate: float, betas: tuple[float, float] = (0.9, 0.95)) -> torch.optim.AdamW:
    """Loshchilov & Hutter 2019, with ``groups`` from :func:`parameter_groups`; fused where the device has it.

    ``rate``: the peak; a schedule multiplies it. A group's own ``lr`` wins over it; one without ``weight_decay`` does
    not decay. As in torch, a step takes rate · decay off a weight: in the paper the schedule multiplies the decay,
    but the peak does not.
    """
    groups = [group | {"params": list(group["params"])} for group in groups]  # model.parameters() can be read once
    if not (parameters := [p for group in groups for p in group["params"]]):
        raise ValueError("groups: got no parameters, expected groups such as those of parameter_groups(model, 0.1)")
    device = parameters[0].device.type
    fused = device in ("cpu", "cuda", "mps") or None
    return torch.optim.AdamW(groups, lr=rate, betas=betas, weight_decay=0.0, fused=fused)
