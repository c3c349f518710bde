"""Training steps: lmcourse's AWD-LSTM beside fastai's, its LSTM beside torch's, an LSTM beside a Transformer.

    python benchmarks/lstm.py lmcourse-awd 70 1     # one run in a process of its own: tokens/s, loss, memory

AWD-LSTM: the course's size, 3 layers 128 → 320 → 320 → 128, all dropouts on and both regularisers, T 70, batch 32. The
same without dropouts beside ``nn.LSTM``. LSTM against Transformer: GPT of 4 layers, width 256, and an LSTM of 2 layers
with as many parameters, over T from 32 to 1024 with 2,048 tokens a step. Everywhere the same text in the same order,
states carried from step to step, AdamW (fused), float32, two cores. Speed is the median over the steps of tokens a
second, from the batch at hand to the weights updated. The loss is the mean over the last 20 steps, with regularisers
where there are any. Three seeds; one for the lengths, where only speed is compared.

Prints one JSON object; ``run.py`` calls it. fastai: make .venv/.bench
"""

import json
import os
import statistics
import subprocess
import sys
import time

import torch
from _steps import CORES, SEEDS, STEPS, VOCABULARY, rows
from lmcourse import objectives
from lmcourse.configuration import Config
from lmcourse.device import keep_memory
from lmcourse.gpt import GPT
from lmcourse.objectives import cross_entropy
from lmcourse.recurrent import RecurrentConfig, RecurrentLM
from lmcourse.ulmfit import AWDLSTM, AWDConfig
from torch import nn

T, BATCH, TOKENS, RATE = 70, 32, 2048, 2e-3
LENGTHS = (32, 64, 128, 256, 512, 1024)
AWD = AWDConfig(VOCABULARY)
PAIRS = [("lmcourse-awd", "fastai-awd"), ("lmcourse-lstm", "torch-lstm")]


class Torch(nn.Module):
    """The same layers from torch's own."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, AWD.width)
        self.layers = nn.ModuleList(nn.LSTM(a, b, batch_first=True) for a, b in zip(AWD.sizes, AWD.sizes[1:]))
        self.head = nn.Linear(AWD.sizes[-1], VOCABULARY)
        self.head.weight, self.states = self.embedding.weight, [None] * AWD.layers
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for i, layer in enumerate(self.layers):
            x, state = layer(x, self.states[i])
            self.states[i] = tuple(part.detach() for part in state)
        return self.head(x)


def fastai():
    from fastai.text.models.awdlstm import AWD_LSTM, awd_lstm_lm_config
    from fastai.text.models.core import get_language_model

    own = dict(emb_sz=AWD.width, n_hid=AWD.hidden, n_layers=AWD.layers, output_p=AWD.output_dropout)
    own |= dict(hidden_p=AWD.hidden_dropout, input_p=AWD.input_dropout, embed_p=AWD.embedding_dropout)
    model = get_language_model(AWD_LSTM, VOCABULARY, awd_lstm_lm_config | own | dict(weight_p=AWD.weight_dropout))
    model.reset()

    def loss(inputs, targets, weights):
        scores, states, dropped = model(inputs)
        changes = (states[:, 1:] - states[:, :-1]).square().mean()
        regularisers = AWD.alpha * dropped.square().mean() + AWD.beta * changes
        return cross_entropy(scores, targets, weights) + regularisers

    return model, loss


def equal_lstm(parameters: int) -> RecurrentConfig:
    """Two layers with as many parameters as they can have without more."""
    width, own = 256, 256 * VOCABULARY + VOCABULARY
    fits = (h for h in range(1, 5000) if own + 4 * h * (width + h + 2) + 4 * width * (h + width + 2) > parameters)
    return RecurrentConfig(VOCABULARY, width, next(fits) - 1, 2)


def ours(name: str):
    gpt = GPT(Config(VOCABULARY, positions=max(LENGTHS)))
    if name == "transformer":
        return gpt, gpt.loss
    if name == "lmcourse-awd":
        model = AWDLSTM(AWD)
    elif name == "lmcourse-lstm":
        model = RecurrentLM(RecurrentConfig(VOCABULARY))
    else:
        model = RecurrentLM(equal_lstm(sum(p.numel() for p in gpt.parameters())))
    state = {}
    return model, lambda *batch: model.loss(*batch, state=state)


def contender(name: str):
    """The model, and a function from a batch to its loss."""
    if name == "fastai-awd":
        return fastai()
    if name == "torch-lstm":
        model = Torch()
        return model, lambda inputs, *rest: cross_entropy(model(inputs), *rest)
    return ours(name)


def batches(length: int, batch: int, seed: int):
    """(inputs, targets, weights) for each step, one after the other in the text."""
    text = rows().flatten()
    text = text[: len(text) // batch * batch].view(batch, -1)
    start = int(torch.randint(text.shape[1] - STEPS * length, (), generator=torch.Generator().manual_seed(seed)))
    for at in range(start, start + STEPS * length, length):
        yield objectives.causal_lm(text[:, at : at + length + 1])


def run(name: str, length: int, seed: int) -> dict:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    torch.set_num_threads(CORES)
    keep_memory()
    torch.manual_seed(seed)
    model, loss_of = contender(name)
    optimiser = torch.optim.AdamW(model.train().parameters(), lr=RATE, fused=True)
    batch = TOKENS // length if name in ("lstm", "transformer") else BATCH
    losses, speeds = [], []
    for given in batches(length, batch, seed):
        start = time.perf_counter()
        loss = loss_of(*given)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        speeds.append(given[0].numel() / (time.perf_counter() - start))
        losses.append(loss.item())
    size = sum(p.numel() for p in model.parameters())
    quality = round(statistics.mean(losses[-20:]), 4)
    return {"speed": round(statistics.median(speeds)), "quality": quality, "parameters": size}


def main() -> None:
    kinds = [(name, T) for pair in PAIRS for name in pair]
    kinds += [(name, length) for length in LENGTHS for name in ("lstm", "transformer")]
    runs: dict[str, list[dict]] = {f"{name} T {length}": [] for name, length in kinds}
    for seed in SEEDS:
        for name, length in kinds if seed == SEEDS[0] else kinds[:4]:
            command = [sys.executable, __file__, name, str(length), str(seed)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            runs[f"{name} T {length}"].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{name} T {length} seed {seed}: {runs[f'{name} T {length}'][-1]}", file=sys.stderr, flush=True)

    def ratio(first: str, second: str, length: int) -> float:
        speeds = [statistics.median(r["speed"] for r in runs[f"{name} T {length}"]) for name in (first, second)]
        return round(speeds[0] / speeds[1], 2)

    result = {
        "task": f"LSTM: training step, vocabulary {VOCABULARY}, {STEPS} steps, {CORES} cores",
        "unit": "tokens/s",
        "quality": f"loss after {STEPS} steps",
        "runs": runs,
        "ratio": ratio(*PAIRS[0], T),
        "ratio_torch": ratio(*PAIRS[1], T),
        "ratio_transformer": {str(length): ratio("lstm", "transformer", length) for length in LENGTHS},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
    else:
        main()
