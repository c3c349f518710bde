"""ULMFiT's three stages on the course's own text: a general language model, the task's language model, a classifier.

The general model is the course's AWD-LSTM, which has read the novels only; the tasks are those of
:mod:`lmcourse.passages`. Howard & Ruder 2018, section 3. ``recipes/ulmfit.py`` runs the experiments.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lmcourse import course, data
from lmcourse.bits import per_byte
from lmcourse.device import Device, seed_from
from lmcourse.heldout import nats
from lmcourse.objectives import causal_lm
from lmcourse.optimisation import Settings
from lmcourse.passages import Passages
from lmcourse.probes import ProbeSentence
from lmcourse.rows import Columns
from lmcourse.training import fit
from lmcourse.ulmfit import AWDClassifier, AWDLSTM, discriminative, layer_groups, unfreeze

GROUPS = ("embedding", "layer 1", "layer 2", "layer 3", "head")  # from the bottom, as layer_groups gives them


# ------------------------------------------------------------------------------------------------ the stages


@dataclass(frozen=True)
class Recipe:
    """How one stage is trained. The defaults are ULMFiT's, but for the numbers of steps and the sizes of batches."""

    steps: int
    rate: float  # of the top group, at its peak
    factor: float = 2.6  # each group below learns at 1/factor of the next
    schedule: str = "slanted_triangular"
    cut_frac: float = 0.1
    gradual: bool = False  # one more group learns in each of as many equal parts of the steps as there are groups
    batch: int = 16
    length: int = 64  # pieces of a row of a language model

    def settings(self, seed: int) -> Settings:
        """Adam with β 0.7 and 0.99, as in section 4.1, without decay."""
        options = dict(schedule=self.schedule, cut_frac=self.cut_frac, decay=0.0, betas=(0.7, 0.99), seed=seed)
        return Settings(self.steps, rate=self.rate, log=max(1, self.steps // 10), **options)


def tune_language_model(
    model: AWDLSTM, ids: Tensor, recipe: Recipe, seed: int, device: Device | None = None
) -> list[dict]:
    """The second stage: ``model`` goes on as a language model of ``ids`` (N,), from a place that ``seed`` draws."""
    place = seed_from(seed) % len(ids)
    columns = Columns(ids.roll(-place), recipe.length, recipe.batch)
    draw = lambda step, generator: causal_lm(columns(step * recipe.batch, recipe.batch))  # noqa: E731
    groups = lambda model: discriminative(layer_groups(model), recipe.rate, recipe.factor)  # noqa: E731
    return fit(model, draw, recipe.settings(seed), groups=groups, carries=True, device=device)


def travel(recipe: Recipe, groups: int = len(GROUPS)) -> list[float]:
    """Σ of its rates over all steps in which it learns, for each group from the top: no weight moves further.

    Times the longest step of Adam, that is: :func:`longest_step`.
    """
    settings, shares = recipe.settings(0), []
    for group in range(groups):
        first = -(-group * recipe.steps // groups) if recipe.gradual else 0
        share = sum(settings.factor(step) for step in range(first, recipe.steps))
        shares.append(recipe.rate / recipe.factor**group * share)
    return shares


def longest_step(betas: tuple[float, float] = (0.7, 0.99)) -> float:
    """By how many times its rate a step of Adam can move a weight at most, whatever the gradients, for β1² < β2."""
    b1, b2 = betas
    if not 0 <= b1 < 1 or not b1 * b1 < b2 < 1:
        raise ValueError(f"betas: got {betas!r}, expected two numbers below 1, the first's square below the second")
    return ((1 - b1) ** 2 / ((1 - b2) * (1 - b1 * b1 / b2))) ** 0.5


def tune_classifier(
    model: AWDClassifier, texts: Passages, recipe: Recipe, seed: int, device: Device | None = None
) -> list[dict]:
    """The third stage: each epoch goes through ``texts`` in another order."""
    groups = layer_groups(model)
    unfreeze(groups, len(groups))

    def draw(step: int, generator: torch.Generator):
        if recipe.gradual:
            unfreeze(groups, 1 + step * len(groups) // recipe.steps)
        rows = (step * recipe.batch + torch.arange(recipe.batch)) % len(texts)
        chosen = texts[order(step * recipe.batch // len(texts))[rows]]
        return chosen.tokens, chosen.labels, chosen.mask

    def order(epoch: int) -> Tensor:
        return torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed_from(seed, epoch, 1)))

    rates = discriminative(groups, recipe.rate, recipe.factor)
    log = fit(model, draw, recipe.settings(seed), groups=lambda model: rates, device=device)
    unfreeze(groups, len(groups))
    return log


# ---------------------------------------------------------------------------------------------- measurements


@torch.inference_mode()
def accuracy(model: AWDClassifier, texts: Passages, batch: int = 50) -> float:
    """The share of ``texts`` whose label gets the greatest score."""
    model.eval()
    parts = (texts[i : i + batch] for i in range(0, len(texts), batch))
    return sum(int((model(p.tokens, p.mask).argmax(-1) == p.labels).sum()) for p in parts) / len(texts)


@torch.inference_mode()
def bits(model: AWDLSTM, ids: Tensor, rows: int = 16, length: int = 64) -> float:
    """What ``ids`` (N,), read in ``rows`` parts side by side, cost the model, in bits per byte.

    The first token of each part is given. Where ``model`` came out of a classifier, this is the language model's head
    on its body again: the tied matrix is the embedding as it is now.
    """
    model.eval()
    columns, state, cost, size = Columns(ids, length, rows), {}, 0.0, 0
    for i in range(columns.epoch):
        window = columns(i * rows, rows)
        cost += float(nats(model(window[:, :-1], state).flatten(0, 1), window[:, 1:].flatten()).double().sum())
        size += sum(len(course.tokenizer().vocabulary[i]) for i in window[:, 1:].flatten().tolist())
    return per_byte(cost, size)


def drift(model: AWDLSTM, start: AWDLSTM) -> list[float]:
    """‖θ - θ̂‖ / ‖θ̂‖ of the embedding and of each layer, from the bottom up; ``start`` holds θ̂."""
    flat = lambda group: nn.utils.parameters_to_vector([p.detach() for p in group])  # noqa: E731
    pairs = list(zip(layer_groups(model), layer_groups(start), strict=True))[:-1]  # the tied head has only a bias
    return [float((flat(a) - flat(b)).norm() / flat(b).norm()) for a, b in pairs]


@torch.inference_mode()
def marked_states(model: AWDLSTM, items: Sequence[ProbeSentence]) -> Tensor:
    """What each layer makes of the probe's words: (layers + 1, N, D), the embedding first, narrow ones padded with 0.

    A word's vector is that of its last piece, when the whole word has been read and nothing after it.
    """
    model.eval()
    encode, vectors = course.tokenizer().encode, []
    for item in items:
        text = item.sentence.replace("’", "'")
        end = list(data.WORD.finditer(text))[item.position].end()
        states: list[Tensor] = []
        model.hidden(torch.tensor([[course.SEP, *encode(text[:end])]]), None, states)
        vectors.append(nn.utils.rnn.pad_sequence([layer[0, -1] for layer in states], batch_first=True))
    return torch.stack(vectors, dim=1)
