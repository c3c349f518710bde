"""The course moves to another address, and a new chapter is laid out: everywhere, or not at all."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import new_chapter
import nbformat
import pairs
import pytest
import repository
import rules
import test_equations
import yaml
from lmcourse.checks import _problem

ROOT = Path(__file__).resolve().parents[1]
OLD, NEW = ("first-owner", "wordbook"), ("Uni-X", "nlp.2027")


@pytest.fixture
def tree(tmp_path):
    """A small git repository that states its address in every form the course uses."""
    files = {
        "_config.yml": "title: t\nrepository:\n  url: https://github.com/first-owner/wordbook  # the one place\n",
        "README.md": "See https://github.com/first-owner/wordbook. https://first-owner.github.io/wordbook/a.html\r\n",
        "notebooks/a.ipynb": json.dumps(
            {"cells": [{"source": ['%pip install "x @ git+https://github.com/first-owner/wordbook.git@main"\n', "é"]}]},
            ensure_ascii=False,
        ),
        "button.md": "https://colab.research.google.com/github/first-owner/wordbook/blob/main/notebooks/a.ipynb",
        "other.md": "github.com/first-owner/wordbook-2 https://github.com/x/wordbook https://github.com/first-owner",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / "run.sh").write_text("open https://github.com/first-owner/wordbook/issues\n")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "image.bin").write_bytes(b"\0https://github.com/first-owner/wordbook")
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    (tmp_path / "untracked.md").write_text("https://github.com/first-owner/wordbook")
    return tmp_path


def contents(tree):
    return {p: p.read_bytes() for p in tree.rglob("*") if p.is_file() and ".git" not in p.relative_to(tree).parts}


def test_every_tracked_form_of_the_address_changes(tree):
    before = contents(tree)
    changed = repository.rewrite("https://github.com/Uni-X/nlp.2027", tree)
    assert [p.relative_to(tree).as_posix() for p in changed] == [
        "README.md", "_config.yml", "button.md", "notebooks/a.ipynb", "run.sh",
    ]  # fmt: skip
    after = contents(tree)
    assert set(after) == set(before)  # no temporary file stays behind
    for name in ("other.md", "image.bin", "untracked.md"):
        assert after[tree / name] == before[tree / name]
    assert after[tree / "README.md"] == (
        b"See https://github.com/Uni-X/nlp.2027. https://uni-x.github.io/nlp.2027/a.html\r\n"
    )
    assert b"github.com/Uni-X/nlp.2027  # the one place" in after[tree / "_config.yml"]
    assert b"research.google.com/github/Uni-X/nlp.2027/blob/main" in after[tree / "button.md"]
    cell = json.loads(after[tree / "notebooks/a.ipynb"])["cells"][0]["source"]
    assert cell == ['%pip install "x @ git+https://github.com/Uni-X/nlp.2027.git@main"\n', "é"]
    assert os.access(tree / "run.sh", os.X_OK)
    assert repository.current(tree) == NEW


def test_a_pair_stays_in_step(tree):
    """Cell ids are made from the cells' text, so they change with the address in the setup cell."""
    source = tree / "notebooks" / "pair.py"
    source.write_text('# %%\nx = "git+https://github.com/first-owner/wordbook@main"\n\n# %%\ny = 1\n')
    source.with_suffix(".ipynb").write_text(nbformat.writes(pairs.read(source)) + "\n")
    subprocess.run(["git", "-C", str(tree), "add", "notebooks"], check=True)
    before = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    repository.rewrite("https://github.com/Uni-X/nlp.2027", tree)
    after = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    assert source.with_suffix(".ipynb").read_text() == nbformat.writes(pairs.read(source)) + "\n"
    assert [a.id == b.id for a, b in zip(after.cells, before.cells, strict=True)] == [False, True]
    repository.rewrite("https://github.com/first-owner/wordbook", tree)
    assert nbformat.read(source.with_suffix(".ipynb"), as_version=4) == before


