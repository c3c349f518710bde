"""Widgets whose pictures are drawn beforehand: they need no kernel, have names, and say their data in plain text."""

import ipywidgets
import pytest
import torch
from ipywidgets.embed import dependency_state

from lmcourse import plots, widgets

VIEW = "application/vnd.jupyter.widget-view+json"


def picture(n):
    fig, axes = plots.figure()
    axes.plot(range(n))
    return plots.show(fig, f"A line of {n} points.", {"height": range(n)})


@pytest.fixture(scope="module")
def pictures():
    return [picture(n) for n in (2, 3, 4)]


@pytest.fixture
def state(pictures):
    return saved(widgets.frames(pictures, "points", values=(2, 3, 4)))


def saved(frames):
    """The widget's state, model by model, as a page without a kernel gets it."""
    return dependency_state([widgets._turned_by_browser(frames)], drop_defaults=False)


def of(state, name):
    return [m["state"] for m in state.values() if m["model_name"] == name]


def test_the_browser_can_turn_them_over(state):
    (stack,), (slider,), (play,) = (of(state, f"{name}Model") for name in ("Stack", "SelectionSlider", "Play"))
    assert len(stack["children"]) == 3 and stack["selected_index"] == 0
    assert slider["_options_labels"] == ("2", "3", "4") and slider["description"] == "points"
    assert (play.get("min", 0), play["max"]) == (0, 2)
    names = {f"IPY_MODEL_{i}": m["model_name"] for i, m in state.items()}
    ends = [(m["source"], m["target"]) for m in of(state, "LinkModel")]
    links = {(names[s[0]], s[1], names[t[0]], t[1]) for s, t in ends}
    assert links == {
        ("PlayModel", "value", "SelectionSliderModel", "index"),
        ("SelectionSliderModel", "index", "StackModel", "selected_index"),
    }


@pytest.mark.parametrize("start", [0, 1, 2])
def test_slider_stack_play_and_text_begin_at_the_same_picture(pictures, start):
    frames = widgets.frames(pictures, "points", values=(2, 3, 4), start=start)
    state = saved(frames)
    (stack,), (slider,), (play,) = (of(state, f"{name}Model") for name in ("Stack", "SelectionSlider", "Play"))
    assert stack["selected_index"] == slider["index"] == play.get("value", 0) == start
    first = str(frames).splitlines()[0]
    assert first == "Slider: points, 3 steps" + ("" if start == 0 else f", first at {start + 2}")


def test_every_picture_has_its_alternative(state):
    texts = [m["value"] for m in of(state, "HTMLModel")]
    assert [f'aria-label="A line of {n} points."' in text for n, text in zip((2, 3, 4), texts)] == [True] * 3


def test_little_is_saved_beside_the_pictures(pictures):
    few, many = (saved(widgets.frames(some, "points")) for some in (pictures[:2], pictures * 3))
    assert len(many) - len(few) == 7  # one model a picture


def test_plain_text_says_all_alternatives_and_data(pictures):
    bundle = widgets.frames(pictures, "points", values=(2, 3, 4))._repr_mimebundle_()
    assert set(bundle) == {VIEW, "text/plain"}
    lines = bundle["text/plain"].splitlines()
    assert lines[0] == "Slider: points, 3 steps"
    assert lines[1:3] == ["points 2. Figure: A line of 2 points.", "  height: 0 1"] and lines[-1] == "  height: 0 1 2 3"


def test_without_a_stack_the_kernel_turns_them_over(pictures, monkeypatch):
    monkeypatch.delattr(ipywidgets, "Stack")
    seen = []
    monkeypatch.setattr(ipywidgets, "interact", lambda function, i: seen.append((function, i)))
    bundle = widgets.frames(pictures, "points", start=2)._repr_mimebundle_()
    assert set(bundle) == {"text/plain"}
    (_, slider), = seen  # fmt: skip
    assert [index for _, index in slider.options] == [0, 1, 2] and slider.description == "points"
    assert slider.value == slider.index == 2


@pytest.mark.parametrize(
    "error, match, change",
    [
        (ValueError, "pictures: got 0, expected at least two", {"pictures": []}),
        (ValueError, "pictures: got 1, expected at least two", {"few": 1}),
        (TypeError, r"pictures\[0\]: got str, expected what plots.show", {"pictures": ["<svg>", "<svg>"]}),
        (ValueError, "values: got 2 for 3 pictures", {"values": (1, 2)}),
        (ValueError, "values: .*all different", {"values": (1, 1, 2)}),
        (TypeError, "pictures: got NoneType, expected a list", {"pictures": None}),
        (TypeError, "values: got int, expected a list", {"values": 3}),
        (TypeError, "values: got str, expected a list", {"values": "abc"}),
        (TypeError, r"values: got a tensor \[2\] for one picture", {"values": torch.zeros(3, 2)}),
        (ValueError, "label: got ' '", {"label": " "}),
        (ValueError, "label: got None", {"label": None}),
        (ValueError, "interval: got 10, expected at least 200", {"interval": 10}),
        (ValueError, "start: got 3, expected 0 to 2", {"start": 3}),
        (ValueError, "start: got -1, expected 0 to 2", {"start": -1}),
        (TypeError, "start: got str, expected the index of a picture", {"start": "4"}),
        (TypeError, "start: got bool, expected the index", {"start": True}),
        (TypeError, "start: got float, expected the index", {"start": 1.0}),
    ],
)
def test_bad_input(error, match, change, pictures):
    change = dict(change)
    arguments = {"pictures": pictures[: change.pop("few", 3)], "label": "points", **change}
    with pytest.raises(error, match=match):
        widgets.frames(**arguments)


def test_one_picture_is_no_list(pictures):
    with pytest.raises(TypeError, match="pictures: got Picture, expected a list of two or more"):
        widgets.frames(pictures[0], "points")


@pytest.mark.parametrize("dtype, read", [(torch.float32, ("0.1", "0.2", "0.5")), (torch.int64, ("1", "2", "5"))])
def test_a_tensor_of_values_reads_as_its_numbers(pictures, dtype, read):
    values = torch.tensor([float(r) for r in read]).to(dtype)
    assert widgets.frames(pictures, "points", values).values == read
    assert widgets.frames(pictures, "points", list(values)).values == read
