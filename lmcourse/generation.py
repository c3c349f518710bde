"""Generate text token by token, with and without a cache, and score a given text."""

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmcourse.arguments import came, cpu_generator, whole
from lmcourse.bert import BERT
from lmcourse.bits import per_byte
from lmcourse.multihead import Cache
from lmcourse.sampling import check_rules, distribution, draw
from lmcourse.t5 import T5

NextScores = Callable[..., Tensor]  # ids (B, T) → scores (B, V) of the token that follows


def generate(
    next_scores: NextScores,
    tokens: Tensor,
    new: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    attention_mask: Tensor | None = None,
    stop: int | Iterable[int] | None = None,
    cached: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Prompts (B, T) and up to ``new`` tokens more: (B, T + new), or fewer where every row stopped before.

    ``next_scores``: ``gpt.next_scores``, or ``functools.partial(t5.next_scores, memory=memory, memory_mask=mask)``, or,
    with ``cached=False``, any function from ids (B, T) to scores (B, V). Where it is a model's method, the model is in
    evaluation mode meanwhile (no dropout) and gets its own mode back.

    ``temperature``: 0 takes the greatest score, the lowest id where several are equal. Above 0 a token is drawn from
    ``sampling.distribution`` with ``top_k`` and ``top_p``, and a CPU ``generator`` is needed. It gives B·new numbers
    at once, whatever happens after. Row b uses the b-th run of ``new`` numbers: its text depends on its place in the
    batch and not on the other rows.

    ``attention_mask``: booleans (B, T), True at tokens, for prompts padded on the left; ``pad_left`` makes both.

    ``stop``: one id or several. A row that generated one repeats it to the end; those in the prompt do not count.

    ``cached``: each token is read once; if not, all are read again for each new one. Tokens are the same.

    On XLA every length compiles anew, which takes seconds: for long texts move the model to the CPU.
    """
    model = _model(next_scores)
    _check_reading(next_scores, model, tokens, new, attention_mask, cached)
    _check_sampling(model, temperature, top_k, top_p, generator)
    stops = _stops(stop, tokens.device)
    reader = _Reader(next_scores, cached, attention_mask, new)
    rule = functools.partial(distribution, temperature=temperature, top_k=top_k, top_p=top_p) if temperature else None
    uniform = torch.rand(len(tokens), new, dtype=torch.float64, generator=generator) if temperature else None
    with _evaluation(model, tokens.device):
        text = _extend(reader, tokens, new, rule, uniform, stops)
    return text.clone()  # made outside, it is an ordinary tensor, with which one can train


def _extend(reader, tokens: Tensor, new: int, rule, uniform: Tensor | None, stops: Tensor | None) -> Tensor:
    B, T = tokens.shape
    text = torch.cat([tokens, tokens.new_zeros(B, new)], dim=1)  # (B, T + new)
    stopped = torch.zeros(B, dtype=torch.bool, device=tokens.device)
    for n in range(T, T + new):
        scores = reader(text[:, :n])
        ids = _greatest(scores)
        if rule is not None:
            ids = draw(rule(scores), uniform[:, n - T])
        if stops is not None:
            ids = torch.where(stopped, text[:, n - 1], ids)
            stopped |= torch.isin(ids, stops)
        text[:, n] = ids
        if stops is not None and bool(stopped.all()):
            return text[:, : n + 1]
    return text


class _Reader:
    """Ids (B, n) → scores (B, V). With a cache it gives the model only what is not read yet."""

    def __init__(self, next_scores: NextScores, cached: bool, attention_mask: Tensor | None, new: int):
        self.next_scores, self.cached, self.read = next_scores, cached, 0
        self.options = {"cache": Cache()} if cached else {}
        padded = attention_mask is not None and not bool(attention_mask.all())
        self.seen = F.pad(attention_mask, (0, new), value=True) if padded else None

    def __call__(self, text: Tensor) -> Tensor:
        n = text.shape[1]
        if self.seen is not None:
            self.options["attention_mask"] = self.seen[:, :n]
        start, self.read = self.read, n if self.cached else 0
        return self.next_scores(text[:, start:], **self.options)


def _greatest(scores: Tensor) -> Tensor:
    """The id of each row's greatest score, the lowest where several are equal: (B, V) → (B,)."""
    if not isinstance(scores, Tensor) or scores.ndim != 2:
        raise ValueError(f"next_scores: got {came(scores)}, expected (B, V); pass model.next_scores, not the model")
    values, ids = scores.max(-1)  # not a number where any score is
    if not all(map(math.isfinite, values.tolist())):
        raise ValueError("next_scores: some scores are NaN or +∞, or all are -∞; train again at a smaller rate")
    return ids


def pad_left(prompts: Sequence[Sequence[int]], pad: int = 0) -> tuple[Tensor, Tensor]:
    """Lists of ids, each of one or more → tokens (B, T) and attention mask (B, T), padded on the left."""
    if not len(prompts) or not all(len(prompt) for prompt in prompts):
        raise ValueError("prompts: got an empty list, expected one id or more in each; begin with a start token")
    T = max(map(len, prompts))
    tokens = torch.tensor([[pad] * (T - len(prompt)) + list(prompt) for prompt in prompts])
    return tokens, torch.arange(T) >= torch.tensor([[T - len(prompt)] for prompt in prompts])


# ------------------------------------------------------------------------------------------------- score


@dataclass(frozen=True)
class Score:
    """How well a model foresaw a text."""

    nats: float  # -Σ log p, over the tokens that were scored
    tokens: int  # so many

    @property
    def perplexity(self) -> float:
        """exp of the mean -log p: comparable only between models with the same tokens. 1 is the best."""
        return math.exp(self.nats / self.tokens)

    def bits_per_byte(self, size: int) -> float:
        """-Σ log₂ p / ``size``, the text's bytes, ``len(text.encode())``: comparable between any tokenizers."""
        whole("size", size)
        return per_byte(self.nats, size)


def log_probabilities(model: nn.Module, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    """log p(token | all before it) for each token but the first: (B, T) ids → (B, T - 1) nats, 0 at padding.

    ``model`` gives scores (B, T, V) for the token after each, as ``GPT`` does, and is in evaluation mode meanwhile.
    """
    if isinstance(model, BERT | T5):
        raise TypeError(f"model: got {came(model)}, expected one that sees earlier tokens only, such as a GPT")
    if not isinstance(tokens, Tensor) or tokens.ndim != 2 or tokens.shape[1] < 2:
        raise ValueError(f"tokens: got {came(tokens)}, expected (B, T), T from 2 on; the first token is not scored")
    with _evaluation(model, tokens.device):
        scores = model(tokens, attention_mask)[:, :-1]  # (B, T - 1, V)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        logs = scores.gather(-1, tokens[:, 1:, None])[..., 0] - scores.logsumexp(-1)
    return logs.clone() if attention_mask is None else logs.masked_fill(~_scored(attention_mask), 0.0)


def score(model: nn.Module, tokens: Tensor, attention_mask: Tensor | None = None) -> Score:
    """All rows of ``log_probabilities`` in one sum. Begin texts with a start token, or the first goes unscored."""
    logs = log_probabilities(model, tokens, attention_mask)
    counted = logs.numel() if attention_mask is None else int(_scored(attention_mask).sum())
    if not counted:
        raise ValueError("attention_mask: no token after another is True; expected one or more, so that one is scored")
    return Score(-float(logs.double().sum()), counted)


def _scored(attention_mask: Tensor) -> Tensor:
    """Tokens after a token, (B, T) → (B, T - 1); padding may stand on either side."""
    return attention_mask[:, 1:] & attention_mask[:, :-1]


# --------------------------------------------------------------------------------------------- arguments


def _model(next_scores: NextScores) -> nn.Module | None:
    """The model whose method ``next_scores`` is, also within ``functools.partial``."""
    while isinstance(next_scores, functools.partial):
        next_scores = next_scores.func
    owner = getattr(next_scores, "__self__", None)
    return owner if isinstance(owner, nn.Module) else None


@contextmanager
def _evaluation(model: nn.Module | None, device: torch.device) -> Iterator[None]:
    """No gradients, no dropout."""
    training = [] if model is None else [module for module in model.modules() if module.training]
    mode = torch.no_grad() if device.type == "xla" else torch.inference_mode()  # XLA cannot record the faster one
    try:
        for module in training:
            module.training = False
        with mode:
            yield
    finally:
        for module in training:
            module.training = True


def _stops(stop: int | Iterable[int] | None, device: torch.device) -> Tensor | None:
    if stop is None:
        return None
    ids = list(stop) if isinstance(stop, Iterable) else [stop]
    if not ids or not all(isinstance(i, Integral) and not isinstance(i, bool) and i >= 0 for i in ids):
        raise ValueError(f"stop: got {stop!r}, expected an id or several, whole numbers from 0 on")
    return torch.tensor(ids, device=device)


def _check_sampling(model, temperature: float, top_k: int | None, top_p: float | None, generator) -> None:
    check_rules(temperature, top_k, top_p, getattr(getattr(model, "config", None), "vocabulary", None))
    if temperature:
        cpu_generator(generator)
    elif top_k is not None or top_p is not None:
        raise ValueError("temperature: got 0, the greatest score, with top_k or top_p; give temperature=1.0 to draw")


def _check_reading(next_scores, model, tokens: Tensor, new: int, mask: Tensor | None, cached: bool) -> None:
    if not isinstance(tokens, Tensor) or tokens.dtype != torch.int64 or tokens.ndim != 2 or not tokens.numel():
        raise ValueError(f"tokens: got {came(tokens)}, expected int64 ids (B, T), not empty; use pad_left([ids])[0]")
    whole("new", new)
    T, longest = tokens.shape[1], getattr(getattr(model, "config", None), "longest", None)
    if longest is not None and T + new - 1 > longest:  # the last new token is not read
        raise ValueError(f"new: got {new} after {T} tokens, expected at most {longest + 1 - T}; cut the prompt")
    if cached and not _takes(next_scores, "cache"):
        raise TypeError("next_scores: it takes no cache; use cached=False")
    if mask is not None and not _takes(next_scores, "attention_mask"):
        raise TypeError("next_scores: it takes no attention_mask; give prompts of one length, and no mask")
    if mask is not None:
        _check_mask(mask, tokens)


def _takes(function: Callable, name: str) -> bool:
    parameters = inspect.signature(function).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _check_mask(mask: Tensor, tokens: Tensor) -> None:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(f"attention_mask: got {came(mask)}, expected booleans, True at tokens; use .bool()")
    if mask.shape != tokens.shape:
        raise ValueError(f"attention_mask: got shape {list(mask.shape)}, expected {list(tokens.shape)}, that of tokens")
    if not bool(mask[:, -1].all()) or bool((mask[:, :-1] & ~mask[:, 1:]).any()):
        raise ValueError("attention_mask: got padding after a token, expected it on the left; use pad_left(prompts)")
