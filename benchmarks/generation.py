"""Greedy generation with a cache: lmcourse's ``generate`` beside that of transformers, same weights, two cores.

    python benchmarks/generation.py gpt lmcourse 8     # one contender in a process of its own: speed, tokens, memory

4 layers of width 256, 8,192 ids, prompts of 32 tokens, 128 new ones; T5 reads 32 and writes 128. Both models get their
weights from one seed and run in evaluation mode; lmcourse reads the file that transformers saved. Speed is new tokens a
second, the median of 7 texts after 2 to warm up, in each of three processes; contenders alternate. Quality is the share
of new tokens that equal those of transformers. Memory is the peak of the process. A process that generates loads the
one library that it measures, beside torch, and reads the weights from a file.

Prints one JSON object; ``run.py`` calls it.
"""

import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

V, D, LAYERS, HEADS, PROMPT, NEW, CORES, TEXTS, SEEDS = 8192, 256, 4, 4, 32, 128, 2, 7, (1, 2, 3)
KINDS = [("gpt", 1), ("gpt", 8), ("t5", 1), ("t5", 8)]


def peer(family: str):
    """transformers' model; no id ends a text, so that all have ``NEW`` tokens."""
    import transformers as hf

    hf.logging.set_verbosity_error()
    torch.manual_seed(0)
    if family == "gpt":
        sizes = dict(vocab_size=V, n_positions=512, n_embd=D, n_layer=LAYERS, n_head=HEADS, initializer_range=0.1)
        return hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, bos_token_id=0, eos_token_id=None)).eval()
    sizes = dict(vocab_size=V, d_model=D, d_kv=D // HEADS, d_ff=4 * D, num_layers=LAYERS, num_heads=HEADS)
    config = hf.T5Config(**sizes, decoder_start_token_id=0, pad_token_id=0, eos_token_id=None, initializer_factor=1.0)
    return hf.T5ForConditionalGeneration(config).eval()


def theirs(family: str, folder: str, prompts: torch.Tensor):
    import transformers as hf

    hf.logging.set_verbosity_error()
    kind = hf.GPT2LMHeadModel if family == "gpt" else hf.T5ForConditionalGeneration
    model = kind.from_pretrained(folder).eval()
    options = dict(min_new_tokens=NEW, max_new_tokens=NEW, do_sample=False, use_cache=True, pad_token_id=0)
    return lambda: model.generate(prompts, attention_mask=torch.ones_like(prompts), **options)[:, -NEW:]


def ours(family: str, folder: str, prompts: torch.Tensor):
    from lmcourse.checkpoints import load
    from lmcourse.generation import generate

    model = load(Path(folder) / "model.safetensors", {"gpt": "gpt2"}.get(family, family), heads=HEADS).eval()
    if family == "gpt":
        return lambda: generate(model.next_scores, prompts, NEW)[:, -NEW:]

    def text():
        with torch.inference_mode():
            memory = model.encode(prompts)
        start = torch.zeros(len(prompts), 1, dtype=torch.int64)
        return generate(functools.partial(model.next_scores, memory=memory), start, NEW)[:, -NEW:]

    return text


def run(family: str, name: str, batch: int, seed: int, folder: str) -> dict:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    torch.set_num_threads(CORES)
    prompts = torch.randint(1, V, (batch, PROMPT), generator=torch.Generator().manual_seed(seed))
    text, seconds = {"lmcourse": ours, "transformers": theirs}[name](family, folder, prompts), []
    for _ in range(TEXTS + 2):
        start = time.perf_counter()
        tokens = text()
        seconds.append(time.perf_counter() - start)
    speed = batch * NEW / statistics.median(seconds[2:])
    return {"speed": speed, "tokens": tokens.tolist(), "megabytes": round(peak())}


def peak() -> float:
    """The most memory that this process held, in megabytes. ``getrusage`` would count what its parent held, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def alone(*arguments) -> dict:
    command = [sys.executable, __file__, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def equal(first: list[list[int]], second: list[list[int]]) -> float:
    return float((torch.tensor(first) == torch.tensor(second)).double().mean())


def measure(folders: dict[str, str]) -> dict[str, list[dict]]:
    runs: dict[str, list[dict]] = {f"{who} {f} {b}": [] for f, b in KINDS for who in ("lmcourse", "transformers")}
    for seed in SEEDS:
        for family, batch in KINDS:
            pair = {who: alone(family, who, batch, seed, folders[family]) for who in ("lmcourse", "transformers")}
            for who, found in pair.items():
                quality = equal(found["tokens"], pair["transformers"]["tokens"])
                row = {"speed": round(found["speed"]), "quality": round(quality, 4), "megabytes": found["megabytes"]}
                runs[f"{who} {family} {batch}"].append(row)
                print(f"generation {who} {family} batch {batch} seed {seed}: {row}", file=sys.stderr, flush=True)
    return runs


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        folders = {family: f"{folder}/{family}" for family in ("gpt", "t5")}
        for family, place in folders.items():
            peer(family).save_pretrained(place)
        runs = measure(folders)

    def median(who: str, key: str) -> float:
        return statistics.median(row[key] for row in runs[who])

    pairs = {f"{f} {b}": (f"lmcourse {f} {b}", f"transformers {f} {b}") for f, b in KINDS}
    ratios = {name: round(median(a, "speed") / median(b, "speed"), 2) for name, (a, b) in pairs.items()}
    memory = {name: round(median(a, "megabytes") / median(b, "megabytes"), 2) for name, (a, b) in pairs.items()}
    result = {
        "task": f"greedy, cached, {LAYERS} layers of width {D}, prompt {PROMPT}, {NEW} new tokens, {CORES} cores",
        "unit": "new tokens/s",
        "quality": "share of tokens equal to transformers'",
        "runs": runs,
        "ratio": min(ratios.values()),  # the least of
        "ratios": ratios,
        "memory": memory,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        family, name, batch, seed, folder = sys.argv[1:]
        print(json.dumps(run(family, name, int(batch), int(seed), folder)))
    else:
        main()
