"""tools/repository.py: the course moves to another address, everywhere or not at all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import repository  # noqa: E402

OLD, NEW = ("first-owner", "wordbook"), ("Uni-X", "nlp.2027")


@pytest.fixture
def tree(tmp_path):
    """A small git repository that states its address in every form the course uses."""
    files = {
        "_config.yml": "title: t\nrepository:\n  url: https://github.com/first-owner/wordbook  # the one place\n",
        "README.md": "See https://github.com/first-owner/wordbook. And https://first-owner.github.io/wordbook/index.html\r\n",
        "notebooks/a.ipynb": json.dumps(
            {"cells": [{"source": ['%pip install "x @ git+https://github.com/first-owner/wordbook.git@main"\n', "é"]}]},
            ensure_ascii=False,
        ),
        "button.md": "https://colab.research.google.com/github/first-owner/wordbook/blob/main/notebooks/a.ipynb",
        "other.md": "https://github.com/first-owner/wordbook-2 https://github.com/x/wordbook https://github.com/first-owner",
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
        b"See https://github.com/Uni-X/nlp.2027. And https://uni-x.github.io/nlp.2027/index.html\r\n"
    )
    assert b"github.com/Uni-X/nlp.2027  # the one place" in after[tree / "_config.yml"]
    assert b"research.google.com/github/Uni-X/nlp.2027/blob/main" in after[tree / "button.md"]
    cell = json.loads(after[tree / "notebooks/a.ipynb"])["cells"][0]["source"]
    assert cell == ['%pip install "x @ git+https://github.com/Uni-X/nlp.2027.git@main"\n', "é"]
    assert os.access(tree / "run.sh", os.X_OK)
    assert repository.current(tree) == NEW


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
