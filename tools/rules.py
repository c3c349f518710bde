"""What every notebook of the course keeps to. Each rule takes a :class:`Notebook` and gives its complaints."""

import ast
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import nbformat

import compare
import pairs
import setup_cell
import tolerances

MOST_CELLS, MOST_LINES, MOST_SECONDS, MOST_MB, MOST_FILE_MB = 20, 25, 90, 2048, 2
MOST_CHARACTERS = 88  # what the book shows of a line without scrolling, from a window of 1200 pixels on
IMPORTS = {*sys.stdlib_module_names, "numpy", "torch", "matplotlib", "ipywidgets", "IPython", "lmcourse"}
IGNORED = "nbval-ignore-output"


@dataclass(frozen=True)
class Notebook:
    """One pair, read from ``folder``."""

    slug: str
    folder: Path = pairs.NOTEBOOKS

    @cached_property
    def node(self) -> nbformat.NotebookNode:
        return nbformat.read(self.folder / f"{self.slug}.ipynb", as_version=4)

    @cached_property
    def code(self) -> list[nbformat.NotebookNode]:
        return [cell for cell in self.node.cells if cell.cell_type == "code"]

    def trees(self) -> Iterator[tuple[str, ast.Module]]:
        """Each code cell with its syntax tree; lines that only IPython understands are left out."""
        for i, cell in enumerate(self.code):
            lines = ("pass" if line.lstrip()[:1] in ("%", "!") else line for line in cell.source.splitlines())
            yield f"code cell {i + 1}", ast.parse("\n".join(lines))

    def outputs(self) -> Iterator[tuple[str, nbformat.NotebookNode]]:
        for i, cell in enumerate(self.code):
            for output in cell.outputs:
                yield f"code cell {i + 1}", output

    def json(self, name: str) -> dict:
        """This notebook's part of ``budget.json`` or ``tolerances.json``."""
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")).get(self.slug, {}) if path.exists() else {}


# ------------------------------------------------------------------------------------- the pair


def in_sync(notebook: Notebook):
    source = (notebook.folder / f"{notebook.slug}.py").read_text(encoding="utf-8")
    if pairs.text(notebook.node) != source:
        yield f"the .py and the .ipynb say different things; python tools/execute.py {notebook.slug}"


def standard_setup(notebook: Notebook):
    first = notebook.code[0] if notebook.code else None
    if first is None or setup_cell.TAG not in first.metadata.get("tags", []):
        yield 'the first code cell is not tagged "setup"'
    elif not setup_cell.is_standard(first.source, notebook.node):
        yield f"the setup cell is not the standard one; python tools/setup_cell.py {notebook.slug} writes it"


def executed(notebook: Notebook):
    counts = [cell.execution_count for cell in notebook.code]
    if counts != list(range(1, len(counts) + 1)):
        yield f"the code cells were not executed once each from top to bottom: {counts}"


_PROGRESS = re.compile(r"(training +100%\s*)+")  # what is left of a progress line when all went well


def quiet(notebook: Notebook):
    for where, output in notebook.outputs():
        if output.get("name") == "stderr" and _PROGRESS.fullmatch(output.get("text", "")):
            continue
        if output.output_type == "error" or output.get("name") == "stderr":
            yield f"{where} ends in an error or a warning: {output.get('evalue') or output.get('text', '')[:200]}"


def within_budget(notebook: Notebook):
    if len(notebook.code) > MOST_CELLS:
        yield f"{len(notebook.code)} code cells, at most {MOST_CELLS}"
    for i, cell in enumerate(notebook.code):
        if (lines := len(cell.source.splitlines())) > MOST_LINES:
            yield f"code cell {i + 1} has {lines} lines, at most {MOST_LINES}"
    cost = notebook.json("budget.json")
    for name, most in (("seconds", MOST_SECONDS), ("peak_mb", MOST_MB)):
        if not 0 < cost.get(name, 0) <= most:
            yield f"budget.json: {name} is {cost.get(name)}, expected it measured and at most {most}"
    size = (notebook.folder / f"{notebook.slug}.ipynb").stat().st_size / 2**20
    if size > MOST_FILE_MB:
        yield f"the .ipynb has {size:.1f} MB, at most {MOST_FILE_MB}"