def test_twice_is_once_and_back_is_back(tree):
    before = contents(tree)
    repository.rewrite("https://github.com/Uni-X/nlp.2027", tree)
    once = contents(tree)
    assert repository.rewrite("https://github.com/Uni-X/nlp.2027.git/", tree) == []
    assert contents(tree) == once
    repository.rewrite("https://github.com/first-owner/wordbook", tree)
    assert contents(tree) == before


@pytest.mark.parametrize(
    "url",
    [
        "",
        "uni/nlp",
        "http://github.com/uni/nlp",
        "https://github.com/uni",
        "https://github.com/uni/nlp/tree/main",
        "https://gitlab.com/uni/nlp",
        "https://github.com.evil.example/uni/nlp",
        "https://github.com/uni/..",
        "https://github.com/-uni/nlp",
        "https://github.com/uni/n l p",
        "https://github.com/uni/nlp\nx",
        "git@github.com:uni/nlp.git",
    ],
)
def test_a_wrong_address_changes_nothing(tree, url):
    before = contents(tree)
    with pytest.raises(ValueError, match="expected https://github.com/OWNER/NAME"):
        repository.rewrite(url, tree)
    assert contents(tree) == before


def test_an_interrupted_run_is_finished_by_the_next(tree, monkeypatch):
    real, left = os.replace, [2]

    def breaks_off(source, target):
        if left[0] == 0:
            raise OSError("disk full")
        left[0] -= 1
        real(source, target)

    monkeypatch.setattr(os, "replace", breaks_off)
    with pytest.raises(OSError):
        repository.rewrite("https://github.com/Uni-X/nlp.2027", tree)
    assert repository.current(tree) == OLD
    assert not [p for p in tree.rglob(".*") if p.is_file() and p.parent == tree]  # no temporary file
    monkeypatch.undo()
    repository.rewrite("https://github.com/Uni-X/nlp.2027", tree)
    assert not [p for p, text in contents(tree).items() if b"first-owner/wordbook" in text.replace(b"wordbook-2", b"")
                and p.name not in ("image.bin", "untracked.md")]  # fmt: skip


def test_without_an_address_or_a_repository(tree, tmp_path_factory):
    (tree / "_config.yml").write_text("title: t\n")
    with pytest.raises(ValueError, match="repository.url is missing"):
        repository.rewrite("https://github.com/uni/nlp", tree)
    bare = tmp_path_factory.mktemp("bare")
    (bare / "_config.yml").write_text("repository: {url: https://github.com/a/b}\n")
    with pytest.raises(ValueError, match="not a git repository"):
        repository.rewrite("https://github.com/uni/nlp", bare)


@pytest.mark.parametrize("arguments", [[], [""], ["a", "b"], ["ftp://x"]])
def test_the_command_says_how_it_is_used(arguments, capsys):
    assert repository.main(arguments) == 2
    assert "https://github.com/OWNER/NAME" in capsys.readouterr().err


