"""Parameters that stand in more than one place of a model, such as a head that is the embedding."""

from torch import nn


def ties(model: nn.Module) -> dict[str, str]:
    """{name: the first name} of parameters that stand in more than one place."""
    first: dict[int, str] = {}
    names = {name: first.setdefault(id(p), name) for name, p in model.named_parameters(remove_duplicate=False)}
    return {name: other for name, other in names.items() if name != other}


def tie(model: nn.Module, shared: dict[str, str]) -> nn.Module:
    """``model`` itself, with one parameter for each pair of names again, as :func:`ties` found them."""
    for name, first in shared.items():
        owner, _, kind = name.rpartition(".")
        setattr(model.get_submodule(owner), kind, model.get_parameter(first))
    return model
