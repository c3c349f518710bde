"""GloVe: counts against a count by loops, the loss and its gradient, the training, and what bad input gets."""

import subprocess
import sys

import pytest
import torch
from lmcourse import cooccurrence, glove
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
    monkeypatch.setattr(cooccurrence, "_CHUNK", chunk)
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


# ------------------------------------------------------------------------------------- training

CONFIG = glove.GloveConfig(width=D, epochs=3)


def table(left, right):
    """(w, w̃, b, b̃) out of the training's two tables."""
    return left[:, :D], right[:, :D], left[:, D], right[:, D + 1]


@pytest.mark.parametrize("slices", [1, 4, 1000])
def test_a_slice_has_the_plain_gradient_of_its_entries(problem, slices):
    (w, w_tilde, b, b_tilde), entries = problem
    one = torch.ones(V, 1).double()
    left, right = torch.cat([w, b[:, None], one], 1).float(), torch.cat([w_tilde, one, b_tilde[:, None]], 1).float()
    rows, columns, values = entries
    made = glove._slices(*entries, V, glove.GloveConfig(slices=slices, x_max=100.0))
    assert sum(len(s.order) for s in made) == len(values)
    numbers = sorted(set(((rows + columns) % slices).tolist()))
    for part, number in zip(made, numbers, strict=True):
        mine = (rows + columns) % slices == number
        plain = glove.glove_gradients(w, w_tilde, b, b_tilde, rows[mine], columns[mine], values[mine])
        loss = glove.glove_loss(w, w_tilde, b, b_tilde, rows[mine], columns[mine], values[mine])
        *gradients, its_loss = part.gradients(left, right)
        for fast, right_one in zip(table(*gradients), plain, strict=True):
            torch.testing.assert_close(fast.double(), right_one, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(its_loss.double(), loss, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(gradients[0][:, :D].double(), plain[1], atol=1e-4), "w and w̃ exchanged"
        assert not gradients[0][:, -1].any() and not gradients[1][:, -2].any(), "the ones stay ones"


@pytest.fixture
def planted(generator):
    """All V² entries of an X whose logarithm is exactly biases and an inner product of width 3."""
    draw = lambda *s: 2 * torch.rand(*s, generator=generator, dtype=torch.float64) - 1  # noqa: E731
    log_x = draw(V, 3) @ draw(V, 3).T + draw(V, 1) + draw(V)
    rows, columns = torch.cartesian_prod(torch.arange(V), torch.arange(V)).T
    return rows, columns, torch.exp(log_x).flatten()


def test_training_finds_a_planted_fit(planted, vocabulary, generator):
    rows, columns, values = planted
    config = glove.GloveConfig(width=8, epochs=300, x_max=1.0, slices=4)
    model = glove.train_glove(planted, vocabulary, config, generator)
    fit = (model.w @ model.w_tilde.T + model.b[:, None] + model.b_tilde).flatten()
    assert (fit - torch.log(values)).abs().max() < 0.1
    assert (fit + torch.log(values)).abs().max() > 1, "the residual's other sign"
    assert len(model.losses) == 300 and model.losses[-1] < 1e-4 * model.losses[0]


def test_losses_are_means_over_entries(planted, vocabulary, generator):
    config = glove.GloveConfig(width=D, epochs=1, slices=1, x_max=100.0)  # one step: the loss is that of the start
    model = glove.train_glove(planted, vocabulary, config, torch.Generator().manual_seed(5))
    start = table(*glove._initial_tables(V, D, torch.Generator().manual_seed(5), "cpu"))
    plain = glove.glove_loss(*(t.double() for t in start), *planted)
    assert model.losses == pytest.approx([float(plain) / V**2], rel=1e-5)
    assert model.losses != pytest.approx([float(plain)], rel=1e-2)


def same(a, b):
    return all(torch.equal(getattr(a, n), getattr(b, n)) for n in ("w", "w_tilde", "b", "b_tilde"))


def test_the_seed_alone_decides(stream, vocabulary):
    entries = glove.cooccurrences(stream, vocabulary)

    def train(seed):
        return glove.train_glove(entries, vocabulary, CONFIG, torch.Generator().manual_seed(seed))

    first, threads = train(1), torch.get_num_threads()
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            assert same(train(1), first)
    finally:
        torch.set_num_threads(threads)
    assert not same(train(2), first)


def test_the_order_of_the_entries_does_not_matter(stream, vocabulary, generator):
    entries = glove.cooccurrences(stream, vocabulary)
    order = torch.randperm(len(entries[0]), generator=generator)
    shuffled = tuple(x[order] for x in entries)
    a, b = (glove.train_glove(e, vocabulary, CONFIG, torch.Generator().manual_seed(1)) for e in (entries, shuffled))
    torch.testing.assert_close(a.w, b.w, rtol=1e-3, atol=1e-5)
    assert (a.w - b.w_tilde).abs().max() > 1e-2


def test_training_warns_of_nothing():
    """In a process of its own: torch says only once that sparse matrices are in beta."""
    code = """if True:
        import sys, torch
        from lmcourse import data, glove
        vocabulary = data.Vocabulary(("a", "b"))
        entries = glove.cooccurrences(torch.tensor([0, 1, 2]), vocabulary)
        if sys.argv[1] == "slices":
            glove._slices(*entries, 2, glove.GloveConfig())
        else:
            glove.train_glove(entries, vocabulary, glove.GloveConfig(), torch.Generator())
    """
    command = [sys.executable, "-W", "error", "-c", code]
    run = lambda what: subprocess.run([*command, what], capture_output=True)  # noqa: E731
    assert run("train").returncode == 0
    assert b"beta" in run("slices").stderr, "torch no longer warns: the filter in train_glove can go"


def test_word_vectors_are_the_sum_of_both_tables(stream, vocabulary, generator):
    model = glove.train_glove(glove.cooccurrences(stream, vocabulary), vocabulary, CONFIG, generator)
    assert torch.equal(model.word_vectors(vocabulary)["w4"], model.w[4] + model.w_tilde[4])
    assert model.w.shape == model.w_tilde.shape == (V, D) and model.b.shape == model.b_tilde.shape == (V,)


def test_a_word_without_entries_keeps_its_start(vocabulary, generator):
    entries = glove.cooccurrences(torch.tensor([0, 1, V, 2]), vocabulary)
    model = glove.train_glove(entries, vocabulary, CONFIG, torch.Generator().manual_seed(5))
    start = glove._initial_tables(V, D, torch.Generator().manual_seed(5), "cpu")[0][:, :D]
    assert torch.equal(model.w[2:], start[2:]) and not torch.equal(model.w[:2], start[:2])


def test_training_is_silent_and_reports_its_progress(stream, vocabulary, generator, capfd):
    told = []
    entries = glove.cooccurrences(stream, vocabulary)
    glove.train_glove(entries, vocabulary, CONFIG, generator, progress=told.append)
    assert told == sorted(told) and told[-1] == pytest.approx(1) and len(told) > 3
    assert capfd.readouterr() == ("", "")
    glove.train_glove(entries, vocabulary, CONFIG, generator, progress=True)
    assert "100%" in capfd.readouterr().err


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
        ("values", lambda x: x.index_fill(0, torch.tensor([3]), 0.0), "values: got 0.0 .*leave zeros out"),
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


@pytest.mark.parametrize(
    "name, value",
    [("width", 0), ("epochs", 2.5), ("slices", True), ("x_max", 0), ("x_max", -100.0), ("power", 0)]
    + [("learning_rate", float("nan"))],
)
def test_bad_settings_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name}: got {value}, expected"):
        glove.GloveConfig(**{name: value})


def test_what_cannot_be_trained_is_named(stream, vocabulary, generator):
    entries = rows, columns, values = glove.cooccurrences(stream, vocabulary)
    train = lambda *e, config=CONFIG, g=generator: glove.train_glove(e, vocabulary, config, g)  # noqa: E731
    with pytest.raises(ValueError, match="values: got no entry.*two known words"):
        train(*glove.cooccurrences(torch.tensor([1, V, 2]), vocabulary))
    with pytest.raises(ValueError, match="values: got -"):
        train(rows, columns, -values)
    with pytest.raises(ValueError, match="rows, columns, values: got shapes"):
        train(rows, columns[1:], values)
    with pytest.raises(ValueError, match="columns: got ids from 1 to 30, expected 0 to 29"):
        train(rows, columns + 1, values)
    for wrong in (0, None):
        with pytest.raises(TypeError, match=r"generator: got .*device.seed\(0\)"):
            train(*entries, g=wrong)
    with pytest.raises(ValueError, match="learning_rate: training diverged at 1e\\+30; lower it"):
        train(*entries, config=glove.GloveConfig(width=D, learning_rate=1e30))


def test_float32_tables_meet_float64_values(problem):
    parameters, entries = problem
    small = [p.float() for p in parameters]
    for ours, right in zip(glove.glove_gradients(*small, *entries), glove.glove_gradients(*parameters, *entries)):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), right, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("learning_rate", [10.0, 1e3, 1e9])