def test_solutions_in_the_tree_are_a_warning(tree, monkeypatch, capsys):
    monkeypatch.setattr(repository, "ROOT", tree)
    assert repository.main(["https://github.com/Uni-X/nlp.2027"]) == 0
    assert "teaching/solutions" not in capsys.readouterr().out
    (tree / "teaching" / "solutions").mkdir(parents=True)
    assert repository.main(["https://github.com/first-owner/wordbook"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "teaching/solutions" in line]
    assert line.startswith("Careful") and "students can read" in line


# ------------------------------------------------------------------------------------- new chapter


@pytest.fixture
def house(tmp_path):
    """As much of the course as a new chapter touches."""
    for name in ("book", "notebooks", "tests", "lmcourse/exercises", "teaching/solutions"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(ROOT / "_toc.yml", tmp_path)
    return tmp_path


def parts(toc: str) -> dict[str, list[str]]:
    """The pages of each part, in order, those beneath a chapter after it."""
    pages = lambda c: [c["file"], *(s["file"] for s in c.get("sections", ()))]  # noqa: E731
    return {p["caption"]: [file for c in p["chapters"] for file in pages(c)] for p in yaml.safe_load(toc)["parts"]}


def test_a_chapter_is_laid_out(house):
    written = [p.relative_to(house).as_posix() for p in new_chapter.make("scaling-laws", house)]
    assert written == [
        "book/scaling-laws.md", "notebooks/scaling-laws.py", "notebooks/scaling-laws.ipynb",
        "tests/test_scaling_laws.py", "lmcourse/exercises/scaling_laws.py", "teaching/solutions/scaling_laws.py",
        "teaching/solutions/scaling_laws.md", "_toc.yml",
    ]  # fmt: skip
    texts = {p: (house / p).read_text(encoding="utf-8") for p in written}
    assert texts["book/scaling-laws.md"].startswith("---\nnotebook: scaling-laws\n---\n\n# Spending compute\n")
    assert not [p for p, text in texts.items() if "@@" in text]
    assert [p for p, text in texts.items() if "TODO" not in text] == ["_toc.yml"]
    assert sorted(p.name for p in house.rglob(".*")) == []  # no temporary file


def test_its_notebook_is_a_pair_in_order(house):
    new_chapter.make("scaling-laws", house)
    fresh = pairs.read(house / "notebooks" / "scaling-laws.py")
    assert pairs.text(fresh) == (house / "notebooks" / "scaling-laws.py").read_text(encoding="utf-8")
    committed = nbformat.read(house / "notebooks" / "scaling-laws.ipynb", as_version=4)
    nbformat.validate(committed)
    assert [(c.id, c.source) for c in committed.cells] == [(c.id, c.source) for c in fresh.cells]
    code = [c for c in committed.cells if c.cell_type == "code"]
    assert "setup" in code[0].metadata.tags and "git+" in code[0].source


def test_its_equation_has_a_test_that_passes(house):
    new_chapter.make("scaling-laws", house)
    assert set(test_equations.labels(house / "book")) == {"eq-scaling-laws-example"}
    assert set(test_equations.covered(house / "tests")) == {"eq-scaling-laws-example"}
    shutil.copy(ROOT / "tests" / "equation.py", house / "tests")
    shutil.copy(ROOT / "pyproject.toml", house)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_scaling_laws.py"],
        cwd=house, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def module(path: Path):
    """A file as a module, without an entry among the imported ones."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_its_checks_pass_the_solution_and_reject_the_wrong_answers(house):
    new_chapter.make("scaling-laws", house)
    checks = module(house / "lmcourse/exercises/scaling_laws.py").CHECKS
    known = module(house / "teaching/solutions/scaling_laws.py")
    assert {f"scaling-laws/{name}" for name in checks} == set(known.SOLUTIONS) == set(known.WRONG)

    def holds(answer):
        return all(not _problem(test) for _, test in checks["variant"](answer))

    assert holds(known.SOLUTIONS["scaling-laws/variant"])
    assert len(known.WRONG["scaling-laws/variant"]) >= 4
    assert not any(map(holds, known.WRONG["scaling-laws/variant"]))


def test_its_notebook_runs_but_for_the_check(house):
    new_chapter.make("scaling-laws", house)
    code = [c.source for c in pairs.read(house / "notebooks/scaling-laws.py").cells if c.cell_type == "code"]
    names = {}
    for cell in code[1:]:
        if "checks.check" not in cell:
            exec(cell, names)
    assert abs(names["total"] - 1) < 1e-6
    made = rules.Notebook("scaling-laws", house / "notebooks")
    assert [*rules.lines_fit(made), *rules.predictions_are_read(made), *rules.links_to_chapter(made)] == []


def test_a_new_chapter_has_every_part_of_the_first(house):
    """What the first chapter opens and closes with, the template has too."""
    made = new_chapter.fill("chapter.md", "subwords")
    for part in (
        "This chapter's question", "**Afterwards you can**", "**Time**", "**You need**", "**Beside it**",
        "## What we measured", "As published / at our size", "## Common mistakes", "## Trade-offs", "## Quiz",
        "## Where the code differs from the page", "% TODO ```{measured-output} headline", "*Hand in:*", "· goal 2",
        "## Exercises", "· practice ·", "· assignment ·", "## To remember", "## What is paid, what is owed",
        "For teachers", "## References",
    ):  # fmt: skip
        assert part in made, part


@pytest.mark.parametrize(
    "order, expected",
    [
        (["subwords"], {"Part I. Words and pieces": ["static-embeddings", "subwords"]}),
        (["gpt", "bert"], {"Part III. Attention and three ways to pretrain": ["bert", "gpt"]}),
        (["bert", "gpt"], {"Part III. Attention and three ways to pretrain": ["bert", "gpt"]}),
        (
            ["epilogue", "elmo", "subwords"],
            {
                "Part I. Words and pieces": ["static-embeddings", "subwords"],
                "Part II. Context from recurrence": ["elmo"],
                "Part IV. Scale": ["epilogue"],
            },
        ),
        (["my-own"], {"Part I. Words and pieces": ["static-embeddings", "my-own"]}),
    ],
)
def test_where_a_chapter_stands(order, expected):
    toc = (
        "format: jb-book\nroot: index\nparts:\n  - caption: Part I. Words and pieces\n    numbered: 1\n"
        "    chapters:  # the first\n      - file: book/static-embeddings\n        sections:\n"
        "          - file: notebooks/static-embeddings\n"
        "  - caption: Back matter\n    chapters:\n      - file: book/api\n"
    )
    before = parts(toc)
    for slug in order:
        toc = new_chapter.enter(slug, toc)
    after = parts(toc)
    for caption, slugs in expected.items():
        assert after[caption] == [f"{folder}/{s}" for s in slugs for folder in ("book", "notebooks")]
    assert list(after) == [*before][:1] + sorted(after.keys() - before.keys()) + [*before][1:]
    assert after["Back matter"] == before["Back matter"]
    assert "# the first" in toc


def test_chapters_have_a_number_and_their_notebooks_stand_beneath_them():
    """Numbered one level deep: chapter 4 is the fourth chapter, whatever is beneath the three before it."""
    toc = new_chapter.enter("gpt", (ROOT / "_toc.yml").read_text(encoding="utf-8"))
    numbered = [p for p in yaml.safe_load(toc)["parts"] if p["caption"].startswith("Part ")]
    assert len(numbered) == 3 and all(p["numbered"] == 1 for p in numbered)
    for chapter in (c for p in numbered for c in p["chapters"]):
        assert chapter["sections"] == [{"file": chapter["file"].replace("book/", "notebooks/")}]


@pytest.mark.parametrize(
    "slug", ["", "Sub", "sub_words", "-a", "a-", "a--b", "../x", "a/b", "a b", "1a", "é", "a" * 41, "a\n", None]
)
def test_a_bad_slug_writes_nothing(house, slug):
    before = contents(house)
    with pytest.raises(ValueError, match="SLUG: got"):
        new_chapter.make(slug, house)
    assert contents(house) == before


@pytest.mark.parametrize(
    "there",
    ["book/gpt.md", "notebooks/gpt.py", "notebooks/gpt.ipynb", "tests/test_gpt.py", "lmcourse/exercises/gpt.py",
     "teaching/solutions/gpt.py", "teaching/solutions/gpt.md"],
)
def test_an_existing_file_is_not_overwritten(house, there):
    (house / there).write_text("mine")
    before = contents(house)
    with pytest.raises(ValueError, match=f"{re.escape(there)} exists already"):
        new_chapter.make("gpt", house)
    assert contents(house) == before


def test_a_chapter_that_is_there_is_refused(house):
    before = contents(house)
    with pytest.raises(ValueError, match="is in it already"):
        new_chapter.make("static-embeddings", house)
    assert contents(house) == before


def test_a_full_disk_leaves_nothing_behind(house, monkeypatch):
    before, real = contents(house), repository.write

    def breaks_off(path, text):
        if path.name == "_toc.yml":
            raise OSError("disk full")
        real(path, text)

    monkeypatch.setattr(repository, "write", breaks_off)
    with pytest.raises(OSError, match="disk full"):
        new_chapter.make("gpt", house)
    assert contents(house) == before


@pytest.mark.parametrize("arguments", [[], ["A B"], ["a", "b"], ["static-embeddings"]])
def test_the_chapter_command_says_what_is_wrong(arguments, capsys):
    assert new_chapter.main(arguments) == 2
    assert re.search("SLUG|_toc.yml", capsys.readouterr().err)
