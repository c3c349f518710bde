"""Reference solutions of the assignment problems of *@@TITLE@@*, and answers that must fail.

For teachers: a fork that is published for students leaves this folder out.
"""

import torch


def gradient(x):
    """TODO The reference."""
    if x.numel() == 0:
        raise ValueError("x: got no scores, expected at least one")
    return torch.softmax(x, 0)


# TODO At least four answers for each problem that are wrong in a plausible way.


def _unstable(x):
    return torch.exp(x) / torch.exp(x).sum()


def _without_normaliser(x):
    return torch.exp(x)


def _wrong_sign(x):
    return -gradient(x)


def _hardest(x):
    return torch.nn.functional.one_hot(x.argmax(), len(x)).double()


SOLUTIONS = {"@@SLUG@@/variant": gradient}
WRONG = {"@@SLUG@@/variant": [_unstable, _without_normaliser, _wrong_sign, _hardest]}
