"""The fast form of skip-gram with negative sampling: a step is a few matrix products over tiles of text.

:mod:`lmcourse.skipgram` states the loss and its gradient pair by pair; here the same sum is taken for
thousands of pairs at once. A block of N consecutive words is read twice.

* As *tiles* of L centres, each against the L + 2W words around it. The scores of a tile are one product
  [L, D] × [D, L + 2W]; a mask keeps the true pairs, a band of the matrix.
* As *groups* of G centres, each against S negatives drawn from the noise, with replacement, for the whole
  group. Each weighs k · (the centre's pairs) / S, so a pair meets negatives that weigh k together, as if it
  drew k of its own: the expected gradient is the same. A negative that happens to be a true context is
  kept, as the optimum log p(c|w)/q(c) − log k supposes (word2vec.c drops it).

A step is two blocks, one a thread. Both threads read the tables, then one changes v and the other u, so a
step is an exact mini-batch gradient, and the result depends on the seed alone, not on who was faster.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from lmcourse.threads import in_turn, side_by_side

WORKERS = 2  # blocks of a step
STRIDE = 1.0  # learning rate · pairs that a row may take part in, in one step; see Table


@dataclass(frozen=True)
class Plan:
    """How a block is cut up. The sizes are a compromise of speed and quality, measured on two CPU cores."""

    window: int  # W, the largest distance
    negatives: float  # k, in pairs
    shared: int = 32  # S
    groups: int = 6  # groups in a block

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
class Epoch:
    """One pass over the text with all its random choices made, as M blocks; M is even."""

    words: Tensor  # [M, W + N + W] ids on the context side, with those before and after the block
    centres: Tensor  # [M, N] ids on the centre side
    masks: Tensor  # [M, N] rows of Plan.masks
    pairs: Tensor  # [M, N] contexts of each centre; 0 for the padding at the end
    negatives: Tensor  # [M, N/G · S] ids


def draw_epoch(
    stream: Tensor, centre_stream: Tensor, keep: Tensor, noise: Tensor, plan: Plan, generator: torch.Generator
) -> Epoch:
    """Subsample, draw each centre's window from 1..W, draw the negatives.

    ``stream``, ``centre_stream`` [T] ids, V between sentences; ``keep`` [V+1] ends in 1, for the boundary;
    ``noise`` [V] sums up to 1 from left to right. Words are dropped before windows are drawn, so that
    windows reach over the gaps, as in word2vec.c.
    """
    W, N, boundary = plan.window, plan.block, len(noise)
    kept = torch.rand(len(stream), generator=generator).to(stream.device) < keep[stream]
    stream, centres = stream[kept], centre_stream[kept]
    is_word = stream != boundary
    sentence = torch.cumsum(~is_word, 0)[is_word]
    words, centres = stream[is_word], centres[is_word]
    left, right = reaches(sentence, W, generator)
    blocks = WORKERS * max(1, -(-len(words) // (WORKERS * N)))
    end = blocks * N - len(words)
    place = torch.arange(blocks * N, device=words.device) % plan.tile
    draws = torch.rand(blocks, N // plan.group * plan.shared, generator=generator, dtype=torch.float64)
    return Epoch(
        F.pad(words, (W, W + end)).as_strided((blocks, N + 2 * W), (N, 1)),
        F.pad(centres, (0, end)).view(blocks, N),
        (place * (W + 1) ** 2 + F.pad(left * (W + 1) + right, (0, end))).view(blocks, N),
        F.pad(left + right, (0, end)).view(blocks, N),
        torch.searchsorted(noise, draws.to(noise.device)).clamp_(max=boundary - 1),
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


class Block:
    """The gradients of one block, in buffers that are used again: ``grad_v``, ``grad_u``, ``grad_n``."""

    def __init__(self, v: Tensor, u: Tensor, plan: Plan):
        self.v, self.u, self.plan, self.mask_rows = v, u, plan, plan.masks(v)
        N, L, G, S, W, D = plan.block, plan.tile, plan.group, plan.shared, plan.window, v.shape[1]
        new, span, halo = v.new_empty, plan.span, N + 2 * W
        self.rows_v, self.rows_u, self.rows_n = new(N, D), new(halo, D), new(N // G * S, D)
        self.grad_v, self.grad_u, self.grad_n = new(N, D), new(halo, D), new(N // G * S, D)
        # The same memory seen as tiles; those of rows_u overlap.
        self.tile_v, self.tile_grad_v = self.rows_v.view(-1, L, D), self.grad_v.view(-1, L, D)
        self.tile_u, self.tile_grad_u = self.rows_u.as_strided((N // L, span, D), (L * D, D, 1)), new(N // L, span, D)
        self.score, self.mask = new(N // L, L, span), new(N // L, L, span)
        self.overlap = self.grad_u[L:].as_strided((N // L, 2 * W, D), (L * D, D, 1))
        # The same memory seen as groups.
        self.group_v, self.group_grad_v = self.rows_v.view(-1, G, D), self.grad_v.view(-1, G, D)
        self.group_n, self.group_grad_n = self.rows_n.view(-1, S, D), self.grad_n.view(-1, S, D)
        self.noise_score = new(N // G, G, S)

    def gradients(self, words, centres, masks, weights, negatives, scale: float = 1.0) -> None:
        """``scale`` times the gradient of the loss summed over the block's pairs, by row.

        ``words`` [N+2W] → ``grad_u``, ``centres`` [N] → ``grad_v``, ``negatives`` [N/G · S] → ``grad_n``;
        ``masks`` [N] rows of the mask table; ``weights`` [N/G, G, 1] of each negative for each centre.
        """
        torch.index_select(self.v, 0, centres, out=self.rows_v)
        torch.index_select(self.u, 0, words, out=self.rows_u)
        torch.index_select(self.u, 0, negatives, out=self.rows_n)
        torch.index_select(self.mask_rows, 0, masks, out=self.mask.view(-1, self.plan.span))
        self._positives(-scale)
        self._negatives(weights, scale)

    def _positives(self, scale: float) -> None:
        N, L = self.plan.block, self.plan.tile
        v, u, error = self.tile_v, self.tile_u, self.score
        torch.baddbmm(error, v, u.mT, beta=0, alpha=-1, out=error)
        error.sigmoid_().mul_(self.mask)  # σ(−s) = 1 − σ(s), hence the sign of scale
        torch.baddbmm(self.tile_grad_v, error, u, beta=0, alpha=scale, out=self.tile_grad_v)
        torch.baddbmm(self.tile_grad_u, error.mT, v, beta=0, alpha=scale, out=self.tile_grad_u)
        # A tile's last 2W words are the next tile's first.
        self.grad_u[:N].view(N // L, L, -1).copy_(self.tile_grad_u[:, :L])
        self.grad_u[N:].zero_()
        self.overlap.add_(self.tile_grad_u[:, L:])

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


# ---------------------------------------------------------------------------------------- the training


class Table:
    """The rows of v or u that blocks read and change, [V, D] in ``values``.

    A step adds up all its gradients at one point. Where a row takes part in n pairs, that is one stride for
    n small ones that would each have corrected the last, and too long a stride diverges. So a row's learning
    rate is at most STRIDE / n. The gradients of the rows that this shortens are summed in spare rows first.
    ``expected`` [V]: the pairs of each row in one step; ``rate``: the learning rate at the start.
    """

    def __init__(self, values: Tensor, expected: Tensor, rate: float):
        pace = STRIDE / (rate * expected.to(values.device))
        self.frequent = (pace < 1).nonzero().flatten()
        self.pace = pace[self.frequent, None].to(values.dtype)
        self.target = torch.arange(len(values), device=values.device)  # the row that takes a row's gradients
        self.target[self.frequent] = len(values) + torch.arange(len(self.frequent), device=values.device)
        self.rows = torch.cat([values, values.new_zeros(len(self.frequent), values.shape[1])])
        self.values, self.sums = self.rows.split([len(values), len(self.frequent)])

    def descend(self, ids: Sequence[Tensor], strides: Sequence[Tensor]) -> None:
        """Add the rows of ``strides`` to those that ``ids`` names, already mapped by ``target``."""
        for i, stride in zip(ids, strides):
            self.rows.index_add_(0, i, stride)
        self.rows.index_add_(0, self.frequent, self.sums * self.pace)
        self.sums.zero_()


def expected_pairs(centres: Tensor, words: Tensor, noise: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """([V'], [V]) pairs that each row of v and of u takes part in, in one step, were all windows full.

    A pair counts 1 + k times for its centre, once for its context and k times for the noise. ``centres``
    [V'] and ``words`` [V]: expected counts after subsampling.
    """
    step = min(WORKERS * plan.block, float(words.sum()))  # words of a step
    pairs = step / words.sum() * (plan.window + 1)  # of one occurrence
    drawn = torch.diff(noise, prepend=noise.new_zeros(1)) * words.sum()
    return pairs * (1 + plan.negatives) * centres, pairs * (words + plan.negatives * drawn)


def train_epoch(epoch: Epoch, blocks: Sequence[Block], v: Table, u: Table, rate, report) -> float:
    """Gradient descent over one epoch; returns the mean loss per pair, taken from about a hundred steps.

    ``blocks`` read the values of ``v`` and ``u``. ``rate(done)`` is the learning rate after the share
    ``done`` of the epoch; ``report(done)`` is told now and then.
    """
    plan = blocks[0].plan
    words, centres, masks, negatives = (t.unbind() for t in (epoch.words, epoch.centres, epoch.masks, epoch.negatives))
    # [M, N/G, G, 1]: what one of a group's S negatives weighs for each centre
    weights = epoch.pairs.to(v.values.dtype) * (plan.negatives / plan.shared)
    weights = weights.view(len(words), -1, plan.group, 1).unbind()
    to_v, to_u, to_n = v.target[epoch.centres], u.target[epoch.words], u.target[epoch.negatives]
    losses, sampled = [], range(0, len(words), WORKERS * max(1, len(words) // (WORKERS * 100)))

    def gradients(worker: int, first: int) -> None:
        i, block, done = first + worker, blocks[worker], first / len(words)
        block.gradients(words[i], centres[i], masks[i], weights[i], negatives[i], -rate(done))
        if worker == 0 and first in sampled:
            losses.append(block.loss(weights[i]))
            report(done)

    def update(worker: int, first: int) -> None:
        both = slice(first, first + WORKERS)
        if worker == 0:
            v.descend(to_v[both], [b.grad_v for b in blocks])
        else:
            u.descend([*to_u[both], *to_n[both]], [b.grad_u for b in blocks] + [b.grad_n for b in blocks])

    def calls(worker: int) -> Iterator[Callable[[], None]]:
        for first in range(0, len(words), WORKERS):
            yield partial(gradients, worker, first)
            yield partial(update, worker, first)

    (side_by_side if v.rows.device.type == "cpu" else in_turn)(calls(0), calls(1))
    return float(torch.stack(losses).sum() / epoch.pairs[sampled.start : sampled.stop : sampled.step].sum())
