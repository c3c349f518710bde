"""Skip-gram: the fast form against the plain one, the training, and what bad input gets."""

import math
import threading

import pytest
import torch
from lmcourse import embeddings as emb
from lmcourse import _inputs, descent, glove, skipgram, tiles
from lmcourse.data import Vocabulary

V, W, K, D = 30, 3, 5, 7  # words, window, negatives' weight, width
PLAN = tiles.Plan(W, K, shared=4, groups=1)
ONE = torch.ones(1)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(1)


@pytest.fixture
def stream(generator):
    """Sentences of 1 to 40 words, some of one word only, 250 words in all: one step and some padding."""
    lengths = [40, 1, 2, 33, 1, 1, 40, 5, 40, 40, 17, 30]
    words = [torch.randint(0, V, (n,), generator=generator) for n in lengths]
    return torch.cat([x for w in words for x in (w, torch.tensor([V]))])


@pytest.fixture
def noise(stream):
    return emb.noise_distribution(torch.bincount(stream[stream != V], minlength=V)).cumsum(0)


@pytest.fixture
def vocabulary():
    return Vocabulary(tuple(f"w{i}" for i in range(V)))


def drawn_pairs(stream, seed, centre_stream=None):
    """[P, 3] (centre's place among the words, centre, context), by loops, from the generator's own draws."""
    generator = torch.Generator().manual_seed(seed)
    torch.rand(int((stream != V).sum()), generator=generator)  # subsampling's draws, without effect where all is kept
    windows = torch.randint(1, W + 1, (int((stream != V).sum()),), generator=generator).tolist()
    ids, centres = stream.tolist(), (stream if centre_stream is None else centre_stream).tolist()
    pairs, place = [], 0
    for t, word in enumerate(ids):
        if word == V:
            continue
        for step in (-1, 1):
            for d in range(1, windows[place] + 1):
                if not 0 <= t + step * d < len(ids) or ids[t + step * d] == V:
                    break
                pairs.append((place, centres[t], ids[t + step * d]))
        place += 1
    return torch.tensor(pairs)


def draw(stream, noise, seed, centre_stream=None):
    centre_stream = stream if centre_stream is None else centre_stream
    text = tiles.Text.from_stream(stream, centre_stream, torch.ones(V))
    return tiles.draw_epoch(text, noise, PLAN, torch.Generator().manual_seed(seed))


def tables(generator, centres=V):
    return tuple(torch.rand(n, D, generator=generator, dtype=torch.float64) - 0.5 for n in (centres, V))


