"""The optimiser of every training run here: AdamW, and which parameters decay."""

from collections.abc import Iterable

import torch
from torch import nn

from lmcourse import arguments


def parameter_groups(model: nn.Module, decay: float) -> list[dict]:
    """Two groups for a torch optimiser, each with ``names`` beside ``params``: what decays, and what does not.

    The policy: matrices decay, embeddings among them; vectors (biases, the norms' weights) do not. So GPT-2's and
    BERT's code have it. Tied weights stand in one group, once; what needs no gradient stands in none.
    """
    arguments.kind("model", model, nn.Module, "use GPT(config)")
    if not arguments.is_number(decay) or not 0 <= decay < 1:
        raise ValueError(f"decay: got {decay!r}, expected a number from 0 on, below 1; 0.1 is usual")
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

    ``rate``: the peak; a schedule multiplies it. A group's own ``lr`` wins over it.
    """
    device = groups[0]["params"][0].device.type
    return torch.optim.AdamW(groups, lr=rate, betas=betas, fused=device in ("cpu", "cuda", "mps") or None)
