"""Run every benchmark of this folder, each in a process of its own; write results/NAME.json and print the ratios.

    python benchmarks/run.py [NAME …]

A benchmark is a script that prints one JSON object: "task", "unit", "quality" (what they measure), "runs"
({name: [{"speed", "quality"} for each seed]}, lmcourse first) and "ratio" (of the median speeds).
"""

import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = {line.split(":")[1].strip() for line in lines if line.startswith(("model name", "cpu family", "model\t"))}
    return " / ".join(sorted(models, reverse=True)) or platform.processor() or platform.machine()


def machine() -> dict:
    def version(package: str) -> str | None:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return None

    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        **{package: version(package) for package in ("torch", "numpy", "gensim", "transformers", "tokenizers", "fastai")},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def measure(name: str) -> dict:
    """One benchmark's result, with the machine, written in one go to results/NAME.json."""
    done = subprocess.run([sys.executable, HERE / f"{name}.py"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"benchmarks/{name}.py failed: see above. Its packages: make .venv/.bench")
    result = json.loads(done.stdout.splitlines()[-1]) | {"machine": machine()}
    target = HERE / "results" / f"{name}.json"
    target.parent.mkdir(exist_ok=True)
    temporary = target.with_suffix(".part")
    temporary.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    temporary.replace(target)
    return result


def table(result: dict) -> str:
    lines = [result["task"], f"  {'':22} {result['unit']:>14}  {result['quality']} (one a seed)"]
    for name, runs in result["runs"].items():
        quality = " ".join(f"{r['quality']:.3f}" for r in runs)
        lines.append(f"  {name:22} {statistics.median(r['speed'] for r in runs):14,.0f}  {quality}")
    return "\n".join([*lines, f"  ratio of the median speeds: {result['ratio']:.2f}"])


def main(names: list[str]) -> None:
    known = sorted(p.stem for p in HERE.glob("*.py") if p.stem != "run" and p.stem[0] != "_")
    if unknown := set(names) - set(known):
        raise SystemExit(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for name in names or known:
        print(table(measure(name)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