def plain_sum(v, u, pairs, negatives, weight):
    """The plain gradients summed over pairs; ``negatives`` [groups, S], the pair's group by its centre's place."""
    own = negatives[pairs[:, 0] // PLAN.group]
    gradients = emb.negative_sampling_gradients(v, u, pairs[:, 1], pairs[:, 2], own, weight)
    return [g * len(pairs) for g in gradients]


def block_sum(v, u, epoch, scale=1.0):
    """The fast gradients of all blocks, added up by row."""
    block, grad_v, grad_u = tiles.BlockGradient(v, u, PLAN), torch.zeros_like(v), torch.zeros_like(u)
    weights = (epoch.pairs.double() * K / PLAN.shared).view(-1, 1, PLAN.group, 1)
    for i in range(len(epoch.words)):
        block.gradients(epoch.words[i], epoch.centres[i], epoch.masks[i], weights[i], epoch.negatives[i], scale)
        grad_v.index_add_(0, epoch.centres[i], block.grad_v)
        grad_u.index_add_(0, epoch.tiles[i].flatten(), block.grad_u).index_add_(0, epoch.negatives[i], block.grad_n)
    return grad_v, grad_u


def far(a, b):
    return max(float((x - y).abs().max()) for x, y in zip(a, b))


# ------------------------------------------------------------------------------- the fast form is exact


def test_blocks_give_the_sum_of_the_plain_gradients(stream, noise, generator):
    epoch, (v, u), pairs = draw(stream, noise, 5), tables(generator), drawn_pairs(stream, 5)
    negatives, fast = epoch.negatives.view(-1, PLAN.shared), block_sum(v, u, epoch)
    assert far(fast, plain_sum(v, u, pairs, negatives, K / PLAN.shared)) < 1e-10
    # Wrong variants: negatives that weigh 1 each, another group's negatives, a pair left out, other windows.
    assert far(fast, plain_sum(v, u, pairs, negatives, 1.0)) > 0.1
    assert far(fast, plain_sum(v, u, pairs, negatives.roll(1, 0), K / PLAN.shared)) > 0.1
    assert far(fast, plain_sum(v, u, pairs[1:], negatives, K / PLAN.shared)) > 1e-3
    assert far(fast, plain_sum(v, u, drawn_pairs(stream, 6), negatives, K / PLAN.shared)) > 0.1
    assert far([-2 * g for g in fast], block_sum(v, u, epoch, scale=-2.0)) < 1e-10


def test_centres_may_have_ids_of_their_own(stream, noise, generator):
    merged = torch.where(stream == 3, 4, stream)
    merged[stream == 5] = V + 2  # a pseudo-word beyond the vocabulary
    epoch, (v, u) = draw(stream, noise, 5, merged), tables(generator, V + 3)
    negatives = epoch.negatives.view(-1, PLAN.shared)
    right = plain_sum(v, u, drawn_pairs(stream, 5, merged), negatives, K / PLAN.shared)
    assert far(block_sum(v, u, epoch), right) < 1e-10
    assert right[0][3].abs().max() == 0 and right[1][3].abs().max() > 0  # merged on the input side only
    assert far(block_sum(v, u, draw(stream, noise, 5)), right) > 0.1


def test_every_pair_is_counted_once_and_none_crosses_a_boundary(stream, noise):
    epoch, table = draw(stream, noise, 2), PLAN.masks(ONE)
    found = []
    for i in range(len(epoch.words)):
        for n in range(PLAN.block):
            row, first = table[epoch.masks[i, n]], n // PLAN.tile * PLAN.tile
            assert row.sum() == epoch.pairs[i, n]
            for column in row.nonzero().flatten().tolist():
                place = i * PLAN.block + n
                found.append((place, int(epoch.centres[i, n]), int(epoch.words[i, first + column])))
    assert sorted(found) == sorted(map(tuple, drawn_pairs(stream, 2).tolist()))
    full = emb.skipgram_pairs(stream, V, W).tolist()
    assert {tuple(p[1:]) for p in found} <= set(map(tuple, full))


def test_windows_are_uniform(generator):
    """Of a long sentence's pairs at distance d, the share (W − d + 1)/W is kept: (W + 1) pairs a word."""
    n = 30000
    left, right = tiles.reaches(torch.zeros(n, dtype=torch.int64), W, generator)
    for d in range(1, W + 1):
        share, expected = float((right >= d).float().mean()), (W - d + 1) / W
        assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / n) + W / n
    assert abs(float((left + right).float().mean()) - (W + 1)) < 0.05
    assert left[0] == 0 and right[-1] == 0


def test_negatives_follow_the_noise_and_keep_true_contexts(stream, generator):
    probability = torch.tensor([0.7, 0.2, 0.1, 0.0], dtype=torch.float64)
    plan, text = tiles.Plan(W, K), torch.zeros(200000, dtype=torch.int64)
    epoch = tiles.draw_epoch(tiles.Text.from_stream(text, text, torch.ones(4)), probability.cumsum(0), plan, generator)
    share = torch.bincount(epoch.negatives.flatten(), minlength=4) / epoch.negatives.numel()
    assert torch.allclose(share.double(), probability, atol=5 * math.sqrt(0.25 / epoch.negatives.numel()))
    assert (epoch.negatives == 0).any()  # word 0 is the only true context there is, and it is drawn all the same


def test_frequent_words_are_dropped_before_windows_are_drawn(noise, generator):
    text = torch.arange(20000) % 2  # 0 1 0 1 …
    keep = torch.cat([torch.tensor([0.25, 1.0]), torch.ones(V - 2)])
    epoch = tiles.draw_epoch(tiles.Text.from_stream(text, text, keep), noise, PLAN, generator)
    words = epoch.centres.flatten()[epoch.pairs.flatten() > 0]
    assert abs(int((words == 0).sum()) - 2500) < 5 * math.sqrt(10000 * 0.25 * 0.75)
    assert int((words == 1).sum()) == 10000
    assert float(epoch.pairs.sum()) / len(words) == pytest.approx(W + 1, abs=0.1)  # gaps are closed