def test_finite_divergence_is_said(stream, vocabulary, generator, learning_rate):
    config = glove.GloveConfig(width=D, learning_rate=learning_rate)
    with pytest.raises(ValueError, match="learning_rate: training diverged at .*lower it"):
        glove.train_glove(glove.cooccurrences(stream, vocabulary), vocabulary, config, generator)


def test_counts_that_zeros_fit_already_are_no_divergence(vocabulary, generator):
    rows, columns = torch.cartesian_prod(torch.arange(V), torch.arange(V)).T
    model = glove.train_glove((rows, columns, torch.ones(V * V)), vocabulary, CONFIG, generator)
    assert model.losses[-1] < 0.1


@pytest.mark.parametrize("window", [2**26 + 1, 10**12])
def test_a_window_beyond_the_text_changes_nothing(stream, vocabulary, window):
    for ours, right in zip(glove.cooccurrences(stream, vocabulary, window), glove.cooccurrences(stream, vocabulary, 50)):
        assert torch.equal(ours, right)


@pytest.mark.parametrize(
    "change, error, match",
    [
        (lambda r, c, x: (r, c), TypeError, "entries: got .* expected three tensors"),
        (lambda r, c, x: r[:3], TypeError, r"entries: got torch.int64 \[3\]"),
        (lambda r, c, x: None, TypeError, "entries: got NoneType"),
        (lambda r, c, x: (r.tolist(), c, x), TypeError, "entries: got .'list'"),
        (lambda r, c, x: (r.double(), c, x), TypeError, "rows: got torch.float64"),
        (lambda r, c, x: (r, c.int(), x), TypeError, "columns: got torch.int32"),
        (lambda r, c, x: (r, c, x > 0), TypeError, "values: got torch.bool"),
        (lambda r, c, x: (r, c, x.index_fill(0, r[:1], float("inf"))), ValueError, "values: got inf among them"),
    ],
)
def test_entries_of_another_kind(stream, vocabulary, generator, change, error, match):
    entries = change(*glove.cooccurrences(stream, vocabulary))
    with pytest.raises(error, match=match):
        glove.train_glove(entries, vocabulary, CONFIG, generator)


