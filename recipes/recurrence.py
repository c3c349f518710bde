"""Small language models and the copy task for the chapter `recurrence`, three seeds each; one line of JSON a run.

    python recipes/recurrence.py language > runs/language.jsonl
    python recipes/recurrence.py copy > runs/copy.jsonl

The two files one after the other are `logs/recurrence.jsonl`, of which the package holds a copy for the notebook.
All models have one layer and about as many parameters; the language models read a part of the novels once, byte by
byte. They differ in kind and forget bias alone: the same text in the same order (the Transformer in longer rows), the
same number of updates, the same learning rate, which was chosen for none of them.
"""

import argparse
import json
import math
import sys

import torch
from lmcourse import data, device, jacobians, memory
from lmcourse.configuration import Config
from lmcourse.gpt import GPT
from lmcourse.objectives import causal_lm
from lmcourse.recurrent import RecurrentConfig, RecurrentLM
from lmcourse.rows import Columns
from torch.nn import functional as F

SEEDS = range(3)
RATE, CLIP = 5e-3, 1.0
LONG = 512  # steps over which gradients are followed
READ, HELD_OUT = 850_000, 60_000  # bytes of the training and of the test text
PLACES = sorted({*range(17), *range(24, 64, 8), *range(64, LONG, 32), LONG - 1})  # distances that the log keeps
KINDS = {"RNN": ("rnn", 0.0)} | {f"LSTM, bias {b}": ("lstm", float(b)) for b in (0, 1, 3)}


def build(name, vocabulary, generator, rnn=106, gpt=128):
    """A model of one layer; ``rnn`` and ``gpt`` are the widths that give it about the LSTM's parameters."""
    if name == "Transformer":
        sizes = dict(layers=1, width=64, heads=4, hidden=gpt, position="rotary")
        return GPT(Config(vocabulary, **sizes), generator)
    kind, bias = KINDS[name]
    width = rnn if kind == "rnn" else 64
    return RecurrentLM(RecurrentConfig(vocabulary, width, layers=1, kind=kind, forget_bias=bias), generator)


def update(model, optimiser, loss):
    """One step; the norm of the gradients before they are clipped."""
    optimiser.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimiser.step()
    return float(norm)


# ------------------------------------------------------------------------------------------ language


def followed(model, rows):
    """Logarithms over the distances of PLACES, "inputs" the mean over rows (B, LONG + 1), the rest of the first."""
    model = model.double()
    found = {"inputs": memory.input_gradients(model, rows).flip(1)}  # distance 0 first
    if isinstance(model, RecurrentLM):
        parts = []
        for row in rows[:1]:  # singular values of 511 matrices are what takes long
            chain = memory.chain(model, row)
            J, first = chain.jacobians[1:], torch.linalg.matrix_norm(chain.first, ord=2).log().flip(0)
            d = jacobians.decay(J, chain.last)
            part = {"state": d.gradient, "norms": d.norms, "gamma": d.gamma, "first": first}
            if model.config.kind == "lstm":
                logs = jacobians.log_forget(model.layers[0], model.embedding(row[:-1]))[1:].flip(0).cumsum(0)
                for key, of in (("direct", logs.mean(1)), ("direct, best unit", logs.max(1).values)):
                    part[key] = torch.cat([torch.zeros(1).double(), of.detach()])
            parts.append(part)
        found |= {key: torch.stack([part[key] for part in parts]) for key in parts[0]}
    model.float()
    return {key: [round(x, 3) for x in logs.mean(0)[PLACES].tolist()] for key, logs in found.items()}


