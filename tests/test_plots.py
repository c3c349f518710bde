"""Figures: a text alternative that arrives, the data in the plain text, colours that read on light and dark."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from lmcourse import plots


def drawn(alt="The loss falls with each epoch.", data=None, label="loss"):
    fig, axes = plots.figure()
    axes.plot([3.0, 2.0, 1.5], label=label)
    axes.scatter([0, 1], [2, 2])
    axes.set(xlabel="epoch", ylabel="loss, nats a word")
    axes.legend()
    return plots.show(fig, alt, {"loss": [3.0, 2.0, 1.5]} if data is None else data)


def contrast(one, other):
    """WCAG 2.2's contrast ratio of two colours."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


LIGHT, DARK = "#ffffff", ("#14181e", "#121212", "#111111")  # dark pages of the book, of JupyterLab and Colab


@pytest.mark.parametrize("name", [*plots.COLOURS, "grey"])
def test_colours_read_on_light_and_dark(name):
    if name == "ink":  # the page's own
        return
    colour = {**plots.COLOURS, "grey": plots.GREY}[name]
    assert all(contrast(colour, page) >= 3 for page in (LIGHT, *DARK))


def test_the_contrast_test_can_fail():
    assert contrast("#F0E442", LIGHT) < 3 and contrast("#000000", LIGHT) == pytest.approx(21)


def test_black_is_the_ink_of_the_page():
    svg = drawn().svg
    assert "currentColor" in svg and "#000000" not in svg and "#ffffff" not in svg
    assert 'fill="currentColor"' in svg[: svg.index(">")]


def test_svg_is_well_formed_small_and_keeps_to_itself():
    svg = drawn().svg
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg") and root.get("viewBox")
    assert "DejaVu" not in svg and "Bitstream" not in svg  # a reader has other fonts
    assert "<style" not in svg and "<metadata" not in svg and "<!--" not in svg
    assert len(svg) < 12_000
    ids, used = set(re.findall(r' id="([^"]+)"', svg)), set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    assert ids == used and used
    assert ">loss, nats a word</text>" in svg


def test_the_same_figure_gives_the_same_bytes():
    assert drawn() == drawn()
    assert drawn() != drawn(label="cost")


def test_compacting_keeps_a_tenth_of_a_point_and_matrices():
    path, moved = '<path d="M 1.23456 -7.98765 L 3 4"/>', '<g transform="matrix(0.123456 0 0 1 2 3)"/>'
    small = plots.compact(f'<svg viewBox="0 0 10 10">{path}{moved}</svg>')
    assert 'd="M 1.2 -8 L 3 4"' in small and "matrix(0.123456" in small


# -------------------------------------------------------------------------------- text alternative


