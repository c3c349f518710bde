"""Measures how far the numbers of a notebook vary: ``python tools/tolerances.py [slug …]``.

The notebook is executed with one and with two threads at each level of processor instructions. A number's spread
is its greatest distance from the committed run's value, plus one unit of its last printed place where it is not
0. A cell's tolerance is three times the greatest spread among its numbers of the same printed place. It is written
into the cell's metadata in the pair, and the spreads into ``notebooks/tolerances.json``. Words must not vary:
where they do, the notebook has to change.
"""

import argparse
import copy
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal

import nbformat

import compare
import execute
import pairs
import setup_cell

FACTOR = 3
# torch's own kernels, oneDNN's and MKL's, lowered together. A level that a processor lacks is lowered by itself.
LEVELS = {
    level: {"ATEN_CPU_CAPABILITY": level, "ONEDNN_MAX_CPU_ISA": onednn, "MKL_ENABLE_INSTRUCTIONS": mkl}
    for level, onednn, mkl in (
        ("default", "SSE41", "SSE4_2"),
        ("avx2", "AVX2", "AVX2"),
        ("avx512", "AVX512_CORE", "AVX512"),
    )
}
THREADS = ("1", "2")
Spreads = dict[str, float]  # from the unit of the last printed place to the greatest spread


class WordsDiffer(ValueError):
    """Words of an output, or how many outputs or numbers there are, depend on the machine."""


def spreads(runs: Sequence[Sequence[Mapping]], cell: str = "cell") -> Spreads:
    """The spread of the numbers of one cell over its outputs in several runs, the committed run first."""
    taken = [[(kind, compare.Text.of(text)) for kind, text in compare.parts(outputs)] for outputs in runs]
    first = [(kind, text.words) for kind, text in taken[0]]
    for run in taken[1:]:
        if [(kind, text.words) for kind, text in run] != first:
            found = compare.differences(runs[0], runs[taken.index(run)])
            raise WordsDiffer(f"{cell}: {found[0]}")
    found: Spreads = {}
    for numbers in zip(*(itertools.chain.from_iterable(text.numbers for _, text in run) for run in taken)):
        values, place = [compare.value(n) for n in numbers], compare.unit(numbers[0])
        spread = max(abs(v - values[0]) for v in values)
        if spread > 0:
            found[place] = max(found.get(place, 0.0), spread + float(place))
    return {place: float(f"{spread:.6g}") for place, spread in found.items()}


def tolerance(spread: Spreads) -> dict | None:
    """Three times the spread, at most two significant digits, rounded up; None where nothing varies."""
    if not spread:
        return None
    return {"atol": {place: rounded_up(FACTOR * s) for place, s in sorted(spread.items(), key=lambda p: float(p[0]))}}


def rounded_up(number: float) -> float:
    """Two significant digits, never less than ``number``."""
    exact = Decimal(f"{number:.10e}")
    step = Decimal(1).scaleb(exact.adjusted() - 1)
    return float(exact.quantize(step, rounding=ROUND_CEILING))


def code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The code cells whose outputs are compared."""
    return [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code"
        and "nbval-ignore-output" not in cell.metadata.get("tags", [])
        and not setup_cell.is_standard(cell.source, notebook)
    ]


def measure(notebook: nbformat.NotebookNode, progress=print) -> list[Spreads]:
    """The spreads of each compared cell; ``notebook`` holds the outputs of the committed run."""
    runs = [code(notebook)]
    for threads, (level, settings) in itertools.product(THREADS, LEVELS.items()):
        run = copy.deepcopy(notebook)
        cost = execute.execute(run, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, **settings)
        progress(f"  {threads} thread{'s' * (threads != '1')}, {level}: {cost.seconds:.0f} s")
        runs.append(code(run))
    found, complaints = [], []
    for i, same in enumerate(zip(*runs)):
        try:
            found.append(spreads([cell.outputs for cell in same], f"cell {same[0].execution_count or i + 1}"))
        except WordsDiffer as error:
            complaints.append(str(error))
    if complaints:
        raise WordsDiffer("\n  ".join(complaints))
    return found


def enter(notebook: nbformat.NotebookNode, found: Sequence[Spreads]) -> None:
    """Puts each cell's tolerance into its metadata, and takes away what was there."""
    for cell, spread in zip(code(notebook), found):
        own = {k: v for k, v in cell.metadata.get("lmcourse", {}).items() if k != "tolerance"}
        if spread:
            own["tolerance"] = tolerance(spread)
        cell.metadata.pop("lmcourse", None)
        if own:
            cell.metadata["lmcourse"] = own


def run(slug: str, folder=pairs.NOTEBOOKS) -> bool:
    """Measures one notebook and writes its pair and its part of the report; False where words vary."""
    path = folder / f"{slug}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    print(f"{slug}: {len(THREADS) * len(LEVELS)} runs", file=sys.stderr)
    try:
        found = measure(notebook, lambda line: print(line, file=sys.stderr))
    except WordsDiffer as error:
        print(f"{slug}:\n  {error}\nOutputs must say the same on every machine: change the notebook.", file=sys.stderr)
        return False
    enter(notebook, found)
    pairs.write(path, execute.settle(notebook))
    pairs.write(folder / f"{slug}.py", pairs.text(notebook))
    report = folder / "tolerances.json"
    known = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    known[slug] = {
        "processor": execute.processor(),
        "threads": THREADS,
        "levels": list(LEVELS),
        "cells": {cell.id: spread for cell, spread in zip(code(notebook), found) if spread},
    }
    pairs.write(report, json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False) + "\n")
    print(f"{slug}: numbers vary in {sum(map(bool, found))} of {len(found)} cells", file=sys.stderr)
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python tools/tolerances.py", description=__doc__.splitlines()[0])
    parser.add_argument("slug", nargs="*", help="which notebooks; all of them when none is named")
    options = parser.parse_args(arguments)
    return 0 if all([run(slug) for slug in pairs.chosen(options.slug, parser)]) else 1


if __name__ == "__main__":
    sys.exit(main())
