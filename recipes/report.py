"""Turn a finished run into one of the course's checkpoints, with what it costs on held-out text and a sample of it.

    python recipes/report.py runs/bert recipes/trio.toml model=BERT --minutes 30 --device "one core of …"

Writes the model in half precision to lmcourse/assets/<name>.safetensors, the log to recipes/logs/<name>.jsonl, and the
checkpoint's entry in recipes/checkpoints.json: size, tokens seen, minutes, device, bits per byte, the n-gram model's.
Held-out text is the test documents, all of them.
"""

import argparse
import functools
import hashlib
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch
from lmcourse import batches, checkpoints, course, data, generation, heldout, runs, tasks
from lmcourse.bert import BERT
from lmcourse.characters import characters
from lmcourse.corruption import corrupt, noise_mask
from lmcourse.elmo import ELMo
from lmcourse.gpt import GPT
from lmcourse.rows import Sentences
from lmcourse.ulmfit import AWDLSTM

ROOT = Path(__file__).parent
SHORT = 20_000  # characters of a document that the test measures again


def short(corpus: str) -> list[str]:
    """What ``tests/test_course.py`` measures again: the beginning of the first test document."""
    return [data.documents(corpus, "test")[0].text[:SHORT]]


def sample(model) -> str:
    """What the model makes of a text, the first one drawn, seed 0.

    GPT and AWD-LSTM go on after "The " at temperature 0.8, ELMo after "the" (known words only). BERT and T5 restore 15 %
    of the first 60 pieces of a held-out novel with what they find most probable: «…».
    """
    generator, pieces = torch.Generator().manual_seed(0), course.tokenizer()
    if isinstance(model, ELMo):
        return spoken(model, generator)
    if isinstance(model, GPT | AWDLSTM):
        first = course.CLS if isinstance(model, GPT) else course.SEP
        prompt = torch.tensor([[first, *pieces.encode("The ")[:1]]])
        ids = generation.generate(model.next_scores, prompt, 150, temperature=0.8, generator=generator)
        return pieces.decode(ids[0, 1:].tolist())
    row = torch.tensor([pieces.encode(data.documents("novels", "test")[0].text[2000:3000])[:60]])
    with torch.inference_mode():
        if isinstance(model, BERT):
            inputs, _, weights = batches.masked(row, generator)
            filled = torch.where(weights > 0, model(inputs).argmax(-1), batches.begun(row))[0, 1:]
            return marked(filled.tolist(), (weights[0, 1:] > 0).tolist())
        row = batches.begun(row)[0]
        noise = noise_mask(len(row), generator=generator)
        inputs, _ = corrupt(row, noise, sentinels=batches.SENTINELS, end_id=course.END)
        next_scores = functools.partial(model.next_scores, memory=model.encode(inputs[None]))
        ids = generation.generate(next_scores, torch.zeros(1, 1, dtype=torch.int64), 40, stop=course.END)[0, 1:].tolist()
    said = pieces.decode(ids)
    return f"{pieces.decode(inputs[1:].tolist())} → {said}"


def marked(ids: list[int], chosen: list[bool]) -> str:
    """The text, each chosen piece in «»."""
    decode = course.tokenizer().decode
    return "".join(f"«{decode([i])}»" if mark else decode([i]) for i, mark in zip(ids, chosen))


def spoken(elmo: ELMo, generator: torch.Generator) -> str:
    """40 words from ELMo's forward direction."""
    words, said = course.words(), ["the"]
    with torch.inference_mode():
        for _ in range(40):
            scores = elmo(characters([said]))[0][0, len(said), : len(words)]
            said.append(words.words[int(torch.multinomial((scores / 0.8).softmax(-1), 1, generator=generator))])
    return " ".join(said)


def tokens(task: tasks.Task) -> int:
    """How many the run has read: pieces, or words."""
    if not isinstance(task.draw.source, Sentences):
        return sum(source.length * rows for source, rows in map(task.draw.read_at, range(task.training.steps)))
    batches_of_words = (task.draw.source(step * task.draw.batch, task.draw.batch) for step in range(task.training.steps))
    return sum(len(sentence) for batch in batches_of_words for sentence in batch)


def measured(model) -> dict:
    """Held-out bits per byte of each corpus, beside the n-gram model's, and of the short text that the test takes."""
    corpora = ["novels"] if isinstance(model, AWDLSTM) else list(data.CORPORA)
    baseline, found = heldout.ngrams(corpora, words=isinstance(model, ELMo)), {}
    for corpus in data.CORPORA:
        texts = [document.text for document in data.documents(corpus, "test")]
        found[corpus] = asdict(heldout.measure(model, baseline, texts))
        found[corpus]["short"] = heldout.measure(model, None, short(corpus)).bits
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the run")
    parser.add_argument("recipe", help="its configuration, such as recipes/trio.toml")
    parser.add_argument("change", nargs="*", help="as it was trained, such as model=BERT")
    parser.add_argument("--minutes", type=float, required=True, help="that it took")
    parser.add_argument("--device", required=True, help="that it took them on")
    options = parser.parse_intermixed_args()
    model, log = checkpoints.load_own(options.folder), runs.read_log(options.folder)
    task = tasks.read(options.recipe, options.change)
    if log[-1]["step"] != task.training.steps or type(task.model) is not type(model):
        parser.error("the folder holds another run than the recipe's, or one that has not ended")
    name = type(model).__name__.lower()
    path = data.ASSETS / f"{name}.safetensors"
    checkpoints.save(model, path, half=True)
    model = checkpoints.load_own(path)  # what readers get, rounded
    entry = {
        "recipe": options.recipe,
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes": path.stat().st_size,
        "steps": task.training.steps,
        "tokens": tokens(task),
        "minutes": options.minutes,
        "device": options.device,
        "held_out": measured(model),
        "sample": sample(model),
    }
    table = ROOT / "checkpoints.json"
    entries = json.loads(table.read_text(encoding="utf-8")) if table.is_file() else {}
    table.write_text(json.dumps(entries | {name: entry}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (ROOT / "logs").mkdir(exist_ok=True)
    shutil.copyfile(options.folder / runs.LOG, ROOT / "logs" / f"{name}.jsonl")
    sums = data.ASSETS / "SHA256SUMS"
    lines = [line for line in sums.read_text().splitlines() if not line.endswith(f"  {path.name}")]
    lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")
    sums.write_text("\n".join(lines) + "\n")
    print(json.dumps(entry, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
