"""Executing notebooks: the same each time, alone in an empty directory, and tested by nbval."""

import json
import re
import subprocess
import sys

import execute
import jupytext
import nbformat
import offline_kernel
import pairs
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

# ------------------------------------------------------------------------------------- executing

SAMPLE = '''\
# %%
import os, socket, subprocess, sys, urllib.request
print(os.listdir("."))
for attempt in (lambda: urllib.request.urlopen("http://example.com", timeout=5),
                lambda: socket.create_connection(("192.0.2.1", 80), 5)):
    try:
        print("reached", attempt())
    except OSError as error:
        print("network off:", error)
script = """import socket
s = socket.create_server(("127.0.0.1", 0))
socket.create_connection(s.getsockname())
print("up")"""
print(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout)
{*"a set of words".split()}

# %%
from lmcourse import plots, widgets
def drawn(n):
    fig, axes = plots.figure()
    axes.plot(range(n))
    return plots.show(fig, f"A line of {n} points.", {"height": range(n)})
drawn(4)

# %%
widgets.frames([drawn(n) for n in (2, 3)], label="points")
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sample.py").write_text(SAMPLE)
    return tmp_path


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """A folder in which the sample was executed twice, and what the first time gave."""
    folder = tmp_path_factory.mktemp("executed")
    (folder / "sample.py").write_text(SAMPLE)
    assert execute.run("sample", folder)
    first = (folder / "sample.ipynb").read_bytes()
    assert execute.run("sample", folder)
    return folder, first


def outputs(folder):
    return [o for cell in nbformat.read(folder / "sample.ipynb", 4).cells for o in cell.outputs]


def test_execution_is_reproducible_and_alone(executed):
    folder, first = executed
    assert (folder / "sample.ipynb").read_bytes() == first
    printed = outputs(folder)[0].text
    assert printed.startswith("[]\n") and printed.count("network off: ") == 2 and "reached" not in printed
    assert printed.endswith("up\n\n")  # loopback is there: processes of one notebook can talk to each other
    cost = json.loads((folder / "budget.json").read_text())["sample"]
    assert cost["seconds"] > 0 and cost["peak_mb"] > 20 and cost["cores"] >= 1 and cost["processor"]
    assert sorted(p.name for p in folder.iterdir()) == ["budget.json", "sample.ipynb", "sample.py"]


def test_execution_keeps_the_widget_and_names_no_time(executed):
    folder, _ = executed
    notebook = nbformat.read(folder / "sample.ipynb", 4)
    state = notebook.metadata.widgets[execute.WIDGETS]["state"]
    view = notebook.cells[-1].outputs[0].data[execute.VIEW]["model_id"]
    assert state[view]["model_name"] == "VBoxModel"
    assert sum(m["model_name"] == "LinkModel" for m in state.values()) == 2
    assert all(re.fullmatch("0{28}[0-9a-f]{4}", model) for model in state)
    text = (folder / "sample.ipynb").read_text()
    assert not re.search(r"iopub|\b20\d\d-\d\d-\d\d", text)


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("example.com", 443), ("2001:db8::1", 80, 0, 0)])
def test_other_hosts_are_refused_without_a_namespace_too(address):
    with pytest.raises(OSError, match="without a network"):
        offline_kernel.refuse_other_hosts("socket.connect", (None, address))
    with pytest.raises(OSError, match="without a network"):
        offline_kernel.refuse_other_hosts("socket.getaddrinfo", (address[0], 80, 0, 0, 0))


@pytest.mark.parametrize("address", [("127.0.0.1", 80), ("localhost", 80), ("::1", 80, 0, 0), "/run/socket"])
def test_this_machine_is_not_refused(address):
    offline_kernel.refuse_other_hosts("socket.connect", (None, address))
    offline_kernel.refuse_other_hosts("open", ("192.0.2.1",))


def test_failing_cell_leaves_the_notebook_as_it_was(folder, capsys):
    (folder / "sample.ipynb").write_text("the old one")
    (folder / "sample.py").write_text("# %%\nprint('before')\n\n# %%\n1 / 0\n")
    assert not execute.run("sample", folder)
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said and "1 / 0" in said
    assert (folder / "sample.ipynb").read_text() == "the old one" and not (folder / "budget.json").exists()
    assert sorted(p.name for p in folder.iterdir()) == ["sample.ipynb", "sample.py"]


def test_unknown_slug(folder, capsys):
    with pytest.raises(SystemExit):
        execute.main(["--folder", str(folder), "smaple"])
    assert "there are: sample" in capsys.readouterr().err


def test_pair_survives_a_round_trip(folder):
    notebook = pairs.read(folder / "sample.py")
    notebook.cells[0].metadata.update(lmcourse={"tolerance": {"atol": {"0.001": 0.01}}}, tags=["setup"])
    notebook.metadata["lmcourse"] = {"needs": ["name==1.0"]}
    written = pairs.text(notebook)
    (folder / "again.py").write_text(written)
    again = pairs.read(folder / "again.py")
    assert pairs.text(again) == written and again.cells[0].metadata == notebook.cells[0].metadata
    assert again.metadata["lmcourse"] == {"needs": ["name==1.0"]} and [c.id for c in again.cells] == [
        c.id for c in notebook.cells
    ]
    assert jupytext.reads(written, fmt="py:percent").cells[0].source == notebook.cells[0].source


# ----------------------------------------------------------------------------------------- nbval

def stream(text):
    return new_output("stream", text=text)


CASES = {  # source, committed output, metadata, does it pass
    "equal": ("print('loss', 1.25)", [stream("loss 1.25\n")], {}, True),
    "within": ("print('loss', 1.25)", [stream("loss 1.24\n")], {"tolerance": {"atol": 0.02}}, True),
    "beyond": ("print('loss', 1.25)", [stream("loss 1.22\n")], {"tolerance": {"atol": 0.02}}, False),
    "exact": ("print('loss', 1.25)", [stream("loss 1.24\n")], {}, False),
    "word": ("print('loss', 1.25)", [stream("cost 1.25\n")], {"tolerance": {"atol": 0.02}}, False),
    "missing": ("print('loss', 1.25)", [], {}, False),
    "extra": ("x = 1", [stream("loss 1.25\n")], {}, False),
    "empty directory": ("import os; print(os.listdir())", [stream("[]\n")], {}, True),
    "network": ("import socket\nsocket.create_connection(('192.0.2.1', 80), 5)", [], {}, False),
}


def test_nbval_compares_numbers(tmp_path):
    cells = [
        new_code_cell(text, outputs=committed, metadata={"lmcourse": metadata}, execution_count=i + 1)
        for i, (text, committed, metadata, _) in enumerate(CASES.values())
    ]
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": pairs.KERNEL}), tmp_path / "cases.ipynb")
    hook = (pairs.NOTEBOOKS / "conftest.py").read_text()
    (tmp_path / "conftest.py").write_text(hook.replace("Path(__file__)", f"Path({str(pairs.NOTEBOOKS / 'x')!r})"))
    command = [sys.executable, "-m", "pytest", "--nbval", "-rA", "-p", "no:cacheprovider", "--color=no", "cases.ipynb"]
    report = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    for i, (name, (_, _, _, passes)) in enumerate(CASES.items()):
        verdict = "PASSED" if passes else "FAILED"
        assert re.search(rf"{verdict} \S*cases.ipynb::Cell {i}\b", report), f"{name}:\n{report}"
    assert "number 1: committed 1.22, now 1.25, allowed ±0.02" in report
