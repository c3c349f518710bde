"""Learning rates over a training run: each function gives the factor of the peak rate for one step.

Pure functions of ``step``, counted from 0, and ``steps``, how many there are. ``step`` may be ``steps`` itself, since
torch's schedulers ask once more after the last step. No step has the rate 0, which would train nothing.
"""

import math
from numbers import Integral

from lmcourse.arguments import is_number, whole


def constant(step: int, steps: int, warmup: int = 0) -> float:
    """Up in ``warmup`` equal stairs, the first 1/``warmup`` and not 0, then 1."""
    _check(step, steps, warmup)
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


def warmup_linear(step: int, steps: int, warmup: int) -> float:
    """Up as :func:`constant`, then down along a line that reaches 0 after the last step. Devlin et al. 2019, A.2."""
    rise = constant(step, steps, warmup)
    return rise if step < warmup else (steps - step) / (steps - warmup)


def warmup_cosine(step: int, steps: int, warmup: int, least: float = 0.1) -> float:
    """Up as :func:`constant`, then down along half a cosine that reaches ``least`` after the last step.

    Loshchilov & Hutter 2017, equation 5, without restarts; ``least`` 0.1 as in Hoffmann et al. 2022.
    """
    rise = constant(step, steps, warmup)
    if not is_number(least) or not 0 <= least <= 1:
        raise ValueError(f"least: got {least!r}, expected a share of the peak, 0 to 1; 0.1 is usual")
    progress = (step - warmup) / (steps - warmup)
    return rise if step < warmup else least + (1 - least) * (1 + math.cos(math.pi * progress)) / 2


def slanted_triangular(step: int, steps: int, cut_frac: float = 0.1, ratio: float = 32) -> float:
    """A short rise over ``cut_frac`` of the steps, then a long fall: from 1/``ratio`` to 1 and back.

    Howard & Ruder 2018, equation 3, (1 + p·(ratio - 1)) / ratio, in two places not as printed. With fewer than
    1/``cut_frac`` steps they divide by cut = ⌊steps·cut_frac⌋ = 0: here the cut is 1 at least. Where steps·cut_frac is
    not whole, their p falls below 0, for 19 steps so far that the rate is negative: here it stays at 0.
    """
    _check(step, steps)
    if not is_number(cut_frac) or not 0 < cut_frac < 1:
        raise ValueError(f"cut_frac: got {cut_frac!r}, expected a share between 0 and 1, both excluded; 0.1 is usual")
    if not is_number(ratio) or not 1 <= ratio < math.inf:
        raise ValueError(f"ratio: got {ratio!r}, expected a number from 1 on; 32 is usual")
    cut = max(1, math.floor(steps * cut_frac + 1e-9))  # 100 · 0.29 is 28.999… in floating point
    p = step / cut if step < cut else max(0.0, 1 - (step - cut) / (cut * (1 / cut_frac - 1)))
    return (1 + p * (ratio - 1)) / ratio


def _check(step: int, steps: int, warmup: int = 0) -> None:
    whole("steps", steps)
    for name, value, most in (("step", step, steps), ("warmup", warmup, steps - 1)):
        if not isinstance(value, Integral) or isinstance(value, bool) or not 0 <= value <= most:
            raise ValueError(f"{name}: got {value!r}, expected a whole number from 0 to {most}, for {steps} steps")