class Attributes(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.setdefault(tag, dict(attrs))


def test_alternative_arrives_escaped():
    alt = 'Cosines of "bank" & <river>\'s: 0.5 < 0.7.'
    bundle = drawn(alt)._repr_mimebundle_()
    found = Attributes(bundle["text/html"]).found
    assert found["svg"]["role"] == "img" and found["svg"]["aria-label"] == alt
    assert "river" not in found
    assert bundle["text/plain"].startswith(f"Figure: {alt}\n")


def test_names_of_words_are_escaped_in_the_picture():
    svg = drawn(label="<script>alert(1)</script> & co").svg
    assert "<script" not in svg and "&lt;script&gt;" in svg


def test_figure_is_closed():
    before = plt.get_fignums()
    drawn()
    assert plt.get_fignums() == before


def test_house_style_stays_in_its_block():
    before = plt.rcParams["axes.spines.top"], plt.rcParams["svg.fonttype"]
    drawn()
    assert (plt.rcParams["axes.spines.top"], plt.rcParams["svg.fonttype"]) == before


# ------------------------------------------------------------------------------------------- data


@pytest.mark.parametrize(
    "values, text",
    [
        ([1, 2, 3], "1 2 3"),
        (range(3), "0 1 2"),
        (0.123456, "0.1235"),
        ([12.3456, 0.001], "12.35 0.00"),
        (torch.tensor([0.5, -0.25], requires_grad=True), "0.5000 -0.2500"),
        (torch.tensor([0.5], dtype=torch.bfloat16), "0.5000"),
        (np.array([[1, 2], [3, 4]]), "[2×2] 1 2 3 4"),
        ([float("nan"), 2.0], "nan 2.000"),
        ([123456.7], "123500"),
        ([-0.00000001, 1.0], "0.000 1.000"),
        ([True, False], "1 0"),
        ([2e-9], "2.000e-09"),
        (torch.tensor([1e300, 2.0], dtype=torch.float64), "1.000e+300 2.000e+00"),
        (torch.tensor([1e-300], dtype=torch.float64), "1.000e-300"),
        (torch.tensor([0.5, 1e-300], dtype=torch.float64), "0.5000 0.0000"),
        (torch.tensor([float("inf"), 1.0], dtype=torch.float64), "inf 1.000"),
        (np.array([1.7e308]), "1.700e+308"),
    ],
)
def test_data_in_the_plain_text(values, text):
    assert str(drawn(data={"x": values})).splitlines()[1] == f"  x: {text}"


def test_a_changed_number_shows():
    many = np.linspace(0, 1, 400)
    for changed in (many * 1.01, many + 0.01, many[::-1]):
        assert str(drawn(data={"x": many})) != str(drawn(data={"x": changed}))
    assert "400 numbers, least 0.000, mean 0.500, greatest 1.000" in str(drawn(data={"x": many}))


@pytest.mark.parametrize("alt", ["", "  \n", "loss"])
def test_alternative_is_needed(alt):
    with pytest.raises(ValueError, match="alt: got .*expected a sentence"):
        drawn(alt)


@pytest.mark.parametrize(
    "error, match, change",
    [
        (TypeError, "alt: got NoneType", {"alt": None}),
        (ValueError, "data: got an empty", {"data": {}}),
        (TypeError, "data: got list", {"data": [1, 2]}),
        (ValueError, r"data\['x'\]: got no number", {"data": {"x": []}}),
        (TypeError, r"data\['x'\]: got .* expected numbers", {"data": {"x": ["river"]}}),
        (TypeError, r"data\['x'\]: got", {"data": {"x": None}}),
        (ValueError, r"data\['x'\]: got a list .*rows of one length", {"data": {"x": [[1, 2], [3]]}}),
        (ValueError, r"data\['x'\]: .*torch.stack", {"data": {"x": [torch.ones(2, requires_grad=True)] * 2}}),
    ],
)
def test_bad_input(error, match, change):
    before = plt.get_fignums()
    with pytest.raises(error, match=match):
        drawn(**change)
    assert plt.get_fignums() == before  # a rejected figure is closed too


def test_the_mean_of_huge_numbers():
    huge = torch.full((40,), 1e308, dtype=torch.float64)
    assert "mean 1.000e+308" in str(drawn(data={"x": huge}))


@pytest.mark.parametrize("name, value", [("width", 0), ("height", -1), ("width", float("nan")), ("width", "6")])
def test_a_figure_has_a_size(name, value):
    with pytest.raises(ValueError, match=f"{name}: got {value!r}, expected a number above 0"):
        plots.figure(**{name: value})


@pytest.mark.parametrize("name, value", [("rows", 0), ("columns", 1.5)])
def test_a_figure_has_panels(name, value):
    with pytest.raises(ValueError, match=f"{name}: got {value}, expected a whole number"):
        plots.figure(**{name: value})


@pytest.mark.parametrize(
    "title",
    [' d="1.23456"', ' id="x1"', "black is #000000", "font-family: sans-serif; x", ' transform="rotate(-0 1 2)" y'],
)
def test_compacting_leaves_text_alone(title):
    fig, axes = plots.figure()
    axes.set_title(title)
    svg = plots.show(fig, "An empty figure with a title.", {"x": [1]}).svg
    assert [e.text for e in ElementTree.fromstring(svg).iter() if e.text and e.text.strip() == title.strip()]


def test_not_a_figure():
    with pytest.raises(TypeError, match="fig: got int, expected a matplotlib Figure"):
        plots.show(3, "The loss falls with each epoch.", {"x": [1]})
