"""GloVe: counts against a count by loops, the loss and its gradient, and what bad input gets."""

import pytest
import torch
from lmcourse import glove
from lmcourse.data import Vocabulary

V, D = 30, 7


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(1)


@pytest.fixture
def vocabulary():
    return Vocabulary(tuple(f"w{i}" for i in range(V)))


@pytest.fixture
def stream(generator):
    """Sentences of 1 to 40 words, some of one word only, one of the same word throughout, one empty."""
    words = [torch.randint(0, V, (n,), generator=generator) for n in (40, 1, 2, 0, 33, 1, 5, 40)]
    words.insert(3, torch.full((6,), 4))
    return torch.cat([x for w in words for x in (w, torch.tensor([V]))])


def by_loops(stream, window, across=False, both=True):
    """[V, V] float64: every word against the words around it, its own sentence only."""
    x, ids = torch.zeros(V, V, dtype=torch.float64), stream.tolist()
    for t, centre in enumerate(ids):
        for d in range(1, window + 1):
            for s in (t - d, t + d) if both else (t - d,):
                between = ids[min(s, t) : max(s, t) + 1]
                if 0 <= s < len(ids) and centre != V and ids[s] != V and (across or V not in between):
                    x[centre, ids[s]] += 1 / d
    return x


def dense(entries):
    rows, columns, values = entries
    return torch.zeros(V, V, dtype=torch.float64).index_put_((rows, columns), values, accumulate=True)


# ---------------------------------------------------------------------------------------- counts


@pytest.mark.parametrize("window", [1, 2, 3, 10, 200])
@pytest.mark.parametrize("chunk", [1, 7, 1 << 19])
def test_counts_equal_those_by_loops(stream, vocabulary, window, chunk, monkeypatch):
    monkeypatch.setattr(glove, "_CHUNK", chunk)
    rows, columns, values = glove.cooccurrences(stream, vocabulary, window)
    torch.testing.assert_close(dense((rows, columns, values)), by_loops(stream, window), rtol=1e-13, atol=0)
    assert (torch.diff(rows * V + columns) > 0).all(), "each entry once, sorted"
    assert (values > 0).all()


def test_the_count_is_symmetric_and_keeps_within_sentences(stream, vocabulary):
    x = dense(glove.cooccurrences(stream, vocabulary, 10))
    assert torch.equal(x, x.T)
    assert not torch.allclose(x, by_loops(stream, 10, across=True))
    assert not torch.allclose(x, by_loops(stream, 10, both=False))


def test_hand_value(vocabulary):
    rows, columns, values = glove.cooccurrences(torch.tensor([0, 1, 0, 2, V, 3, V]), vocabulary, window=3)
    assert rows.tolist() == [0, 0, 0, 1, 1, 2, 2] and columns.tolist() == [0, 1, 2, 0, 2, 0, 1]
    torch.testing.assert_close(values, torch.tensor([2 / 2, 2, 1 + 1 / 3, 2, 1 / 2, 4 / 3, 1 / 2]).double())


@pytest.mark.parametrize("ids", [[], [V], [3], [3, V, 4, V], [V, V, V]])
def test_text_without_a_pair_has_no_entries(vocabulary, ids):
    entries = glove.cooccurrences(torch.tensor(ids, dtype=torch.int64), vocabulary, window=10)
    assert [x.shape for x in entries] == [(0,)] * 3
    assert [x.dtype for x in entries] == [torch.int64, torch.int64, torch.float64]


# ------------------------------------------------------------------------------- loss and gradient


@pytest.fixture
def problem(generator):
    draw = lambda *s: torch.rand(*s, generator=generator, dtype=torch.float64) - 0.5  # noqa: E731
    keys = torch.randperm(V * V, generator=generator)[:200]
    values = 300 * torch.rand(200, generator=generator, dtype=torch.float64) ** 3 + 1e-3  # below and above x_max
    return (draw(V, D), draw(V, D), draw(V), draw(V)), (keys // V, keys % V, values)


@pytest.mark.parametrize("x_max, power", [(100.0, 0.75), (10.0, 0.5)])
def test_gradients_equal_autograd(problem, x_max, power):
    parameters, entries = problem
    ours = glove.glove_gradients(*parameters, *entries, x_max, power)
    leaves = [p.clone().requires_grad_() for p in parameters]
    theirs = torch.autograd.grad(glove.glove_loss(*leaves, *entries, x_max, power), leaves)
    for mine, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-12, atol=1e-12)
        assert not torch.allclose(mine / 2, right)  # the C code's, whose loss is half of this one
    assert not torch.allclose(ours[0], theirs[1]) and not torch.allclose(ours[2], theirs[3])


