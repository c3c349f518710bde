"""Executes notebooks: ``python tools/execute.py [slug …]``, all of them without a slug.

Each ``notebooks/<slug>.py`` runs from top to bottom in an empty directory without a network; its ``.ipynb`` gets
the outputs and ``notebooks/budget.json`` the seconds and the peak memory. Executing again changes nothing: no
times, no random ids. Where a cell fails, the old ``.ipynb`` stays as it was.
"""

import argparse
import json
import os
import platform
import re
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import nbclient
import nbformat
import psutil
from nbclient.exceptions import CellExecutionError

import pairs
import setup_cell
from compare import by_stream
from kernels import AsyncOfflineKernelManager

WIDGETS = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Cost:
    """Wall-clock ``seconds`` from the start of the kernel, and the most memory its processes held together."""

    seconds: float
    peak_mb: float


# ------------------------------------------------------------------------------------- execution


def execute(notebook: nbformat.NotebookNode, progress=lambda done, cells: None, timeout=600, **settings: str) -> Cost:
    """Runs every code cell in place; ``settings`` go into the kernel's environment.

    Raises nbclient's ``CellExecutionError`` at the first cell that fails.
    """
    kind = type("Kernel", (AsyncOfflineKernelManager,), {"settings": settings})
    total = sum(c.cell_type == "code" for c in notebook.cells)
    done = iter(range(1, total + 1))
    client = nbclient.NotebookClient(
        notebook,
        timeout=timeout,
        kernel_manager_class=kind,
        record_timing=False,
        coalesce_streams=True,
        on_cell_executed=lambda **_: progress(next(done), total),
    )
    start = time.perf_counter()
    with client.setup_kernel(), _Memory(client.km.provisioner.pid) as memory:
        for index, cell in enumerate(notebook.cells):
            if cell.cell_type == "code":
                client.execute_cell(cell, index)
        client.set_widgets_metadata()
    return Cost(time.perf_counter() - start, memory.peak / 2**20)


class _Memory:
    """The peak of the resident memory of a process and its children, looked at every 50 ms."""

    def __init__(self, pid: int):
        self.process, self.peak, self._over = psutil.Process(pid), 0, threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def _watch(self):
        while not self._over.wait(0.05):
            self._look()

    def _look(self):
        resident = 0
        try:
            for process in (self.process, *self.process.children(recursive=True)):
                resident += process.memory_info().rss
        except psutil.Error:  # a child that has just ended
            pass
        self.peak = max(self.peak, resident)

    def __enter__(self):
        self._watcher.start()
        return self

    def __exit__(self, *error):
        self._look()
        self._over.set()
        self._watcher.join()


# ------------------------------------------------------------------------------ the same each time


def settle(notebook: nbformat.NotebookNode) -> str:
    """The JSON of an executed notebook, with widgets numbered in order of appearance and no trace of time."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = by_stream(cell.outputs)
    notebook.metadata.kernelspec, notebook.metadata.language_info = pairs.KERNEL, pairs.LANGUAGE
    state = notebook.metadata.get("widgets", {}).get(WIDGETS, {}).get("state", {})
    if not state:
        notebook.metadata.pop("widgets", None)
        return nbformat.writes(notebook) + "\n"
    for model in state.values():  # what is not set need not be saved
        if model["model_name"] in ("LayoutModel", "HTMLStyleModel", "DescriptionStyleModel", "SliderStyleModel"):
            model["state"] = {k: v for k, v in model["state"].items() if v is not None}
    order = _order(notebook, state)
    notebook.metadata.widgets[WIDGETS]["state"] = {old: state[old] for old in order}
    numbered = {old: f"{new:032x}" for new, old in enumerate(order, start=1)}
    renamed = _ID.sub(lambda m: numbered.get(m.group(0), m.group(0)), nbformat.writes(notebook))
    return nbformat.writes(nbformat.reads(renamed, as_version=4)) + "\n"  # which puts the new keys in order


def _order(notebook, state) -> list[str]:
    """The models that are on view and what they refer to, in order; then links between them; no others."""
    found: list[str] = []

    def walk(model: str):
        if model in found or model not in state:
            return
        found.append(model)
        for child in re.findall(r"IPY_MODEL_([0-9a-f]{32})", json.dumps(state[model], sort_keys=True)):
            walk(child)

    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if VIEW in output.get("data", {}):
                walk(output["data"][VIEW]["model_id"])
    links = [m for m in state if state[m]["model_name"] in ("LinkModel", "DirectionalLinkModel")]
    ends = {m: [re.sub("IPY_MODEL_", "", e[0]) for e in (state[m]["state"]["source"], state[m]["state"]["target"])]
            for m in links}  # fmt: skip
    shown = [m for m in links if all(end in found for end in ends[m])]
    for link in sorted(shown, key=lambda m: [found.index(end) for end in ends[m]]):
        walk(link)
    return found


# --------------------------------------------------------------------------------------- command


def processor() -> str:
    """The processor's name, as the system gives it."""
    try:
        match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        match = None
    return match.group(1).strip() if match else platform.processor() or platform.machine()


def record(slug: str, cost: Cost, folder: Path = pairs.NOTEBOOKS) -> None:
    """Enters the cost of one notebook into ``budget.json``."""
    path = folder / "budget.json"
    budget = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    budget[slug] = {
        "seconds": round(cost.seconds, 1),
        "peak_mb": round(cost.peak_mb),
        "cores": cores,
        "processor": processor(),
    }
    pairs.write(path, json.dumps(dict(sorted(budget.items())), indent=1, ensure_ascii=False) + "\n")


def run(slug: str, folder: Path = pairs.NOTEBOOKS) -> bool:
    """Executes one pair and writes its ``.ipynb``; False, with the cell and its error shown, where a cell fails."""

    def progress(done, cells):
        print(f"\r{slug}: cell {done} of {cells}", end="", file=sys.stderr, flush=True)

    notebook = pairs.read(folder / f"{slug}.py")
    setup_cell.put(notebook)
    pairs.write(folder / f"{slug}.py", pairs.text(notebook))  # its normal form, header and all
    try:
        cost = execute(notebook, progress)
    except CellExecutionError as error:
        print(f"\n{slug}: a cell failed, and the notebook stays as it was.\n{error}", file=sys.stderr)
        return False
    pairs.write(folder / f"{slug}.ipynb", settle(notebook))
    record(slug, cost, folder)
    print(f"\r{slug}: {cost.seconds:.1f} s, {cost.peak_mb:.0f} MB at most", file=sys.stderr)
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python tools/execute.py", description=__doc__.splitlines()[0])
    parser.add_argument("slug", nargs="*", help="which notebooks; all of them when none is named")
    parser.add_argument("--folder", type=Path, default=pairs.NOTEBOOKS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    results = [run(slug, options.folder) for slug in pairs.chosen(options.slug, parser, options.folder)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