def paces(epoch, first, expected, most):
    """[2, V] the share of the learning rate that the rows of v and u keep in the step of two blocks."""
    usual = expected.clamp(min=most)
    entries = [ids[first : first + 2].flatten() for ids in (epoch.centres, epoch.tiles)]
    each = torch.tensor([(W + 1) * (1 + K), (W + 1) * PLAN.tile / PLAN.span], dtype=torch.float64)
    pairs = each[:, None] * torch.stack([torch.bincount(ids, minlength=V) for ids in entries])
    return ((most / usual) * (descent.BURST * usual / pairs).clamp(max=1))[:, :, None]


def test_a_step_changes_both_tables_at_once_and_crowded_rows_less(stream, noise, generator, monkeypatch):
    monkeypatch.setattr(descent, "BURST", 1.5)
    epoch, (v, u), pairs = draw(stream, noise, 5), tables(generator), drawn_pairs(stream, 5)
    negatives, weight = epoch.negatives.view(-1, PLAN.shared), K / PLAN.shared
    expected = 100 * torch.rand(2, V, generator=generator, dtype=torch.float64)  # STRIDE / rate is 10
    assert 0 < (expected > 10).sum() < 2 * V  # some rows have spare rows, some have not
    assert len(epoch.words) % 2 == 0
    expected_v, expected_u, bursts = v.clone(), u.clone(), []
    for first in range(0, len(epoch.words), 2):  # a step is two blocks
        inside, pace = pairs[:, 0] // (2 * PLAN.block) == first // 2, paces(epoch, first, expected, 10)
        bursts.append((pace[:, :, 0] < 0.99 * (10 / expected).clamp(max=1)))
        grad_v, grad_u = plain_sum(expected_v, expected_u, pairs[inside], negatives, weight)
        expected_v, expected_u = expected_v - 0.1 * pace[0] * grad_v, expected_u - 0.1 * pace[1] * grad_u
    bursts = torch.stack(bursts)
    assert bursts[:, expected > 10].any() and bursts[:, expected <= 10].any() and not bursts.all()
    before, (v, u) = (v, u), (descent.Table(t, n, 0.1) for t, n in zip((v, u), expected))
    blocks = [tiles.BlockGradient(v.values, u.values, PLAN) for _ in range(2)]
    loss = descent.train_epoch(epoch, blocks, v, u, lambda done: 0.1, lambda done: None)
    assert far((v.values, u.values), (expected_v, expected_u)) < 1e-10
    assert far((v.values, u.values), before) > 0.1
    block = pairs[pairs[:, 0] < PLAN.block]  # the loss is taken from the first block
    own = negatives[block[:, 0] // PLAN.group]
    assert loss == pytest.approx(float(emb.negative_sampling_loss(*before, block[:, 1], block[:, 2], own, weight)))


def test_a_word_of_one_chapter_does_not_run_away(generator):
    """Rare in the text, in every second place of one stretch: the stride of that step must be shortened."""
    words = [f"w{i}" for i in range(200)]
    ids = torch.randint(0, 200, (60_000,), generator=generator)
    ids[ids == 7] = 8
    ids[30_000:30_400:2] = 7
    vocabulary = Vocabulary(tuple(words), torch.bincount(ids, minlength=200))
    config = emb.SkipGramConfig(width=20, epochs=2, subsample=0.0)
    model = emb.train_negative_sampling(torch.cat([ids, torch.tensor([200])]), vocabulary, config, generator)
    assert model.v.norm(dim=1).max() < 10 and model.u.norm(dim=1).max() < 10


def test_expected_pairs_are_those_of_a_step(generator):
    """Counted in one epoch of one long sentence; its last step is padded, hence the average over whole steps."""
    plan, q = tiles.Plan(5, 4), torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    text = torch.multinomial(torch.tensor([0.7, 0.2, 0.1]), 100 * 2 * plan.block, True, generator=generator)
    counts, steps = torch.bincount(text).double(), 100
    n_v, n_u = descent.expected_pairs(counts, counts, q.cumsum(0), plan)
    epoch = tiles.draw_epoch(tiles.Text.from_stream(text, text, torch.ones(3)), q.cumsum(0), plan, generator)
    seen = torch.bincount(epoch.centres.flatten(), epoch.pairs.flatten().double()) / steps
    drawn = torch.bincount(epoch.negatives.flatten()).double() / epoch.negatives.numel() * seen.sum()
    assert torch.allclose(n_v, (1 + 4) * seen, rtol=0.02)
    assert torch.allclose(n_u, seen + 4 * drawn, rtol=0.02)
    assert not torch.allclose(n_u, seen + drawn, rtol=0.1)


# ------------------------------------------------------------------------------------------ plain forms


def test_pairs_by_hand():
    stream = torch.tensor([0, 1, 2, 9, 3, 9, 9, 4, 5])
    expected = [(0, 1), (1, 0), (1, 2), (2, 1), (4, 5), (5, 4)]
    assert emb.skipgram_pairs(stream, 9, 1).tolist() == [list(p) for p in expected]
    wide = emb.skipgram_pairs(stream, 9, 8)
    assert sorted(map(tuple, wide.tolist())) == sorted(expected + [(0, 2), (2, 0)])
    assert emb.skipgram_pairs(torch.tensor([9, 1, 9]), 9, 2).shape == (0, 2)
    assert emb.pair_counts(wide, 6, 6).sum() == 8 and emb.pair_counts(wide, 6, 6)[1, 0] == 1


def test_subsampling_rule():
    """Kept whole up to f = 2.618 t, the square of the golden ratio; beyond it (√(f/t) + 1) t/f."""
    counts = torch.tensor([4000, 900, 262, 261, 100, 1])
    t = 100 / int(counts.sum())  # so that f/t is count/100
    keep = emb.keep_probability(counts, t)
    assert keep.tolist() == pytest.approx([(math.sqrt(40) + 1) / 40, 4 / 9, (math.sqrt(2.62) + 1) / 2.62, 1, 1, 1])
    assert keep[2] < 1
    paper = torch.sqrt(100 / counts.double()).clamp(max=1)
    assert (keep - paper).abs().max() > 0.02
    assert emb.keep_probability(counts, 0).tolist() == [1] * 6


def test_softmax_step_is_the_plain_gradient(stream, generator):
    (v, u), pairs = tables(generator), emb.skipgram_pairs(stream, V, W)[::3]
    loss, *gradients = emb._softmax_step(v, u, emb.pair_counts(pairs, V, V).double())
    assert loss == pytest.approx(float(emb.softmax_loss(v, u, *pairs.T)))
    assert far(gradients, emb.softmax_gradients(v, u, *pairs.T)) < 1e-12
    assert far(gradients, emb.softmax_gradients(v, u, *pairs.T.flip(0))) > 1e-4  # centre and context exchanged


# --------------------------------------------------------------------------------------------- training


@pytest.fixture
def topics(generator):
    """6,000 sentences of 8 words, all from words 0–14 or all from words 15–29, more often from the first ones."""
    weights = 1 / torch.arange(1.0, 16)
    words = torch.multinomial(weights, 6000 * 8, replacement=True, generator=generator).view(6000, 8)
    words += 15 * torch.randint(0, 2, (6000, 1), generator=generator)
    return torch.nn.functional.pad(words, (0, 1), value=V).flatten()


def test_training_learns_the_topics(topics, vocabulary, generator):
    config = emb.SkipGramConfig(width=8, window=W, epochs=6, subsample=0)
    model = emb.train_negative_sampling(topics, vocabulary, config, generator)
    start = (1 + config.negatives) * math.log(2)
    assert start > model.losses[0] > model.losses[1] and model.losses[-1] < 0.95 * model.losses[0]
    vectors = torch.nn.functional.normalize(model.word_vectors(vocabulary).vectors)
    same = torch.arange(V)[:, None] // 15 == torch.arange(V) // 15
    cosine = vectors @ vectors.T
    assert cosine[same].mean() > cosine[~same].mean() + 0.5


def test_the_result_depends_on_the_seed_alone(topics, vocabulary):
    def train(seed, count):
        torch.set_num_threads(count)
        config = emb.SkipGramConfig(width=8, window=W, epochs=1)
        model = emb.train_negative_sampling(topics, vocabulary, config, torch.Generator().manual_seed(seed))
        assert torch.get_num_threads() == count  # left as it was
        return model

    before = torch.get_num_threads()
    try:
        first, again, other = train(0, 1), train(0, 2), train(1, 1)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(first.v, again.v) and torch.equal(first.u, again.u) and first.losses == again.losses
    assert not torch.equal(first.v, other.v)


def test_softmax_training_nears_the_conditional_entropy(topics, vocabulary, generator):
    config = emb.SkipGramConfig.softmax(width=V, window=W)
    model = emb.train_softmax(topics, vocabulary, config, generator)
    counts = emb.pair_counts(emb.skipgram_pairs(topics, V, W), V, V).double()
    conditional = counts / counts.sum(1, keepdim=True)
    entropy = float(-(counts * conditional.clamp(min=1e-30).log()).sum() / counts.sum())
    assert model.losses[0] == pytest.approx(math.log(V), rel=1e-5)  # all scores start at 0
    assert entropy < model.losses[-1] < entropy + 0.01
    assert model.losses[0] > model.losses[10] > model.losses[50] > model.losses[-1]


def test_small_input_works(vocabulary, generator):
    """Two words, one pair each way; fewer words than negatives; sentences of one word or none."""
    config, text = emb.SkipGramConfig(width=4, epochs=2, subsample=0), torch.tensor([V, 0, 1, V, 2, V, V])
    model = emb.train_negative_sampling(text, vocabulary, config, generator)
    v, u = emb.initial_tables(V, V, 4, torch.Generator().manual_seed(1))
    changed = (model.v != v).any(1).nonzero().flatten().tolist()
    assert changed == [0, 1]  # word 2 has no pair
    assert torch.isfinite(model.v).all() and torch.isfinite(torch.tensor(model.losses)).all()
    two = Vocabulary(("a", "b"))
    model = emb.train_negative_sampling(two.stream([["a", "b"]] * 50), two, config, generator)
    assert model.word_vectors(two)["a"].shape == (4,) and "b" in model.word_vectors(two)


@pytest.mark.parametrize("window", [1, 8, 12])
def test_any_window(topics, vocabulary, generator, window):
    config = emb.SkipGramConfig(width=4, window=window, epochs=1, subsample=0)
    assert emb.train_negative_sampling(topics, vocabulary, config, generator).losses[0] < 6 * math.log(2)


def test_pseudo_words_on_the_input_side(topics, vocabulary, generator):
    merged = torch.where(topics == 1, V + 1, topics)
    model = emb.train_negative_sampling(topics, vocabulary, emb.SkipGramConfig(width=4), generator, merged)
    assert model.v.shape == (V + 2, 4) and model.u.shape == (V, 4)
    start, _ = emb.initial_tables(V + 2, V, 4, torch.Generator().manual_seed(1))
    with pytest.raises(ValueError, match="vectors"):
        model.word_vectors(vocabulary)


def test_progress(topics, vocabulary, generator, capsys):
    shares = []
    config = emb.SkipGramConfig(width=4, epochs=2)
    emb.train_negative_sampling(topics, vocabulary, config, generator, progress=shares.append)
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == 1
    assert capsys.readouterr() == ("", "")
    emb.train_softmax(topics, vocabulary, emb.SkipGramConfig.softmax(epochs=2), generator, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and err.endswith("100%\n")


# -------------------------------------------------------------------------------------------- bad input

GOOD = torch.tensor([0, 1, 2, V])


@pytest.mark.parametrize("train", [emb.train_negative_sampling, emb.train_softmax])
@pytest.mark.parametrize(
    ("stream", "error", "match"),
    [
        (torch.tensor([], dtype=torch.int64), ValueError, "no pair to learn"),
        (torch.tensor([V, V]), ValueError, "no pair to learn"),
        (torch.tensor([0, V, 1, V]), ValueError, "no pair to learn"),
        (torch.tensor([0, 1, V + 1]), ValueError, f"from 0 to {V + 1}"),
        (torch.tensor([0, -1, 1]), ValueError, "from -1"),
        (GOOD.int(), TypeError, "int32"),
        (GOOD * float("nan"), TypeError, "float32"),
        (GOOD[None], TypeError, r"\[1, 4\]"),
        (GOOD.tolist(), TypeError, "list"),
    ],
)
def test_bad_streams(train, stream, error, match, vocabulary, generator):
    with pytest.raises(error, match=f"(?s)stream.*{match}"):
        train(stream, vocabulary, emb.SkipGramConfig(width=4, epochs=1), generator)


@pytest.mark.parametrize("generator", [0, None, "seed"])
def test_bad_generator(generator, vocabulary):
    with pytest.raises(TypeError, match="generator.*device.seed"):
        emb.train_negative_sampling(GOOD, vocabulary, emb.SkipGramConfig(), generator)


def test_bad_centre_stream(vocabulary, generator):
    config = emb.SkipGramConfig(width=4)
    for centres, match in ((GOOD[:-1], "got 3 ids"), (GOOD - 1, "negative id")):
        with pytest.raises(ValueError, match=f"centre_stream.*{match}"):
            emb.train_negative_sampling(GOOD, vocabulary, config, generator, centres)


@pytest.mark.parametrize(
    "change",
    [{"width": 0}, {"window": 0}, {"window": 2.5}, {"epochs": 0}, {"negatives": 0}, {"learning_rate": float("nan")}]
    + [{"learning_rate": -1.0}, {"subsample": -1e-3}, {"noise_power": float("nan")}],
)
def test_bad_config(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        emb.SkipGramConfig(**change)


def test_divergence_is_said(topics, vocabulary, generator):
    config = emb.SkipGramConfig.softmax(learning_rate=1e30, epochs=3)
    with pytest.raises(ValueError, match="learning_rate.*lower"):
        emb.train_softmax(topics, vocabulary, config, generator)


def test_a_large_learning_rate_is_limited(topics, vocabulary, generator):
    config = emb.SkipGramConfig(width=4, learning_rate=1e6, epochs=1)
    assert emb.train_negative_sampling(topics, vocabulary, config, generator).v.abs().max() < 100


def test_large_vocabulary_for_softmax(generator):
    vocabulary = Vocabulary(tuple(map(str, range(5001))))
    with pytest.raises(ValueError, match="5,001 words.*max_size"):
        emb.train_softmax(torch.tensor([0, 1]), vocabulary, emb.SkipGramConfig.softmax(), generator)


def test_word_vectors(vocabulary):
    vectors = emb.WordVectors(vocabulary, torch.eye(V))
    assert vectors["w3"][3] == 1 and len(vectors) == V and "nothing" not in vectors
    with pytest.raises(ValueError, match="not among"):
        vectors["nothing"]
    with pytest.raises(ValueError, match=r"\[30, D\]"):
        emb.WordVectors(vocabulary, torch.eye(V)[1:])


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_in_one_thread_stops_both(failing):
    def calls(worker):
        for n in range(100):
            yield lambda: 1 / (0 if worker == failing and n == 3 else 1)

    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        descent.side_by_side(calls(0), calls(1))
    assert torch.get_num_threads() == before


def test_plain_modules_are_the_same():
    assert emb.softmax_loss is skipgram.softmax_loss


def test_short_text_that_subsampling_empties_is_refused(vocabulary, generator):
    stream = torch.tensor([0, 1, 0, 1, 0, V])
    with pytest.raises(ValueError, match="subsample: 1e-06 left no pair of 5 words.*use subsample=0 for short text"):
        emb.train_negative_sampling(stream, vocabulary, emb.SkipGramConfig(width=4, subsample=1e-6), generator)
    emb.train_negative_sampling(stream, vocabulary, emb.SkipGramConfig(width=4, subsample=0), generator)


PAIRS = torch.tensor([[0, 1], [2, 0]])


@pytest.mark.parametrize(
    "call, error, match",
    [
        (lambda: emb.pair_counts(PAIRS, 2, 3), ValueError, r"pairs\[:, 0\]: got ids from 0 to 2, expected 0 to 1"),
        (lambda: emb.pair_counts(PAIRS, 3, 1), ValueError, r"pairs\[:, 1\]: got ids from 0 to 1, expected 0 to 0"),
        (lambda: emb.pair_counts(PAIRS - 1, 3, 3), ValueError, "pairs: got ids from -1"),
        (lambda: emb.pair_counts(PAIRS.flatten(), 3, 3), ValueError, r"pairs: got shape \[4\], expected \[any, 2\]"),
        (lambda: emb.pair_counts(PAIRS.float(), 3, 3), TypeError, "pairs: got torch.float32"),
        (lambda: emb.pair_counts(PAIRS, 0, 3), ValueError, "centres: got 0"),
        (lambda: emb.skipgram_pairs(GOOD, V, 2, GOOD[:1]), ValueError, "centre_stream: got 1 ids"),
        (lambda: emb.skipgram_pairs(GOOD, V, 2, GOOD.float()), TypeError, "centre_stream: got torch.float32"),
        (lambda: emb.skipgram_pairs(GOOD.float(), V, 2), TypeError, "stream: got torch.float32"),
        (lambda: emb.skipgram_pairs(GOOD.tolist(), V, 2), TypeError, "stream: got list"),
        (lambda: emb.skipgram_pairs(GOOD, V, 0), ValueError, "window: got 0"),
        (lambda: emb.skipgram_pairs(GOOD, None, 2), TypeError, "boundary: got None"),
    ],
)
def test_bad_pairs(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_a_window_beyond_the_text_changes_nothing():
    assert torch.equal(emb.skipgram_pairs(GOOD, V, 10**12), emb.skipgram_pairs(GOOD, V, 3))


@pytest.mark.parametrize(
    "name, change, error",
    [
        ("v", lambda x: x[:, 1:], ValueError),
        ("v", lambda x: x.float(), TypeError),
        ("v", lambda x: x.long(), TypeError),
        ("u", lambda x: x[0], ValueError),
        ("u", lambda x: x.tolist(), TypeError),
        ("centres", lambda x: x[:1], ValueError),
        ("centres", lambda x: x[:0], ValueError),
        ("centres", lambda x: x[:, None], ValueError),
        ("centres", lambda x: x - V, ValueError),
        ("contexts", lambda x: x[:1], ValueError),
        ("contexts", lambda x: x + V, ValueError),
        ("contexts", lambda x: x > 0, TypeError),
        ("negatives", lambda x: x[:1], ValueError),
        ("negatives", lambda x: x[:, 0], ValueError),
        ("negatives", lambda x: -1 - x, ValueError),
        ("negatives", lambda x: x.double(), TypeError),
        ("weight", lambda x: -x, ValueError),
        ("weight", lambda x: float("nan"), ValueError),
        ("weight", lambda x: "1", TypeError),
    ],
)
def test_bad_arguments_of_the_losses(generator, name, change, error):
    v, u = tables(generator)
    good = {"v": v, "u": u, "centres": torch.tensor([0, 1]), "contexts": torch.tensor([2, 3])}
    more = {"negatives": torch.tensor([[4, 5, 6]] * 2), "weight": 1.0}
    for call in (emb.negative_sampling_loss, emb.negative_sampling_gradients):
        with pytest.raises(error, match=f"{name}|contexts: got shape"):
            call(**{**good, **more, name: change((good | more)[name])})
    for call in (emb.softmax_loss, emb.softmax_gradients) if name in good else ():
        with pytest.raises(error, match=f"{name}|contexts: got shape"):
            call(**{**good, name: change(good[name])})


COUNTS = torch.tensor([3, 1, 0])


@pytest.mark.parametrize(
    "counts, error, match",
    [
        (COUNTS - 2, ValueError, "counts: got -1 among them"),
        (COUNTS * float("nan"), ValueError, "counts: got nan"),
        (COUNTS * 0, ValueError, "counts: got nothing above 0"),
        (COUNTS[None], ValueError, r"counts: got shape \[1, 3\]"),
        (COUNTS.tolist(), TypeError, "counts: got list"),
        (None, TypeError, "counts: got NoneType"),
    ],
)
@pytest.mark.parametrize("call", [emb.noise_distribution, emb.keep_probability])
def test_bad_counts(call, counts, error, match):
    with pytest.raises(error, match=match):
        call(counts)


@pytest.mark.parametrize("value", [float("nan"), -1.0, float("inf"), "1", None])
def test_bad_parameters_of_counts(value):
    for call, name in ((emb.noise_distribution, "power"), (emb.keep_probability, "threshold")):
        with pytest.raises((ValueError, TypeError), match=f"{name}: got"):
            call(COUNTS, value)
    with pytest.raises(ValueError, match="power: got 10000.*try 0.75"):
        emb.noise_distribution(COUNTS, 10000)
    with pytest.raises(ValueError, match="threshold: got 1e-320"):
        emb.keep_probability(COUNTS, 1e-320)


@pytest.mark.parametrize(
    "change, match",
    [
        ({"counts": torch.ones(2)}, "counts: got shape"),
        ({"counts": -torch.ones(2, 3)}, "counts: got -1.0"),
        ({"noise": torch.full((3,), 1.0)}, "noise: got a sum of 3, expected 1"),
        ({"noise": torch.tensor([0.5, 0.5])}, r"noise: got shape \[2\], expected \[3\]"),
        ({"noise": torch.tensor([1.5, -0.5, 0.0])}, "noise: got -0.5"),
        ({"negatives": 0}, "negatives: got 0"),
        ({"negatives": float("nan")}, "negatives: got nan"),
        ({"scores": torch.zeros(2, 1)}, r"scores: got shape \[2, 1\]"),
    ],
)
def test_bad_arguments_of_the_expected_loss(change, match):
    good = {"counts": torch.ones(2, 3), "noise": torch.tensor([0.5, 0.25, 0.25]), "negatives": 5}
    with pytest.raises(ValueError, match=match):
        emb.expected_negative_sampling_loss(**{"scores": torch.zeros(2, 3), **good, **change})
    if "scores" not in change:
        with pytest.raises(ValueError, match=match):
            emb.negative_sampling_optimum(**good | change)


@pytest.mark.parametrize("train", [emb.train_negative_sampling, emb.train_softmax])
@pytest.mark.parametrize(
    "name, value, match",
    [
        ("config", emb.SkipGramConfig, "got the class SkipGramConfig, expected a SkipGramConfig"),
        ("config", {}, "got dict"),
        ("config", glove.GloveConfig(), "got GloveConfig"),
        ("vocabulary", ["a", "b"], "got list"),
        ("progress", "no", "got 'no', expected True, False or a function"),
    ],
)
def test_arguments_of_another_type(train, name, value, match, vocabulary, generator):
    config = emb.SkipGramConfig(width=4, subsample=0)
    good = {"stream": GOOD, "vocabulary": vocabulary, "config": config, "generator": generator}
    with pytest.raises(TypeError, match=f"{name}: {match}"):
        train(**good | {name: value})


def test_initial_tables_need_a_generator():
    with pytest.raises(TypeError, match="generator: got None"):
        emb.initial_tables(3, 3, 4, None)


@pytest.mark.parametrize(
    "change, match",
    [
        ({"window": 41}, "got 41, expected at most 40; the masks"),
        ({"width": "5"}, "got '5'"),
        ({"epochs": True}, "got True"),
        ({"negatives": None}, "got None"),
        ({"subsample": "no"}, "got 'no'"),
        ({"noise_power": False}, "got False"),
        ({"learning_rate": 1e300}, "got 1e.300, expected at most 1e.30"),
        ({"learning_rate": 1e-300}, "got 1e-300, expected at least 1e-30"),
    ],
)
def test_config_of_another_type_or_size(change, match):
    with pytest.raises((ValueError, TypeError), match=f"{next(iter(change))}: {match}"):
        emb.SkipGramConfig(**change)


def test_a_huge_id_of_a_centre(vocabulary, generator):
    centres = GOOD.clone()
    centres[0] = 10**12
    with pytest.raises(ValueError, match="centre_stream: got id 1000000000000, expected ids below 10,000,000"):
        emb.train_negative_sampling(GOOD, vocabulary, emb.SkipGramConfig(), generator, centres)


@pytest.mark.parametrize("learning_rate, epochs", [(1e9, 5), (10.0, 20), (1e9, 1)])
def test_finite_divergence_is_said(topics, vocabulary, generator, learning_rate, epochs):
    config = emb.SkipGramConfig.softmax(learning_rate=learning_rate, epochs=epochs)
    with pytest.raises(ValueError, match="learning_rate: training diverged at .*lower it. The last loss"):
        emb.train_softmax(topics, vocabulary, config, generator)


def test_poor_learning_is_no_divergence():
    _inputs.learned((ONE,), 0.1, 1.9, 1.0)
    for last in (2.1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="learning_rate"):
            _inputs.learned((ONE,), 0.1, last, 1.0)


def test_an_interrupt_while_the_helper_starts_ends_it(monkeypatch):
    started, start = [], threading.Thread.start

    def interrupted(thread):
        start(thread)
        started.append(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    before = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        descent.side_by_side(iter([lambda: None] * 3), iter([lambda: None] * 3))
    started[0].join(10)
    assert not started[0].is_alive() and started[0].daemon and torch.get_num_threads() == before


# ------------------------------------------------------------------------------ counts of drawn windows


def test_window_counts_are_the_mean_over_all_windows_drawn():
    stream, boundary, window = torch.tensor([0, 1, 2, 0, 4, 1, 1, 3, 4]), 4, 3
    table, totals = emb.window_counts(stream, boundary, window, 3)
    expected = torch.zeros(4, 4).double()
    for drawn in range(1, window + 1):  # every centre's window has each length equally often
        pairs = emb.skipgram_pairs(stream, boundary, drawn)
        expected += emb.pair_counts(pairs, 4, 4) / window
    assert torch.allclose(table, expected[:3, :3], atol=1e-12) and torch.allclose(totals, expected.sum(1), atol=1e-12)


@pytest.mark.parametrize("words, window", [(5, 3), (0, 3), (3, 0), (2.0, 3)])
def test_window_counts_refuse_what_they_cannot_count(words, window):
    with pytest.raises((TypeError, ValueError), match="words: got|window: got"):
        emb.window_counts(torch.tensor([0, 1, 2, 0, 4]), 4, window, words)
