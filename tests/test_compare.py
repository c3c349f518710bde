"""Outputs of notebooks: compared number by number, within tolerances that are measured."""

import json

import compare
import execute
import nbformat
import pairs
import pytest
import tolerances
from nbformat.v4 import new_output

# ------------------------------------------------------------------------------------ comparing


def stream(text, name="stdout"):
    return new_output("stream", text=text, name=name)


def result(text, **more):
    return new_output("display_data", {"text/plain": text, **more})


SAME = [
    ("loss 1.250 after 3 steps", "loss 1.250 after 3 steps", None),
    ("loss 1.250 after 3 steps", "loss 1.253 after 3 steps", {"atol": {"0.001": 0.003}}),
    ("loss 1.250 after 3 steps", "loss 1.249 after 3 steps", {"rtol": 0.001}),
    ("[ 0.10 -0.20]", "[-0.01 -0.20]", {"atol": 0.12}),
    ("size  999 words", "size 1,001 words", {"atol": 2}),
    ("1.0e-05", "1.1e-05", {"atol": {"0.000001": 1e-6}}),
    ("epoch 1\repoch 2\repoch 3", "epoch 3", None),
]
DIFFERENT = [
    ("loss 1.250", "loss 1.251", None),
    ("loss 1.250", "loss 1.254", {"atol": {"0.001": 0.003}}),
    ("loss 1.250 after 3 steps", "loss 1.250 after 4 steps", {"atol": {"0.001": 0.003}}),
    ("loss 1.250", "Loss 1.250", {"atol": 9}),
    ("near bank: river", "near bank: money", {"atol": 9}),
    ("word2vec", "word3vec", {"atol": 9}),
    ("1 2 3", "1 2", {"atol": 9}),
    ("1.5", "-1.5", {"atol": 1}),
    ("1.5", "nan", {"atol": 9}),
    ("1.5 #", "1.5 1", {"atol": 9}),
    ("one\ntwo", "one two", None),
]


@pytest.mark.parametrize("old, new, tolerance", SAME)
def test_same(old, new, tolerance):
    assert compare.differences([stream(old)], [stream(new)], tolerance) == []
    assert compare.differences([result(old)], [result(new)], tolerance) == []


@pytest.mark.parametrize("old, new, tolerance", DIFFERENT)
def test_different(old, new, tolerance):
    assert compare.differences([stream(old)], [stream(new)], tolerance)
    assert compare.differences([result(old)], [result(new)], tolerance)


def test_missing_and_added_outputs():
    assert compare.differences([stream("a"), result("1")], [stream("a")])
    assert compare.differences([stream("a")], [stream("a"), result("1")])
    assert compare.differences([stream("a")], [stream("a", "stderr")])
    assert compare.differences([result("1", **{"image/png": "aa"})], [result("1")])
    assert compare.differences([stream("a"), stream("b")], [stream("ab")]) == []


def test_which_stream_arrives_first_does_not_matter():
    printed, warned = stream("a"), stream("training 100%", "stderr")
    assert compare.differences([printed, warned], [warned, printed]) == []
    assert compare.differences([printed, warned], [stream("a", "stderr"), stream("training 100%")])


def test_pictures_are_not_compared_but_what_surrounds_them_is():
    old, new = ({"text/html": f'<p>{n} words</p><svg viewBox="0 0 {n} 2"><path d="M {n}"/></svg>'} for n in (1, 2))
    same = {"text/html": old["text/html"].replace("M 1", "M 7")}
    assert compare.differences([new_output("display_data", old)], [new_output("display_data", same)]) == []
    assert compare.differences([new_output("display_data", old)], [new_output("display_data", new)])
    gone = {"text/html": "<p>1 words</p>"}
    assert compare.differences([new_output("display_data", old)], [new_output("display_data", gone)])


def test_unknown_tolerance():
    with pytest.raises(ValueError, match="expected 'atol' and 'rtol'"):
        compare.allowed("1.0", {"absolute": 3})


# ------------------------------------------------------------------------------------ tolerances


def test_spread_and_tolerance():
    runs = [[stream(f"loss {a}, {n} of 10 right")] for a, n in (("1.250", 7), ("1.252", 7), ("1.249", 7))]
    assert tolerances.spreads(runs) == {"0.001": 0.003}  # 0.002 and one unit of the last place
    assert tolerances.tolerance({"0.001": 0.003}) == {"atol": {"0.001": 0.009}}
    assert tolerances.spreads(runs[:1] * 3) == {} and tolerances.tolerance({}) is None


def test_rounding_is_upwards():
    assert [tolerances.rounded_up(x) for x in (0.009, 0.0091, 0.00901, 1234.5)] == [0.009, 0.0091, 0.0091, 1300]


def test_varying_words_are_an_error():
    with pytest.raises(tolerances.WordsDiffer, match="river"):
        tolerances.spreads([[stream("near: river")], [stream("near: money")]], "cell 2")


VARYING = '''\
# %%
import os
print("loss", 1.5 + int(os.environ["OMP_NUM_THREADS"]) / 100, "after 3 steps")

# %% tags=["nbval-ignore-output"]
print(os.environ["ATEN_CPU_CAPABILITY"] if "ATEN_CPU_CAPABILITY" in os.environ else "no level")

# %%
print("near bank:", "river" if WORDS else "money")
'''


def test_measured_tolerances_go_into_the_pair(tmp_path):
    (tmp_path / "sample.py").write_text(VARYING.replace("WORDS", "True"))
    assert execute.run("sample", tmp_path) and tolerances.run("sample", tmp_path)
    notebook = nbformat.read(tmp_path / "sample.ipynb", 4)
    assert [c.metadata.get("lmcourse") for c in notebook.cells] == [{"tolerance": {"atol": {"0.01": 0.06}}}, None, None]
    assert '# %% lmcourse={"tolerance": {"atol": {"0.01": 0.06}}}' in (tmp_path / "sample.py").read_text()
    report = json.loads((tmp_path / "tolerances.json").read_text())["sample"]
    assert report["cells"] == {notebook.cells[0].id: {"0.01": 0.02}} and report["threads"] == ["1", "2"]
    assert pairs.text(notebook) == (tmp_path / "sample.py").read_text()


def test_varying_words_write_nothing(tmp_path, capsys):
    (tmp_path / "sample.py").write_text(VARYING.replace("WORDS", '"ATEN_CPU_CAPABILITY" in os.environ'))
    assert execute.run("sample", tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert not tolerances.run("sample", tmp_path)
    assert "committed 'near bank: money', now 'near bank: river'" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
