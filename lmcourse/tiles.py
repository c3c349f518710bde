"""The fast form of skip-gram with negative sampling: a step is a few matrix products over tiles of text.

:mod:`lmcourse.skipgram` states the loss and its gradient pair by pair; here the same sum is taken for
thousands of pairs at once. A block of N consecutive words is read twice.

* As *tiles* of L centres, each against the L + 2W words around it. The scores of a tile are one product
  [L, D] × [D, L + 2W]; a mask keeps the true pairs, a band of the matrix.
* As *groups* of G centres, each against S negatives drawn from the noise, with replacement, for the whole
  group. Each weighs k · (the centre's pairs) / S, so a pair meets negatives that weigh k together, as if it
  drew k of its own: the expected gradient is the same. A negative that happens to be a true context is
  kept, as the optimum log p(c|w)/q(c) − log k supposes (word2vec.c drops it).

How tables descend along these gradients: :mod:`lmcourse.descent`.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

WORKERS = 2  # blocks of a step


@dataclass(frozen=True)
class Plan:
    """How a block is cut up. The sizes are a compromise of speed and quality, measured on two CPU cores."""

    window: int  # W, the largest distance
    negatives: float  # k, in pairs
    shared: int = 32  # S
    groups: int = 12  # groups in a block

    @classmethod
    def for_text(cls, words: float, window: int, negatives: float) -> "Plan":
        """Blocks of a text of so many words: smaller ones where there would be fewer than 500 steps an epoch."""
        most = cls(window, negatives)
        return cls(window, negatives, groups=max(1, min(most.groups, int(words / (500 * WORKERS * most.group)))))

    @property
    def tile(self) -> int:  # L: at least 2W, so that a word lies in two tiles at most
        return max(16, 2 * self.window)

    @property
    def span(self) -> int:  # words that the centres of a tile can see
        return self.tile + 2 * self.window

    @property
    def group(self) -> int:  # G
        return 8 * self.tile

    @property
    def block(self) -> int:  # N
        return self.groups * self.group

    def masks(self, like: Tensor) -> Tensor:
        """[L · (W+1)², L + 2W] rows of 0 and 1, one for each (place in the tile, left reach, right reach)."""
        W, L = self.window, self.tile
        offset = torch.arange(self.span) - W - torch.arange(L)[:, None]  # [L, span]
        left, right = torch.arange(W + 1).view(-1, 1, 1, 1), torch.arange(W + 1).view(-1, 1, 1)
        kept = (offset >= -left) & (offset <= right) & (offset != 0)  # [W+1, W+1, L, span]
        return kept.permute(2, 0, 1, 3).reshape(-1, self.span).to(like)


# ----------------------------------------------------------------------------------- one epoch's draws


@dataclass(frozen=True)
class Text:
    """A stream without its boundaries: [T] each."""

    words: Tensor  # ids on the context side
    centres: Tensor  # ids on the centre side
    sentence: Tensor  # the number of the sentence that the word stands in
    keep: Tensor  # the probability that subsampling keeps it

    @classmethod
    def from_stream(cls, stream: Tensor, centre_stream: Tensor, keep: Tensor) -> "Text":
        """``stream`` and ``centre_stream`` with id V between sentences; ``keep`` [V] by word."""
        places = (stream != len(keep)).nonzero().flatten()
        words = stream[places]
        sentence = torch.cumsum(stream == len(keep), 0)[places]
        return cls(words, centre_stream[places], sentence, keep.float().to(stream.device)[words])


@dataclass(frozen=True)
class Epoch:
    """One pass over the text with all its random choices made, as M blocks; M is even."""

    words: Tensor  # [M, W + N + W] ids on the context side, with those before and after the block
    tiles: Tensor  # [M, N/L, L + 2W] the same ids, tile by tile
    centres: Tensor  # [M, N] ids on the centre side
    masks: Tensor  # [M, N] rows of Plan.masks
    pairs: Tensor  # [M, N] contexts of each centre; 0 for the padding at the end
    negatives: Tensor  # [M, N/G · S] ids


def draw_epoch(text: Text, noise: Tensor, plan: Plan, generator: torch.Generator) -> Epoch:
    """Subsample, draw each centre's window from 1..W, draw the negatives. ``noise`` [V] sums up to 1 from the left.

    Words are dropped before windows are drawn, so that windows reach over the gaps, as in word2vec.c.
    """
    W, N, L, device = plan.window, plan.block, plan.tile, noise.device
    kept = (torch.rand(len(text.keep), generator=generator).to(device) < text.keep).nonzero().flatten()
    left, right = reaches(text.sentence[kept], W, generator)
    M = WORKERS * max(1, -(-len(kept) // (WORKERS * N)))
    end = M * N - len(kept)
    words = F.pad(text.words[kept], (W, W + end))
    row = (left * (W + 1)).add_(right)
    row.add_(torch.arange(L, device=device).mul_((W + 1) ** 2).repeat(M * N // L)[: len(row)])
    draws = torch.rand(M, N // plan.group * plan.shared, generator=generator, dtype=torch.float64)
    return Epoch(
        words.as_strided((M, N + 2 * W), (N, 1)),
        words.as_strided((M, N // L, plan.span), (N, L, 1)),
        F.pad(text.centres[kept], (0, end)).view(M, N),
        F.pad(row, (0, end)).view(M, N),  # row 0 is empty: no reach
        F.pad(left.add_(right), (0, end)).view(M, N),
        torch.searchsorted(noise, draws.to(device)).clamp_(max=len(noise) - 1),
    )


def reaches(sentence: Tensor, window: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """How many words to the left and right each centre pairs with: 1..window, within its sentence.

    ``sentence`` [T]: the number of the sentence that each word stands in, never falling.
    """
    length = torch.bincount(sentence)
    start = torch.cumsum(length, 0) - length
    place = torch.arange(len(sentence), device=sentence.device) - start[sentence]
    drawn = torch.randint(1, window + 1, (len(sentence),), generator=generator).to(sentence.device)
    return torch.minimum(drawn, place), torch.minimum(drawn, length[sentence] - 1 - place)


# ------------------------------------------------------------------------------------------ one block


class BlockGradient:
    """The gradients of one block, in buffers that are used again: ``grad_v``, ``grad_u``, ``grad_n``."""

    def __init__(self, v: Tensor, u: Tensor, plan: Plan):
        self.v, self.u, self.plan, self.mask_rows = v, u, plan, plan.masks(v)
        N, L, G, S, W, D = plan.block, plan.tile, plan.group, plan.shared, plan.window, v.shape[1]
        new, span = v.new_empty, plan.span
        self.rows_v, self.rows_u, self.rows_n = new(N, D), new(N + 2 * W, D), new(N // G * S, D)
        self.grad_v, self.grad_u, self.grad_n = new(N, D), new(N // L * span, D), new(N // G * S, D)
        # The same memory seen as tiles; those of rows_u overlap.
        self.tile_v, self.tile_grad_v = self.rows_v.view(-1, L, D), self.grad_v.view(-1, L, D)
        self.tile_u = self.rows_u.as_strided((N // L, span, D), (L * D, D, 1))
        self.tile_grad_u = self.grad_u.view(-1, span, D)
        self.score, self.mask = new(N // L, L, span), new(N // L, L, span)
        # The same memory seen as groups.
        self.group_v, self.group_grad_v = self.rows_v.view(-1, G, D), self.grad_v.view(-1, G, D)
        self.group_n, self.group_grad_n = self.rows_n.view(-1, S, D), self.grad_n.view(-1, S, D)
        self.noise_score = new(N // G, G, S)

    def gradients(self, words, centres, masks, weights, negatives, scale: float = 1.0) -> None:
        """``scale`` times the gradient of the loss summed over the block's pairs, by row.

        ``centres`` [N] → ``grad_v``, ``negatives`` [N/G · S] → ``grad_n``, ``words`` [N+2W] → ``grad_u``, tile by tile;
        ``masks`` [N] rows of the mask table; ``weights`` [N/G, G, 1] of each negative for each centre.
        """
        torch.index_select(self.v, 0, centres, out=self.rows_v)
        torch.index_select(self.u, 0, words, out=self.rows_u)
        torch.index_select(self.u, 0, negatives, out=self.rows_n)
        torch.index_select(self.mask_rows, 0, masks, out=self.mask.view(-1, self.plan.span))
        self._positives(-scale)
        self._negatives(weights, scale)

    def _positives(self, scale: float) -> None:
        v, u, error = self.tile_v, self.tile_u, self.score
        torch.baddbmm(error, v, u.mT, beta=0, alpha=-1, out=error)
        error.sigmoid_().mul_(self.mask)  # σ(−s) = 1 − σ(s), hence the sign of scale
        torch.baddbmm(self.tile_grad_v, error, u, beta=0, alpha=scale, out=self.tile_grad_v)
        torch.baddbmm(self.tile_grad_u, error.mT, v, beta=0, alpha=scale, out=self.tile_grad_u)

    def _negatives(self, weights: Tensor, scale: float) -> None:
        v, n, error = self.group_v, self.group_n, self.noise_score
        torch.bmm(v, n.mT, out=error)
        error.sigmoid_().mul_(weights)
        self.group_grad_v.baddbmm_(error, n, alpha=scale)
        torch.baddbmm(self.group_grad_n, error.mT, v, beta=0, alpha=scale, out=self.group_grad_n)

    def loss(self, weights: Tensor) -> Tensor:
        """The loss summed over the pairs that :meth:`gradients` was last called with."""
        positive = F.logsigmoid(self.tile_v @ self.tile_u.mT) * self.mask
        negative = F.logsigmoid(-self.group_v @ self.group_n.mT) * weights
        return -(positive.sum() + negative.sum())
