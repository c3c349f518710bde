"""The check under Colab's versions: what it compares, and where the package comes from. The run is scheduled."""

import copy
import subprocess

import colab
import compare
import pairs
import pytest
import setup_cell
import yaml
from nbformat.v4 import new_code_cell, new_notebook, new_output


def notebook():
    text = "Slider: step, 2 steps\nstep 1. Figure: A line.\n  x: 0.50"
    bundle = {compare.VIEW: {"model_id": "1"}, "text/plain": text}
    cells = [
        new_code_cell(setup_cell.standard(), outputs=[new_output("stream", text="torch 2.13.0\n")]),
        new_code_cell("print(loss)", outputs=[new_output("stream", text="loss 1.25\n")]),
        new_code_cell("widgets.frames(p, 'step')", outputs=[new_output("display_data", bundle)]),
    ]
    cells[1].metadata["lmcourse"] = {"tolerance": {"atol": {"0.01": 0.03}}}
    return new_notebook(cells=cells)


def changed(cell, outputs):
    new = copy.deepcopy(notebook())
    new.cells[cell].outputs = outputs
    return colab.unlike(notebook(), new)


def older(text):
    """What ipywidgets 7 leaves: another view first, then the text of the frames."""
    return [
        new_output("display_data", {compare.VIEW: {"model_id": "2"}, "text/plain": "interactive(children=…)"}),
        new_output("display_data", {"text/plain": text}),
    ]


def test_alike():
    assert changed(0, [new_output("stream", text="torch 2.11.0\n")]) == []
    assert changed(1, [new_output("stream", text="loss 1.27\n")]) == []
    assert changed(2, older("Slider: step, 2 steps\nstep 1. Figure: A line.\n  x: 0.50")) == []


def test_unlike():
    assert changed(1, [new_output("stream", text="loss 1.29\n")])
    assert changed(1, [])
    assert changed(2, older("Slider: step, 2 steps\nstep 1. Figure: A line.\n  x: 0.70"))
    assert changed(2, [])


def test_the_address_leads_to_the_last_commit(tmp_path):
    settings = colab.local_address(tmp_path)
    url = yaml.safe_load((pairs.ROOT / "_config.yml").read_text())["repository"]["url"]
    assert settings["GIT_CONFIG_VALUE_0"] == url
    listed = subprocess.run(
        ["git", "ls-remote", url], env={"PATH": "/usr/bin:/bin", **settings}, capture_output=True, text=True, check=True
    ).stdout
    assert f"{colab.output_of('git', '-C', pairs.ROOT, 'rev-parse', 'HEAD')}\trefs/heads/main" in listed


def test_a_python_that_does_not_start_is_passed_over(tmp_path, monkeypatch):
    for name, code in (("python3.13", 1), ("python3.12", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PYTHON", raising=False)
    assert colab.find_python() == str(tmp_path / "python3.12")
    (tmp_path / "python3.12").unlink()
    with pytest.raises(SystemExit, match="no python3.13 and no python3.12 here; install one"):
        colab.find_python()


def test_unknown_notebook(capsys):
    with pytest.raises(SystemExit):
        colab.main(["no-such-notebook"])
    assert "there is no notebook 'no-such-notebook'" in capsys.readouterr().err


