"""Training steps of lmcourse's models and transformers': one run in a process of its own, or all runs of a family.

    python benchmarks/_steps.py gpt lmcourse float32 1     # one run: {"speed": tokens/s, "quality": loss, "megabytes": …}

Same sizes, same data, same optimiser (AdamW, fused, on both sides), freed memory kept on both sides, no dropout,
two cores. bfloat16 is autocast. The
loss is the mean over the last 20 steps. Speed is the median over the steps; a step begins with the batch at hand and ends
with the weights updated. Tokens are those that the model reads: for T5, inputs and targets.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext

import torch
from lmcourse import objectives
from lmcourse.bert import BERT
from lmcourse.bpe import ByteBPE
from lmcourse.configuration import Config
from lmcourse.corruption import corrupted_lengths, span_corruption_batch
from lmcourse.data import documents
from lmcourse.device import keep_memory
from lmcourse.gpt import GPT
from lmcourse.t5 import T5

LAYERS, WIDTH, HEADS, T, BATCH, VOCABULARY, STEPS, CORES = 4, 256, 4, 128, 16, 2048, 40, 2
SEEDS, RATE = (1, 2, 3), 1e-3
PAD, END, MASK = VOCABULARY - 64, VOCABULARY - 63, VOCABULARY - 62  # ids that no text has
SENTINELS = range(VOCABULARY - 1, VOCABULARY - 33, -1)


def rows() -> torch.Tensor:
    """The novels in pieces, cut into rows of T + 1: (N, T + 1)."""
    texts = [document.text for document in documents("novels")]
    tokenizer = ByteBPE.train(texts, VOCABULARY - 64)
    ids = torch.tensor([i for text in texts for i in tokenizer.encode(text)])
    return ids[: len(ids) // (T + 1) * (T + 1)].view(-1, T + 1)


def batches(family: str, text: torch.Tensor, seed: int):
    """(inputs, targets, weights) for each step, the same for every contender."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        chosen = text[torch.randint(len(text), (BATCH,), generator=generator)]
        if family == "gpt":
            yield objectives.causal_lm(chosen)
        elif family == "bert":
            kinds = dict(mask_id=MASK, random_ids=range(VOCABULARY - 64), generator=generator)
            yield objectives.masked_lm(chosen[:, :T].contiguous(), **kinds)
        else:
            inputs, targets = corrupted_lengths(T)
            sizes = dict(input_length=inputs, target_length=targets, pad_id=PAD, end_id=END)
            yield span_corruption_batch(chosen[:, :T], sentinels=SENTINELS, generator=generator, **sizes)


def ours(family: str):
    if family == "t5":
        model = T5(Config.t5(vocabulary=VOCABULARY, layers=LAYERS, width=WIDTH, heads=HEADS))
    elif family == "bert":
        sizes = dict(positions=T, layers=LAYERS, width=WIDTH, heads=HEADS, pooler=False)
        model = BERT(Config.bert(vocabulary=VOCABULARY, **sizes))
    else:
        model = GPT(Config.gpt2(vocabulary=VOCABULARY, positions=T, layers=LAYERS, width=WIDTH, heads=HEADS))
    return model, model.loss


def theirs(family: str):
    import transformers as hf

    if family == "t5":
        sizes = dict(d_model=WIDTH, d_kv=WIDTH // HEADS, d_ff=4 * WIDTH, num_layers=LAYERS, num_heads=HEADS)
        model = hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=VOCABULARY, dropout_rate=0.0, decoder_start_token_id=0, **sizes))
    elif family == "bert":
        sizes = dict(hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=4 * WIDTH)
        none = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, max_position_embeddings=T)
        model = hf.BertForMaskedLM(hf.BertConfig(vocab_size=VOCABULARY, **sizes, **none))
    else:
        sizes = dict(n_positions=T, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS)
        none = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        model = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=VOCABULARY, **sizes, **none))

    def loss(inputs, targets, weights):
        labels = targets.masked_fill(weights == 0, -100)
        if family != "gpt":
            return model(input_ids=inputs, labels=labels).loss
        logits = model(input_ids=inputs).logits  # its own loss would shift the labels once more
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    return model, loss


def run(family: str, name: str, dtype: str, seed: int) -> dict:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    torch.set_num_threads(CORES)
    keep_memory()  # for all contenders
    torch.manual_seed(seed)
    model, loss_of = ours(family) if name == "lmcourse" else theirs(family)
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    cast = torch.autocast("cpu", torch.bfloat16) if dtype == "bfloat16" else nullcontext()
    losses, speeds = [], []
    for inputs, targets, weights in batches(family, rows(), seed):
        start = time.perf_counter()
        with cast:
            loss = loss_of(inputs, targets, weights)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        read = inputs.numel() + (targets.numel() if family == "t5" else 0)
        speeds.append(read / (time.perf_counter() - start))
        losses.append(loss.item())
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    speed = round(statistics.median(speeds))
    return {"speed": speed, "quality": round(statistics.mean(losses[-20:]), 4), "megabytes": round(megabytes)}


def peak(dtype: torch.dtype) -> float:
    """FLOP/s of a 2048 × 2048 matrix product, the best of 10."""
    torch.set_num_threads(CORES)
    a, best = torch.randn(2048, 2048).to(dtype), 0.0
    for _ in range(10):
        start = time.perf_counter()
        a @ a
        best = max(best, 2 * 2048**3 / (time.perf_counter() - start))
    return best


def flop(family: str) -> float | None:
    """Matrix products of one step, for each token read: 6 a parameter that it meets, 12·layers·T·D for the scores.

    Embeddings look up and cost nothing; BERT's head sees 15 % of the tokens, T5's decoder and head the targets only.
    """
    block, head, scores = 12 * WIDTH**2, WIDTH * VOCABULARY, 12 * T * WIDTH
    if family == "gpt":
        return LAYERS * (6 * block + scores) + 6 * head
    if family == "bert":
        return LAYERS * (6 * block + scores) + 0.15 * 6 * (head + WIDTH**2)
    return None  # inputs and targets differ in what they meet: not counted


def family(name: str) -> None:
    """All runs of one family, alternating; prints the JSON object that ``run.py`` reads."""
    kinds = [("lmcourse", "float32"), ("transformers", "float32"), ("lmcourse", "bfloat16"), ("transformers", "bfloat16")]
    runs: dict[str, list[dict]] = {f"{who} {dtype}": [] for who, dtype in kinds}
    for seed in SEEDS:
        for who, dtype in kinds:
            command = [sys.executable, __file__, name, who, dtype, str(seed)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            runs[f"{who} {dtype}"].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{name} {who} {dtype} seed {seed}: {runs[f'{who} {dtype}'][-1]}", file=sys.stderr, flush=True)

    def median(kind: str) -> float:
        return statistics.median(r["speed"] for r in runs[kind])

    share = {}
    if (work := flop(name)) is not None:
        for dtype in ("float32", "bfloat16"):
            share[dtype] = round(median(f"lmcourse {dtype}") * work / peak(getattr(torch, dtype)), 3)
    result = {
        "task": f"{name}: training step, {LAYERS} layers, width {WIDTH}, T {T}, batch {BATCH}, vocabulary {VOCABULARY}",
        "unit": "tokens/s",
        "quality": f"loss after {STEPS} steps",
        "runs": runs,
        "ratio": round(median("lmcourse float32") / median("transformers float32"), 2),
        "ratio_bfloat16": round(median("lmcourse bfloat16") / median("transformers bfloat16"), 2),
        "share_of_peak": share,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:4], int(sys.argv[4]))))
