"""The weights that training starts from, drawn through the generator that the caller passes."""

import torch
from torch import nn

from lmcourse.arguments import kind
from lmcourse.configuration import Config


@torch.no_grad()
def initialise(model: nn.Module, config: Config, generator: torch.Generator | None = None) -> None:
    """Draw the weights: matrices normal, biases 0; norms stay as they are made, 1 and 0.

    The standard deviation is ``config.initial``, 0.02 as in GPT-2's and BERT's code (but for GPT-2's positions, 0.01,
    and BERT's cut at two deviations). Where the norm comes first, what is added to the stream (``output`` and ``down``)
    gets 0.02/√(2·layers), also where cross-attention makes it 3·layers: GPT-2's paper asks for 1/√N with N residual
    layers, its released code has a flat 0.02, and this is how later code reads it. With ``initial=None`` it is T5's:
    1/√(fan-in), token vectors 1, queries 1/√(fan-in·d), which stands in for the missing 1/√d of the scores.
    """
    if generator is not None:
        kind("generator", generator, torch.Generator, "use lmcourse.device.seed(0)")
    for name, module in model.named_modules():
        name = name.rpartition(".")[2]
        if isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.zero_()
        tied = config.tied and name == "vocabulary"  # the embedding's matrix, which is drawn once
        if isinstance(module, nn.Linear | nn.Embedding) and not tied:
            module.weight.normal_(0, _deviation(name, module, config), generator=generator)
        if name in ("query", "query_key_value") and config.initial is None and not config.scale_scores:
            module.weight[: config.heads * config.d] *= config.d**-0.5


def _deviation(name: str, module: nn.Linear | nn.Embedding, config: Config) -> float:
    if config.initial is not None:
        added = config.norm_first and name in ("output", "down")
        return config.initial / (2 * config.layers) ** 0.5 if added else config.initial
    if isinstance(module, nn.Embedding):
        return config.width**-0.5 if name == "table" else 1.0
    return module.in_features**-0.5


def new_linear(config: Config, outputs: int, generator: torch.Generator | None = None) -> nn.Linear:
    """The one random layer that fine-tuning adds: states (…, D) → (…, outputs)."""
    layer = nn.Linear(config.width, outputs)
    initialise(layer, config, generator)
    return layer