@torch.inference_mode()
def held_out(model, ids):
    """Nats a byte of a text (N,), the first left out."""
    costs, state, half = [], {}, LONG // 2
    if isinstance(model, GPT):  # windows that overlap by half
        for start in range(0, len(ids) - 1, half):
            window = ids[start : start + LONG + 1]
            cost = F.cross_entropy(model(window[None, :-1])[0], window[1:], reduction="none")
            costs.append(cost[half if start else 0 :])
    else:
        for start in range(0, len(ids) - 1, LONG):
            window = ids[start : start + LONG + 1]
            costs.append(F.cross_entropy(model(window[None, :-1], state)[0], window[1:], reduction="none"))
    return float(torch.cat(costs).double().mean())


def text_bytes(split):
    """The novels of a split one after the other, as bytes: ids below 256."""
    return torch.tensor(list("\n\n".join(d.text for d in data.documents("novels", split)).encode()))


def language(name, seed, steps):
    train, valid, test = (text_bytes(split) for split in ("train", "validation", "test"))
    length, batch = (LONG, 4) if name == "Transformer" else (64, 32)  # 2,048 bytes an update, either way
    text, rows = Columns(train[:READ], length, batch), valid[: 4 * (LONG + 1)].view(4, -1)
    model = build(name, 256, device.seed(seed))
    run = {"task": "language", "model": name, "seed": seed, "bytes": steps * 2048, "places": PLACES}
    run["parameters"] = sum(p.numel() for p in model.parameters())
    run["start"] = followed(model, rows)
    optimiser, state, losses, clipped = torch.optim.Adam(model.parameters(), RATE, betas=(0.9, 0.99)), {}, [], 0
    for step in range(steps):
        for group in optimiser.param_groups:  # up over 50 updates, then down along a line
            group["lr"] = RATE * min((step + 1) / 50, (steps - step) / (steps - 50))
        batch_of = causal_lm(text(step * batch, batch))
        loss = model.loss(*batch_of) if name == "Transformer" else model.loss(*batch_of, state)
        clipped += update(model, optimiser, loss) > CLIP
        losses.append(float(loss.detach()))
    run["losses"] = [round(sum(losses[i : i + 50]) / 50, 3) for i in range(0, steps, 50)]
    run["clipped"], run["nats"] = round(clipped / steps, 3), round(held_out(model.eval(), test[:HELD_OUT]), 4)
    run["end"] = followed(model, rows)
    return run




# ---------------------------------------------------------------------------------------------- copy


def copy(name, seed, delay, steps=300, batch=32):
    generator = device.seed(seed)
    model = build(name, 10, generator, rnn=130, gpt=128)
    optimiser = torch.optim.Adam(model.parameters(), RATE)
    test = memory.copy_rows(512, delay, torch.Generator().manual_seed(10_000 + seed))
    run = {"task": "copy", "model": name, "seed": seed, "delay": delay}
    run["parameters"] = sum(p.numel() for p in model.parameters())

    def right():
        with torch.inference_mode():
            return float((model(test[:, :-1])[:, -3:].argmax(-1) == test[:, -3:]).double().mean())

    for step in range(steps):
        inputs, targets, weights = causal_lm(memory.copy_rows(batch, delay, generator))
        weights[:, :-3] = 0  # the loss is that of the copy alone
        update(model, optimiser, model.loss(inputs, targets, weights))
        if step % 50 == 49 and right() > 0.995:
            break
    return run | {"updates": step + 1, "accuracy": round(right(), 4)}


def until_lost(runs):
    """The runs at growing delays, up to the first that gets fewer than half of the symbols right."""
    for run in runs:
        yield run
        if run["accuracy"] < 0.5:
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("language", "copy"))
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--models", nargs="+", default=[*KINDS, "Transformer"])
    parser.add_argument("--delays", type=int, nargs="+", default=(4, 8, 16, 32, 64, 128))
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        for name in arguments.models:
            if arguments.task == "language":
                runs = iter([language(name, seed, arguments.steps)])
            else:
                runs = until_lost(copy(name, seed, delay) for delay in arguments.delays)
            for run in runs:
                print(json.dumps(run), flush=True)


if __name__ == "__main__":
    sys.exit(main())
