"""How a Transformer knows where a token stands: sinusoids, relative buckets, rotation (learned ones are a table)."""

import math

import torch
from torch import Tensor, nn

from lmcourse.arguments import came, kind, positive, whole


def sinusoidal(places: Tensor, width: int) -> Tensor:
    """Sines in the even components, cosines in the odd ones: (..., ) whole numbers → (..., width).

    PE(t, 2i) = sin(t / 10000^(2i/D)), PE(t, 2i+1) = cos(t / 10000^(2i/D)): Vaswani et al. 2017, section 3.5.
    """
    _even("width", width)
    angles = _angles(places, width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)  # (..., D/2, 2) → (..., D)


# ------------------------------------------------------------------------------------------------ rotation (RoPE)


def rotary(places: Tensor, width: int, base: float = 10_000.0) -> tuple[Tensor, Tensor]:
    """cos and sin of the angles t·base^(-2i/d) by which ``rotate`` turns: (..., T) → two tensors (..., T, width / 2).

    Su et al. 2021, "RoFormer", equation 15.
    """
    _even("width", width)
    positive("base", base)
    angles = _angles(places, width, base)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of components of ``x`` (..., T, d) by its angle: the inner product of two turned vectors then
    depends on the distance of their places only, and no vector changes its length.

    Pairing: component i goes with i + d/2 ("half-split", as in GPT-NeoX and Llama's converted weights), not with its
    neighbour as in the paper ("interleaved"); the two are one permutation of the components apart.
    """
    if x.shape[-1] != 2 * cos.shape[-1] or cos.shape[-2] not in (1, x.shape[-2]) or cos.shape != sin.shape:
        shapes = f"{list(cos.shape)}, {list(sin.shape)}"
        raise ValueError(f"cos, sin: got {shapes} for x {list(x.shape)}, expected one angle for two components")
    first, second = x.chunk(2, dim=-1)  # (..., T, d/2) each
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def _angles(places: Tensor, width: int, base: float = 10_000.0) -> Tensor:
    """In float32, as published code has them: off by 6e-8 of an angle, which is 1e-4 at place 2,000."""
    kind("places", places, Tensor, "use torch.arange(T)")
    frequencies = base ** (-torch.arange(0, width, 2, device=places.device, dtype=torch.float32) / width)
    return places[..., None].float() * frequencies  # (..., D/2)


def _even(name: str, value: int) -> None:
    whole(name, value)
    if value % 2:
        raise ValueError(f"{name}: got {value}, expected an even number; sines and cosines come in pairs")


# ---------------------------------------------------------------------------------------- relative buckets (T5)


def relative_bucket(distance: Tensor, buckets: int = 32, furthest: int = 128, both_sides: bool = True) -> Tensor:
    """The bucket of key place minus query place: whole numbers of any shape → 0 to ``buckets`` - 1, same shape.

    The first half of the buckets holds one distance each, the second half grows logarithmically up to ``furthest``,
    where the last bucket takes all that lies beyond. With ``both_sides`` (an encoder) half of the buckets are for keys
    that come later; without (a decoder) these all count as distance 0. Raffel et al. 2020, section 2.1.
    """
    if not isinstance(distance, Tensor) or distance.dtype != torch.int64:
        raise TypeError(f"distance: got {came(distance)}, expected int64: key place minus query place")
    least = 4 if both_sides else 2
    if buckets < least or buckets % least or furthest <= buckets // least:
        expected = f"a multiple of {least}, and more than {buckets // least}"
        raise ValueError(f"buckets, furthest: got {buckets}, {furthest}, expected {expected}")
    later = torch.zeros_like(distance)
    if both_sides:
        buckets //= 2
        later = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    growth = torch.log(distance.clamp(min=1).float() / exact) / math.log(furthest / exact) * (buckets - exact)
    far = (exact + growth.long()).clamp(max=buckets - 1)
    return later + torch.where(distance < exact, distance, far)


class RelativeBias(nn.Module):
    """A number for each head and bucket of distances, added to the scores; one table serves all layers of a stack."""

    def __init__(self, heads: int, both_sides: bool, buckets: int = 32, furthest: int = 128):
        super().__init__()
        self.both_sides, self.buckets, self.furthest = both_sides, buckets, furthest
        self.table = nn.Embedding(buckets, heads)

    def forward(self, T: int, S: int) -> Tensor:
        """The bias of T queries at the end of S keys: (1, H, T, S)."""
        device = self.table.weight.device
        distance = torch.arange(S, device=device) - torch.arange(S - T, S, device=device)[:, None]
        bucket = relative_bucket(distance, self.buckets, self.furthest, self.both_sides)  # (T, S)
        return self.table(bucket).permute(2, 0, 1)[None]  # (T, S, H) → (1, H, T, S)