def lines_fit(notebook: Notebook):
    """Lines of code and of what it prints; but for the address of the setup cell, which a fork may make longer."""
    for i, cell in enumerate(notebook.code):
        for line in cell.source.splitlines():
            if len(line) > MOST_CHARACTERS and "git+https://" not in line:
                yield f"code cell {i + 1}: a line of {len(line)} characters, at most {MOST_CHARACTERS}: {line.strip()[:60]}"
    for where, output in notebook.outputs():
        data = output.get("data", {})
        printed = output.get("text", "") if output.get("name") == "stdout" else ""
        if "text/html" not in data and compare.VIEW not in data:
            printed += data.get("text/plain", "")
        for line in re.split(r"[\r\n]+", printed):
            if len(line) > MOST_CHARACTERS:
                yield f"{where} prints a line of {len(line)} characters, at most {MOST_CHARACTERS}: {line.strip()[:60]}"


def predictions_are_read(notebook: Notebook):
    """A prediction, then code, then what came out: before the next prediction, and before the end."""
    asked, measured, count, reading = None, False, 0, "write a cell '*Reading:* …' after the code that measures it"
    for cell in notebook.node.cells:
        measured = measured or cell.cell_type == "code"
        words = re.findall(r"\*(Prediction|Reading)\b", cell.source) if cell.cell_type == "markdown" else []
        for word in words:
            if word == "Reading" and asked and not measured:
                yield f"the reading stands before the code that measures: {asked!r}; move it behind that cell"
            if word == "Prediction" and asked and measured:
                yield f"a prediction that nothing reads: {asked!r}; {reading}"
            if word == "Prediction":
                count, measured = count + 1, False
                asked = cell.source[cell.source.rindex("*Prediction") :][:60].replace("\n", " ")
            else:
                asked = None
    if asked:
        yield f"a prediction that nothing reads: {asked!r}; {reading}"
    if not count:
        yield "no cell says what it expects: write '*Prediction:* …' before each cell that measures"


def links_to_chapter(notebook: Notebook):
    text = "\n".join(cell.source for cell in notebook.node.cells if cell.cell_type == "markdown")
    if not re.search(rf"\]\([^)\s]*\bbook/{re.escape(notebook.slug)}\.(md|html)(#[^)\s]*)?\)", text):
        yield f"no link to its chapter: [the chapter](../book/{notebook.slug}.md)"


def no_absolute_paths(notebook: Notebook):
    path = re.compile(r"(?<![\w.:/~-])/(?:home|root|Users|tmp|var|opt|usr|mnt|content|work|drive)/|\b[A-Z]:\\\w")
    for i, cell in enumerate(notebook.code):
        for text in (cell.source, *(text for _, text in compare.parts(cell.outputs))):
            if found := path.search(text):
                yield f"code cell {i + 1} names a place of one machine: {text[found.start() : found.start() + 40]!r}"


# --------------------------------------------------------------------------------------- the code


def known_imports(notebook: Notebook):
    for where, tree in notebook.trees():
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "."] if not node.level else ["."]
            for name in names:
                if name.split(".")[0] not in IMPORTS:
                    yield f"{where} imports {name!r}, which a reader need not have"


_DRAWS = {"rand", "randint", "multinomial", "randperm", "bernoulli", "poisson"}
_DRAWS_IN_PLACE = {"uniform_", "random_", "bernoulli_", "exponential_", "geometric_", "multinomial", "bernoulli"}
_VARYING = {"torch.randn", "torch.normal", "torch.randn_like"}


def seeded(notebook: Notebook):
    """Chance enters through a generator; what torch.nn draws by itself, after a call of ``seed``."""
    seeds = False
    for where, tree in notebook.trees():
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = {a.name.split(".")[0] for a in node.names} | {(getattr(node, "module", "") or "").split(".")[0]}
                for name in names & {"random", "secrets", "uuid"}:
                    yield f"{where} uses {name!r}; draw with torch and a generator"
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        seeds = seeds or any(ast.unparse(c.func).split(".")[-1] in ("seed", "manual_seed") and c.args for c in calls)
        for call in calls:
            if complaint := _draw(call, seeds):
                yield f"{where}: {ast.unparse(call)[:60]} {complaint}"


