"""Widgets that work in a saved page: every picture is drawn beforehand, and the browser alone turns them over.

``frames(pictures, label)`` gives a slider with a play button. On ipywidgets 8 the pictures stand in a ``Stack``
that the slider drives without Python; on ipywidgets 7, which has none, a running kernel turns them over.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import ipywidgets
import torch

from lmcourse import arguments
from lmcourse.plots import Picture


@dataclass(frozen=True)
class Frames:
    """Pictures in order, number ``start`` on view at first. ``values`` are what the slider reads at each."""

    pictures: tuple[Picture, ...]
    label: str
    values: tuple[str, ...]
    interval: int
    start: int = 0

    def __str__(self) -> str:
        steps = (f"{self.label} {value}. {picture}" for value, picture in zip(self.values, self.pictures))
        first = f", first at {self.values[self.start]}" if self.start else ""
        return f"Slider: {self.label}, {len(self.pictures)} steps{first}\n" + "\n".join(steps)

    def _repr_mimebundle_(self, include=None, exclude=None):
        if not hasattr(ipywidgets, "Stack"):
            _turned_by_kernel(self)
            return {"text/plain": str(self)}
        view = {"version_major": 2, "version_minor": 0, "model_id": _turned_by_browser(self).model_id}
        return {"application/vnd.jupyter.widget-view+json": view, "text/plain": str(self)}


def frames(
    pictures: Sequence[Picture],
    label: str,
    values: Sequence[object] | None = None,
    interval: int = 700,
    start: int = 0,
) -> Frames:
    """A slider over ``pictures`` (from :func:`lmcourse.plots.show`), to be the last line of a cell.

    ``label`` names the slider, ``values`` (default 1, 2, …) is what it reads at each picture, ``interval`` the
    time of one picture while it plays, in milliseconds, ``start`` the index of the picture that is shown at first: the
    most instructive one.
    """
    arguments.listed("pictures", pictures, "a list of two or more of what plots.show(…) gives")
    pictures = tuple(pictures)
    values = range(1, len(pictures) + 1) if values is None else values
    arguments.listed("values", values, "a list with one value a picture")
    values = tuple(map(_read, values))
    if len(pictures) < 2:
        raise ValueError(f"pictures: got {len(pictures)}, expected at least two to turn over")
    for i, picture in enumerate(pictures):
        if not isinstance(picture, Picture):
            raise TypeError(f"pictures[{i}]: got {type(picture).__name__}, expected what plots.show(…) gives")
    if len(values) != len(pictures):
        raise ValueError(f"values: got {len(values)} for {len(pictures)} pictures, expected one a picture")
    if len(set(values)) != len(values):
        raise ValueError(f"values: got {values}, expected them all different, as each names one picture")
    if not isinstance(label, str) or not label.strip():
        raise ValueError(f"label: got {label!r}, expected a few words that say what the slider changes")
    if not isinstance(interval, int) or interval < 200:
        raise ValueError(f"interval: got {interval!r}, expected at least 200 milliseconds, since faster flashes harm")
    if not isinstance(start, int) or isinstance(start, bool):
        raise TypeError(f"start: got {arguments.came(start)}, expected the index of a picture, such as 0")
    if not 0 <= start < len(pictures):
        raise ValueError(f"start: got {start}, expected 0 to {len(pictures) - 1}, the index of one of the pictures")
    return Frames(pictures, " ".join(label.split()), values, interval, start)


def _read(value: object) -> str:
    """What the slider reads; of a tensor its number alone."""
    if not isinstance(value, torch.Tensor):
        return str(value)
    if value.ndim:
        raise TypeError(f"values: got a tensor {list(value.shape)} for one picture, expected one number")
    value = value.detach().cpu()
    return str((value.float() if value.dtype == torch.bfloat16 else value).numpy())


def _turned_by_browser(shown: Frames) -> ipywidgets.VBox:
    count = len(shown.pictures)
    layout, text = ipywidgets.Layout(width="auto"), ipywidgets.HTML().style  # shared, so that little is saved
    children = [ipywidgets.HTML(picture.markup, layout=layout, style=text) for picture in shown.pictures]
    stack = ipywidgets.Stack(children, selected_index=shown.start)
    slider = ipywidgets.SelectionSlider(
        options=shown.values,
        value=shown.values[shown.start],
        description=shown.label,
        continuous_update=True,
        style={"description_width": "initial"},
    )
    play = ipywidgets.Play(value=shown.start, min=0, max=count - 1, interval=shown.interval, show_repeat=False)
    ipywidgets.jslink((play, "value"), (slider, "index"))
    ipywidgets.jslink((slider, "index"), (stack, "selected_index"))
    return ipywidgets.VBox([ipywidgets.HBox([play, slider], layout={"flex_flow": "row wrap"}), stack])


def _turned_by_kernel(shown: Frames) -> None:
    from IPython.display import HTML, display

    slider = ipywidgets.SelectionSlider(
        options=[(value, i) for i, value in enumerate(shown.values)],
        value=shown.start,
        description=shown.label,
        style={"description_width": "initial"},
    )
    ipywidgets.interact(lambda i: display(HTML(shown.pictures[i].markup)), i=slider)
