"""Drawings of cut words: what is drawn is what was given."""

import pytest
from lmcourse import drawings, plots


def written(ax) -> list[str]:
    return [text.get_text() for text in ax.texts if text.get_text()]


def test_boxes_hold_the_pieces_in_order():
    fig, ax = plots.figure()
    drawings.boxes(ax, {("low", "er"): 2, ("new", "est"): 6})
    assert written(ax) == ["2 ×", "low", "er", "6 ×", "new", "est"]
    assert len(ax.patches) == 4
    plots.show(fig, "Two words in pieces.", {"words": [2]})
    with pytest.raises(TypeError, match="words: got list, expected a Mapping"):
        drawings.boxes(ax, [("low",)])


def test_the_lattice_has_an_arrow_for_each_piece_that_fits():
    fig, ax = plots.figure()
    drawings.lattice(ax, "lower", {"l": 5, "low": 3, "er": 3, "lowe": 5, "xyz": 1}, ["low", "er"])
    assert {"l 5", "low 3", "er 3", "lowe 5", "0", "5"} <= set(written(ax)) and "xyz 1" not in written(ax)
    coloured = {t.get_text() for t in ax.texts if t.get_color() == plots.COLOURS["vermilion"]}
    assert coloured - {""} == {"low 3", "er 3"}
    plots.show(fig, "A lattice of pieces.", {"cost": [6]})


def test_a_step_says_what_stands_and_what_comes_next():
    words = {("l", "o", "w"): 5, ("lo", "w"): 2}
    found = drawings.merge_step(words, ("l", "o"), 9)
    assert found.alt == "19 symbols: l o w, lo w; next merge l·o."
    assert "pair counts: 5 5 2" in found.summary and "symbols: 19" in found.summary
    assert drawings.merge_step({("low",): 1}, None, 9).alt == "1 symbols: low; no next merge."
