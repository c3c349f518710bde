"""What the course's checkpoints cost on text that they have not seen, in bits per byte, beside an n-gram model.

Each kind of model foresees other tokens from other ones: GPT and AWD-LSTM all of them from those before, BERT masked
ones, T5 the dropped ones, ELMo words. So each has a number of its own, over the bytes of what it foresaw, and beside it
that of an n-gram model for just those tokens, each foreseen from the four before in the text as it was. Numbers of two
kinds of models are not to be compared: BERT and T5 also read what comes after.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmcourse import arguments, batches, course, data
from lmcourse.bert import BERT
from lmcourse.bits import per_byte
from lmcourse.characters import MARKS, bidirectional_lm
from lmcourse.corruption import corrupt, noise_mask
from lmcourse.elmo import ELMo
from lmcourse.gpt import GPT
from lmcourse.ngram import KneserNey
from lmcourse.t5 import T5, shifted
from lmcourse.ulmfit import AWDLSTM

ROW = 255  # pieces that a Transformer reads at once, beside [CLS]
ORDER = 5  # of the n-gram model
Part = tuple[Tensor, Tensor]  # what tokens cost, in nats, and where they stand in the text, (N,) each

# ------------------------------------------------------------------------------------------ by kind of model


def causal(gpt: GPT, ids: Tensor) -> Iterator[Part]:
    """All tokens, in windows that overlap by half: before each stand 127 or more, or all that there are, and [CLS]."""
    half = ROW // 2
    for start in range(0, max(1, len(ids) - half), ROW - half):
        window, new = ids[start : start + ROW], half if start else 0
        costs = nats(gpt(batches.begun(window[None, :-1]))[0], window)
        yield costs[new:], torch.arange(start + new, start + len(window))


def recurrent(lstm: AWDLSTM, ids: Tensor) -> Iterator[Part]:
    """All tokens, from all before them."""
    state, before = {}, F.pad(ids[:-1], (1, 0), value=course.SEP)
    for start in range(0, len(ids), ROW):
        window = ids[start : start + ROW]
        yield nats(lstm(before[None, start : start + ROW], state)[0], window), torch.arange(start, start + len(window))


def masked(bert: BERT, ids: Tensor) -> Iterator[Part]:
    """15 of 100 tokens, whatever the share in training; about one in ten of them is left as it is, unmarked."""
    generator = torch.Generator().manual_seed(0)
    for start in range(0, len(ids) - ROW + 1, ROW):
        inputs, targets, weights = batches.masked(ids[None, start : start + ROW], generator)
        chosen = weights[0] > 0
        scores = bert.head(bert.hidden(inputs)[0][chosen])
        yield nats(scores, targets[0][chosen]), start + chosen.nonzero()[:, 0] - 1  # [CLS] is not in the text


def dropped(t5: T5, ids: Tensor) -> Iterator[Part]:
    """15 of 100 tokens in spans. Sentinels and the end do not count: the n-gram model does not foresee them either."""
    generator = torch.Generator().manual_seed(0)
    for start in range(0, len(ids) - ROW + 1, ROW):
        row = batches.begun(ids[None, start : start + ROW])[0]
        noise = noise_mask(len(row), generator=generator)
        inputs, targets = corrupt(row, noise, sentinels=batches.SENTINELS, end_id=course.END)
        scores = t5(inputs[None], shifted(targets[None]))[0]
        pieces = targets >= len(course.SPECIALS)
        yield nats(scores[pieces], targets[pieces]), start + noise.nonzero()[:, 0] - 1


FORESEEN: dict[type, Callable[..., Iterator[Part]]] = {GPT: causal, AWDLSTM: recurrent, BERT: masked, T5: dropped}


def nats(scores: Tensor, targets: Tensor) -> Tensor:
    """-log p of each target: scores (N, V), targets (N,) → (N,)."""
    return F.cross_entropy(scores.float(), targets, reduction="none")


# ------------------------------------------------------------------------------------------ in bits per byte


@dataclass(frozen=True)
class HeldOut:
    """Bits for each byte of the tokens that a model foresaw, and what the n-gram model needs for the same ones."""

    bits: float
    baseline: float | None
    bytes: int


def measure(model: nn.Module, baseline: KneserNey | None, texts: Sequence[str]) -> HeldOut:
    """``texts``: whole documents. ``baseline``: from :func:`ngrams`, of words for ELMo. ``model`` stops training."""
    arguments.listed("texts", texts, "documents in a list; use [text] for one")
    model.eval()
    document = _words if isinstance(model, ELMo) else _pieces
    with torch.inference_mode():
        found = [document(model, baseline, text) for text in texts]
    ours, theirs, size = (sum(column) for column in zip(*found, strict=True))
    return HeldOut(per_byte(ours, size), None if baseline is None else per_byte(theirs, size), size)


def ngrams(corpora: Sequence[str] = course.CORPORA, words: bool = False) -> KneserNey:
    """The n-gram model of the training documents, of pieces or of ELMo's words; a few seconds."""
    if words:
        sentences = [_targets([sentence]) for sentence in course.sentences("train", corpora)]
        return KneserNey.fit(sentences, ORDER, vocabulary=len(course.words()) + MARKS)
    return KneserNey.fit([course.ids("train", corpora)], ORDER, vocabulary=course.SIZE)


def _pieces(model: nn.Module, baseline: KneserNey, text: str) -> tuple[float, float, int]:
    """(nats of the model, nats of the baseline, bytes) of one document."""
    pieces = course.tokenizer()
    ids = torch.tensor(pieces.encode(text))
    if isinstance(model, BERT | T5) and len(ids) < ROW:
        reads = f"expected {ROW} or more, which {type(model).__name__} reads"
        raise ValueError(f"texts: got one of {len(ids)} pieces, {reads}")
    parts = list(FORESEEN[type(model)](model, ids))
    places = torch.cat([place for _, place in parts])
    size = sum(len(pieces.vocabulary[i]) for i in ids[places].tolist())  # a character of a piece is a byte
    theirs = _foreseen(baseline, F.pad(ids, (1, 0), value=course.SEP), places + 1)
    return float(sum(costs.double().sum() for costs, _ in parts)), theirs, size


def _foreseen(baseline: KneserNey | None, ids: Tensor, places: Tensor) -> float:
    """What the tokens at ``places`` of a text cost the n-gram model, in nats; 0 without one."""
    return 0.0 if baseline is None else -float(baseline.log_probabilities(ids)[places].sum())


def _targets(sentences: list[list[str]]) -> Tensor:
    """Sentences one after the other as ids of words, with the marks of begin and end: (N,)."""
    _, targets, weights = bidirectional_lm(sentences, course.words())
    return targets[weights > 0]


def _words(elmo: ELMo, baseline: KneserNey, text: str) -> tuple[float, float, int]:
    """The same of words from the left, those that the softmax knows, each with a byte for the space before it.

    Of a word that it does not know, ELMo reads the characters; for the n-gram model all such words are one.
    """
    words, ours, theirs, size = course.words(), 0.0, 0.0, 0
    for sentence in data.split(text):
        characters, targets, _ = bidirectional_lm([sentence], words)
        known = targets[0] < len(words)
        costs = nats(elmo(characters)[0][0, :-1], targets[0, 1:])
        ours += float(costs[known[1:]].double().sum())
        theirs += _foreseen(baseline, targets[0], known)
        size += sum(len(words.words[i].encode()) + 1 for i in targets[0, known].tolist())
    return ours, theirs, size
