"""Gradient descent over the blocks of :mod:`lmcourse.tiles`, on two cores, the same in every run.

A step is two blocks, one a thread. Both threads read the tables, then one changes v and the other u, so a
step is an exact mini-batch gradient, and the result depends on the seed alone, not on who was faster.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lmcourse.tiles import WORKERS, BlockGradient, Epoch, Plan

STRIDE = 1.0  # learning rate · pairs that a row may take part in, in one step; see Table. At 2 training may collapse
BURST = 4.0  # pairs of a row in one step, over those of a usual step, from which it is shortened further


class Table:
    """The rows of v or u that blocks read and change, [V, D] in ``values``.

    A step adds up all its gradients at one point. Where a row takes part in n pairs, that is one stride for
    n small ones that would each have corrected the last, and too long a stride diverges. So the learning rate of
    a row with n pairs in a usual step is at most STRIDE / n. The gradients of the rows that this shortens are
    summed in spare rows first. A word of one chapter may fill a step although it is rare in the text: where a row
    has more than BURST times the pairs that need no shortening, that one step is shortened in proportion.

    ``expected`` [V]: the pairs of each row in a usual step; ``rate``: the learning rate at the start.
    """

    def __init__(self, values: Tensor, expected: Tensor, rate: float):
        most, expected = STRIDE / rate, expected.to(values)
        self.frequent = (expected > most).nonzero().flatten()
        self.pace = most / expected[self.frequent]
        self.target = torch.arange(len(values), device=values.device)  # the row that takes a row's gradients
        self.target[self.frequent] = len(values) + torch.arange(len(self.frequent), device=values.device)
        self.rows = F.pad(values, (0, 0, 0, len(self.frequent)))
        if values.device.type == "cpu":  # numpy asks for large memory pages, torch does not: half the gathering time
            self.rows = torch.from_numpy(np.copy(self.rows.numpy()))
        self.values, self.sums = self.rows.split([len(values), len(self.frequent)])
        usual = expected.clamp(min=most)
        self.crowd = BURST * torch.cat([usual, usual[self.frequent]])  # [V + spare] pairs that make a burst

    def descend(self, ids: Sequence[Tensor], strides: Sequence[Tensor], pairs: float) -> None:
        """Add the rows of ``strides``, shortened, to those that ``ids`` names, already mapped by ``target``.

        ``pairs``: in how many an entry of the first of ``ids``, one a block, takes part on average. Only these
        are counted: the rest are negatives, which cannot run away, since a low score ends their gradient.
        """
        V, entries = len(self.values), torch.bincount(torch.cat(tuple(ids[:WORKERS])), minlength=len(self.rows))
        pace = (self.crowd / (pairs * entries.to(self.crowd))).clamp_(max=1)
        for i, stride in zip(ids, strides):
            crowded = ((pace[i] < 1) & (i < V)).nonzero().flatten()
            stride[crowded] *= pace[i[crowded], None]
            self.rows.index_add_(0, i, stride)
        self.rows.index_add_(0, self.frequent, self.sums * (self.pace * pace[V:])[:, None])
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


def train_epoch(epoch: Epoch, blocks: Sequence[BlockGradient], v: Table, u: Table, rate, report) -> float:
    """Gradient descent over one epoch; returns the mean loss per pair, taken from about twenty steps.

    ``blocks`` read the values of ``v`` and ``u``. ``rate(done)`` is the learning rate after the share
    ``done`` of the epoch; ``report(done)`` is told now and then.
    """
    plan = blocks[0].plan
    words, centres, masks, negatives = (t.unbind() for t in (epoch.words, epoch.centres, epoch.masks, epoch.negatives))
    # [M, N/G, G, 1]: what one of a group's S negatives weighs for each centre
    weights = epoch.pairs.to(v.values.dtype) * (plan.negatives / plan.shared)
    weights = weights.view(len(words), -1, plan.group, 1).unbind()
    # Pairs of one centre, and of one word of a tile, were all windows full.
    ends_v, ends_u = (plan.window + 1) * (1 + plan.negatives), (plan.window + 1) * plan.tile / plan.span
    to_v, to_u, to_n = v.target[epoch.centres], u.target[epoch.tiles].flatten(1), u.target[epoch.negatives]
    losses, sampled = [], range(0, len(words), WORKERS * max(1, len(words) // (WORKERS * 20)))

    def gradients(worker: int, first: int) -> None:
        i, block, done = first + worker, blocks[worker], first / len(words)
        block.gradients(words[i], centres[i], masks[i], weights[i], negatives[i], -rate(done))
        if worker == 0 and first in sampled:
            losses.append(block.loss(weights[i]))
            report(done)

    def update(worker: int, first: int) -> None:
        both = slice(first, first + WORKERS)
        if worker == 0:
            v.descend(to_v[both], [b.grad_v for b in blocks], ends_v)
        else:
            u.descend([*to_u[both], *to_n[both]], [b.grad_u for b in blocks] + [b.grad_n for b in blocks], ends_u)

    def calls(worker: int) -> Iterator[Callable[[], None]]:
        for first in range(0, len(words), WORKERS):
            yield partial(gradients, worker, first)
            yield partial(update, worker, first)

    (side_by_side if v.rows.device.type == "cpu" else in_turn)(calls(0), calls(1))
    return float(torch.stack(losses).sum() / epoch.pairs[sampled.start : sampled.stop : sampled.step].sum())


def in_turn(first: Iterator[Callable], second: Iterator[Callable]) -> None:
    for pair in zip(first, second):
        for call in pair:
            call()


def side_by_side(first: Iterator[Callable], second: Iterator[Callable]) -> None:
    """Two threads, one core each: both finish their nth call before either starts its next.

    torch's own threads are set to one meanwhile: what they would share is too small to be worth sharing.
    """

    def run(calls, own: SimpleQueue, other: SimpleQueue):
        try:
            with torch.inference_mode():
                for call in calls:
                    call()
                    other.put(None)
                    if error := own.get():
                        return error
        except BaseException as error:  # KeyboardInterrupt too: the other thread must not wait for ever
            other.put(error)
            return error

    threads, queues = torch.get_num_threads(), (SimpleQueue(), SimpleQueue())
    torch.set_num_threads(1)
    try:
        helper = threading.Thread(target=run, args=(second, *queues[::-1]), daemon=True)
        helper.start()
        error = run(first, *queues)
        helper.join()
    except BaseException as stopped:  # an interrupt outside of run: the helper must not wait for ever
        queues[1].put(stopped)
        raise
    finally:
        torch.set_num_threads(threads)
    if error:
        raise error