@pytest.mark.parametrize(
    "name, value",
    [("config", glove.GloveConfig), ("config", {}), ("config", "fast"), ("vocabulary", ["a"]), ("progress", "no")],
)
def test_arguments_of_another_type(stream, vocabulary, generator, name, value):
    entries = glove.cooccurrences(stream, vocabulary)
    good = {"entries": entries, "vocabulary": vocabulary, "config": CONFIG, "generator": generator}
    with pytest.raises(TypeError, match=f"{name}: got .*expected"):
        glove.train_glove(**good | {name: value})
    with pytest.raises(TypeError, match="vocabulary: got list"):
        glove.cooccurrences(stream, ["a"])


@pytest.mark.parametrize(
    "name, value",
    [("slices", 10**12), ("width", None), ("epochs", "3"), ("x_max", "10"), ("power", None), ("learning_rate", True)]
    + [("learning_rate", 1e300), ("learning_rate", 1e-300)],
)
def test_settings_of_another_type_or_size(name, value):
    with pytest.raises((ValueError, TypeError), match=f"{name}: got .*expected"):
        glove.GloveConfig(**{name: value})


# ------------------------------------------------------------------------------- vectors from counts alone


def dense_pmi(entries, power):
    x = torch.zeros(V, V).double()
    x[entries[0], entries[1]] = entries[2].double()
    q = x.sum(0) ** power / (x.sum(0) ** power).sum()
    return torch.log(x / (x.sum(1, keepdim=True) * q)).nan_to_num(neginf=0.0).clamp_min(0)


@pytest.mark.parametrize("power", [0.75, 1.0])
def test_ppmi_vectors_are_the_singular_vectors_of_the_dense_table(stream, vocabulary, generator, power):
    entries = glove.cooccurrences(stream, vocabulary, window=3)
    ours = cooccurrence.ppmi_vectors(entries, vocabulary, 20, generator, power).vectors.double()  # 20 + 10 = V: exact
    left, values, _ = torch.linalg.svd(dense_pmi(entries, power))
    exact = left[:, :20] * values[:20].sqrt()
    assert torch.allclose(ours @ ours.T, exact @ exact.T, atol=1e-3)  # free of the signs
    other = left[:, :20] * values[:20]
    assert not torch.allclose(ours @ ours.T, other @ other.T, atol=0.1)


def test_ppmi_vectors_do_not_depend_on_the_order_of_entries(stream, vocabulary):
    entries = glove.cooccurrences(stream, vocabulary, window=3)
    order = torch.randperm(len(entries[0]), generator=torch.Generator().manual_seed(0))
    make = lambda e: cooccurrence.ppmi_vectors(e, vocabulary, 4, torch.Generator().manual_seed(0)).vectors  # noqa: E731
    assert torch.allclose(make(entries), make(tuple(t[order] for t in entries)), atol=1e-4)


def test_ppmi_vectors_refuse_what_they_cannot_decompose(stream, vocabulary, generator):
    entries = glove.cooccurrences(stream, vocabulary, window=3)
    with pytest.raises(ValueError, match="width: got 31"):
        cooccurrence.ppmi_vectors(entries, vocabulary, 31, generator)
    two = Vocabulary(("a", "b"))
    flat = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]), torch.ones(4).double()
    with pytest.raises(ValueError, match="entries: no pair is more frequent than by chance"):
        cooccurrence.ppmi_vectors(flat, two, 1, generator, 1.0)