def test_gradient_is_zero_at_an_exact_fit_and_nowhere_near_it_with_the_other_sign(problem):
    """The mistake that others shipped: a residual that adds log X."""
    (w, w_tilde, b, b_tilde), (rows, columns, _) = problem
    fit = (w[rows] * w_tilde[columns]).sum(1) + b[rows] + b_tilde[columns]
    right, wrong = ((w, w_tilde, b, b_tilde, rows, columns, torch.exp(s * fit)) for s in (1, -1))
    assert glove.glove_loss(*right) < 1e-25
    assert all(g.abs().max() < 1e-13 for g in glove.glove_gradients(*right))
    # −fit is where w·w̃ + b + b̃ + log X would be zero: not a minimum of the loss.
    assert glove.glove_loss(*wrong) > 1
    assert all(g.abs().max() > 0.1 for g in glove.glove_gradients(*wrong))


def test_weight_by_hand():
    x = torch.tensor([1e-9, 100 / 16, 100.0, 101.0, 1e9], dtype=torch.float64)
    right = torch.tensor([1e-11**0.75, 1 / 8, 1, 1, 1], dtype=torch.float64)
    torch.testing.assert_close(glove.glove_weight(x), right)
    assert not torch.allclose((x / 100) ** 0.75, right) and not torch.allclose((x / 100).clamp(max=1), right)


# -------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("x_max", [0, -1.0, float("inf"), float("nan")])
def test_x_max_must_be_above_zero(problem, x_max):
    parameters, entries = problem
    for call in (glove.glove_loss, glove.glove_gradients):
        with pytest.raises(ValueError, match="x_max: got .* above 0"):
            call(*parameters, *entries, x_max)


def changed(problem, name, change):
    names = ("w", "w_tilde", "b", "b_tilde", "rows", "columns", "values")
    arguments = dict(zip(names, (*problem[0], *problem[1]), strict=True))
    arguments[name] = change(arguments[name])
    return arguments


@pytest.mark.parametrize(
    "name, change, message",
    [
        ("values", lambda x: x.index_fill(0, torch.tensor([3]), 0.0), "values: got 0.0 .*leave the zeros out"),
        ("values", lambda x: -x, "values: got -.*above 0"),
        ("values", lambda x: x * float("nan"), "values: got nan"),
        ("values", lambda x: x[1:], r"rows, columns, values: got shapes \[200\], \[200\], \[199\]"),
        ("rows", lambda x: x + V, "rows: got ids .* expected 0 to 29"),
        ("columns", lambda x: x - V, "columns: got ids .* expected 0 to 29"),
        ("w", lambda x: x[:, 1:], r"w, w_tilde: got shapes \[30, 6\], \[30, 7\]"),
        ("b", lambda x: x[1:], r"b: got shape \[29\], expected \[30\]"),
        ("b_tilde", lambda x: x[:, None], r"b_tilde: got shape \[30, 1\], expected \[30\]"),
    ],
)
def test_bad_entries_are_named(problem, name, change, message):
    for call in (glove.glove_loss, glove.glove_gradients):
        with pytest.raises(ValueError, match=message):
            call(**changed(problem, name, change))


def test_no_entries_at_all(problem):
    none = torch.empty(0, dtype=torch.int64)
    with pytest.raises(ValueError, match="values: got no entry.*two known words"):
        glove.glove_loss(*problem[0], none, none, none.double())


def test_bad_streams_are_named(stream, vocabulary):
    with pytest.raises(TypeError, match=r"stream: got list, .*vocabulary.stream"):
        glove.cooccurrences(stream.tolist(), vocabulary)
    with pytest.raises(TypeError, match=r"stream: got torch.float32 \[\d+\]"):
        glove.cooccurrences(stream.float(), vocabulary)
    with pytest.raises(ValueError, match=r"stream: got ids from 0 to 31, expected 0 to 30"):
        glove.cooccurrences(torch.tensor([0, V + 1]), vocabulary)
    for window in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="window: got .*whole number"):
            glove.cooccurrences(stream, vocabulary, window)
