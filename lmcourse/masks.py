"""Which query may see which key: booleans, True where it may, of shape (T, S) or broadcastable to (B, H, T, S).

T queries stand at the end of S keys: where S > T, the first S - T keys were read before (a cache). Masks are joined
with ``&``. ``additive`` gives the M of softmax(QKᵀ/√d + M): 0 where a query may look, -∞ where it may not.
"""

import torch
from torch import Tensor

from lmcourse.arguments import came, whole


def causal(T: int, S: int | None = None, device: torch.device | str | None = None) -> Tensor:
    """No query sees a key behind it: True at (i, j) where j ≤ i + S - T. Shape (T, S)."""
    i, j = _places(T, S, device)
    return j <= i


def window(T: int, width: int, S: int | None = None, device: torch.device | str | None = None) -> Tensor:
    """A query sees itself and the ``width`` - 1 keys before it: O(T·w) scores. Shape (T, S).

    Beltagy et al. 2020, "Longformer", section 3.1, here in its causal form.
    """
    whole("width", width)
    i, j = _places(T, S, device)
    return (j <= i) & (j > i - width)


def strided(T: int, stride: int, S: int | None = None, device: torch.device | str | None = None) -> Tensor:
    """A query sees the last ``stride`` keys and before them every ``stride``-th: O(T√T) scores at stride √T.

    Child et al. 2019, "Sparse Transformers", section 4.3 (strided, both heads' patterns joined). Shape (T, S).
    """
    whole("stride", stride)
    i, j = _places(T, S, device)
    return (j <= i) & ((i - j < stride) | ((i - j) % stride == 0))


def fixed(T: int, stride: int, S: int | None = None, device: torch.device | str | None = None) -> Tensor:
    """A query sees the keys of its own block of ``stride`` and the last key of each block before it. Shape (T, S).

    Child et al. 2019, section 4.3 (fixed attention with c = 1, both heads' patterns joined).
    """
    whole("stride", stride)
    i, j = _places(T, S, device)
    return (j <= i) & ((i // stride == j // stride) | (j % stride == stride - 1))


def padding(attention_mask: Tensor) -> Tensor:
    """(B, S) booleans, True at real tokens → (B, 1, 1, S): nobody sees padding."""
    if _booleans(attention_mask).ndim != 2:
        raise ValueError(f"attention_mask: got {came(attention_mask)}, expected (B, S), one boolean a token")
    return attention_mask[:, None, None, :]


def lengths(lengths: Tensor, T: int) -> Tensor:
    """(B,) whole numbers → the (B, T) attention mask of a batch padded on the right: True at the first places."""
    whole("T", T)
    if not isinstance(lengths, Tensor) or lengths.ndim != 1 or lengths.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"lengths: got {came(lengths)}, expected a (B,) tensor of whole numbers")
    if len(lengths) and not 0 <= int(lengths.min()) <= int(lengths.max()) <= T:
        low, high = int(lengths.min()), int(lengths.max())
        raise ValueError(f"lengths: got {low} to {high}, expected 0 to {T}, the padded length")
    return torch.arange(T, device=lengths.device) < lengths[:, None]


def additive(mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The M of softmax(QKᵀ/√d + M): 0 where ``mask`` is True, -∞ elsewhere. Same shape."""
    if not dtype.is_floating_point:
        raise TypeError(f"dtype: got {dtype}, expected a floating type, which has -∞")
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~_booleans(mask), -torch.inf)


def _places(T: int, S: int | None, device) -> tuple[Tensor, Tensor]:
    """The places of queries, (T, 1), and of keys, (1, S), counted from the first key."""
    whole("T", T)
    S = T if S is None else S
    whole("S", S)
    if S < T:
        raise ValueError(f"S: got {S} keys for {T} queries, expected at least as many; queries stand at the end")
    return torch.arange(S - T, S, device=device)[:, None], torch.arange(S, device=device)[None, :]


def _booleans(mask: Tensor) -> Tensor:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(f"mask: got {came(mask)}, expected booleans, True where a token may be seen; use mask.bool()")
    return mask