def _draw(call: ast.Call, seeds: bool) -> str | None:
    full = ast.unparse(call.func)
    *owner, name = full.split(".")
    of_torch, has_generator = owner in ([], ["torch"]), any(k.arg == "generator" for k in call.keywords)
    if owner in (["np", "random"], ["numpy", "random"]):
        return None if name == "default_rng" and call.args else "is unseeded or legacy; np.random.default_rng(seed)"
    if full in _VARYING or name in ("normal_", "log_normal_", "cauchy_"):
        return "differs between processors; use torch.rand and transform it"
    if name in ("rand_like", "randint_like"):
        return "takes no generator; use torch.rand or torch.randint"
    if name in (_DRAWS if of_torch else _DRAWS_IN_PLACE) and not has_generator:
        return "needs generator=…"
    in_nn = owner[:1] == ["nn"] or owner[:2] == ["torch", "nn"]
    if not seeds and (name == "dropout" or (in_nn and "functional" not in owner)):
        return "draws from torch's own state; call device.seed(…) first"
    return None


def ignored_outputs(notebook: Notebook):
    ignored = [cell for cell in notebook.code if IGNORED in cell.metadata.get("tags", [])]
    if len(ignored) > 1:
        yield f"{len(ignored)} cells with outputs that are not compared, at most 1"
    for cell in ignored:
        if not re.search(r"perf_counter|process_time|timeit", cell.source):
            yield f"only the output of a cell that measures time may be ignored, not of {cell.source[:60]!r}"
    for i, cell in enumerate(notebook.code):
        skipped = {"nbval-skip", "raises-exception", "nbval-raises-exception", "skip-execution"} & set(
            cell.metadata.get("tags", [])
        )
        if skipped or re.search(r"#\s*(NBVAL|PYTEST_VALIDATE)_", cell.source):
            yield f"code cell {i + 1} is kept from its test"


def measured_tolerances(notebook: Notebook):
    report = notebook.json("tolerances.json").get("cells", {})
    for i, cell in enumerate(notebook.code):
        stated = cell.metadata.get("lmcourse", {}).get("tolerance")
        if stated != tolerances.tolerance(report.get(cell.id, {})):
            cure = f"python tools/tolerances.py {notebook.slug}"
            yield f"code cell {i + 1}: its tolerance is not the measured one; {cure}"


# ------------------------------------------------------------------------------------- the figures


def readable_figures(notebook: Notebook):
    for where, output in notebook.outputs():
        data = output.get("data", {})
        html, plain = data.get("text/html", ""), data.get("text/plain", "")
        if set(data) & set(compare.PICTURES):
            yield f"{where} shows a picture without a text alternative; plots.show(fig, alt, data)"
        for tag in re.findall(r"<(?:img|svg)\b[^>]*>", html):
            if not re.search(r"(?:alt|aria-label)=\"[^\"]{10,}\"", tag):
                yield f"{where}: a picture has no text alternative: {tag[:80]}"
        if "<svg" in html or "<img" in html or compare.VIEW in data:
            if not re.search(r"^.*Figure: .+\n  .+: .*\d", plain, re.M):
                yield f"{where}: the data of a figure are not in its plain text, so nothing compares them"


def shown_figures(notebook: Notebook):
    for where, tree in notebook.trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("plt.show", "plt.savefig", "fig.show"):
                yield f"{where} shows a figure without a text alternative; plots.show(fig, alt, data)"
            is_last = tree.body and node is tree.body[-1]
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not is_last:
                if (name := ast.unparse(node.value.func)) in ("plots.show", "widgets.frames"):
                    yield f"{where}: {name} is not the last line, so nothing is shown; display(…)"


RULES = (
    in_sync, standard_setup, executed, quiet, within_budget, lines_fit, predictions_are_read, links_to_chapter,
    no_absolute_paths, known_imports,
    seeded, ignored_outputs, measured_tolerances, readable_figures, shown_figures,
)  # fmt: skip
