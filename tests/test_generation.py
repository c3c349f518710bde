"""Generation: with and without a cache, padded prompts, stop ids, seeds, modes, errors; scores of a given text."""

import functools
import math

import pytest
import torch
from lmcourse.bert import BERT
from lmcourse.configuration import Config
from lmcourse.generation import generate, log_probabilities, pad_left, score
from lmcourse.gpt import GPT
from lmcourse.sampling import distribution
from lmcourse.t5 import T5

V, NEW = 40, 20
SMALL = dict(positions=64, layers=2, width=32, heads=4, initial=0.3)
CONFIGS = {
    "learned": Config(V, **SMALL),
    "sinusoidal": Config(V, position="sinusoidal", **SMALL),
    "rotary, groups": Config.llama(V, kv_heads=2, **SMALL),
    "relative": Config(V, position="relative", **SMALL),
    "published": Config.gpt2(vocabulary=V, **SMALL),
}
SAMPLED = dict(temperature=1.3, top_k=30, top_p=0.97)


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


def ids(B, T, seed=2):
    return torch.randint(0, V, (B, T), generator=seeded(seed))


def gpt(name="learned"):
    return GPT(CONFIGS[name], seeded()).eval()


@pytest.fixture(params=list(CONFIGS))
def model(request):
    return gpt(request.param)


@pytest.fixture
def reader():
    """T5's decoder with a batch of memories, of which two are padded; for the rows asked for."""
    t5 = T5(Config.t5(vocabulary=V, layers=2, width=32, heads=4, initial=0.3), seeded()).eval()
    mask = torch.arange(9) < torch.tensor([[9], [4], [6]])
    with torch.no_grad():
        memory = t5.encode(ids(3, 9), mask)
    return lambda rows: functools.partial(t5.next_scores, memory=memory[rows], memory_mask=mask[rows])


def by_loops(model, prompt, new):
    """One row, greedy, everything read again for each token."""
    text = prompt.tolist()
    with torch.no_grad():
        for _ in range(new):
            scores = model(torch.tensor([text]))[0, -1].tolist()
            text.append(scores.index(max(scores)))
    return text


# ------------------------------------------------------------------------------------- cached and uncached


def test_greedy_is_the_greatest_score_one_token_after_the_other(model):
    prompts = ids(3, 7)
    text = generate(model.next_scores, prompts, NEW)
    assert text.tolist() == [by_loops(model, prompt, NEW) for prompt in prompts]
    assert len(set(map(tuple, text[:, 7:].tolist()))) > 1, "texts differ, or the test shows nothing"


@pytest.mark.parametrize("options", [{}, SAMPLED])
def test_cached_equals_uncached(model, options):
    texts = [
        generate(model.next_scores, ids(3, T), NEW, cached=cached, generator=seeded(), **options)
        for cached in (True, False)
        for T in (1, 7)
    ]
    assert torch.equal(texts[0], texts[2]) and torch.equal(texts[1], texts[3])
    assert texts[1].shape == (3, 7 + NEW) and torch.equal(texts[1][:, :7], ids(3, 7))


@pytest.mark.parametrize("options", [{}, SAMPLED])
def test_t5_cached_equals_uncached_and_rows_do_not_meet(reader, options):
    start = torch.zeros(3, 1, dtype=torch.int64)
    texts = [generate(reader([0, 1, 2]), start, NEW, cached=c, generator=seeded(), **options) for c in (True, False)]
    assert torch.equal(*texts)
    assert len(set(map(tuple, texts[0].tolist()))) == 3, "the memory matters"
    if not options:
        for row in range(3):
            assert torch.equal(generate(reader([row]), start[:1], NEW)[0], texts[0][row])


def test_any_function_of_ids_generates():
    def next_scores(tokens):  # the next id is one more
        return torch.nn.functional.one_hot((tokens[:, -1] + 1) % V, V).float()

    assert generate(next_scores, torch.tensor([[5], [38]]), 3, cached=False).tolist() == [[5, 6, 7, 8], [38, 39, 0, 1]]
    with pytest.raises(TypeError, match="next_scores: it takes no cache; use cached=False"):
        generate(next_scores, ids(1, 3), 3)


def test_of_equal_scores_the_lowest_id():
    scores = torch.tensor([[0.0, 3.0, 1.0, 3.0]])
    for options in ({}, dict(temperature=1.0, top_k=1, generator=seeded())):
        assert generate(lambda tokens: scores, torch.tensor([[0]]), 5, cached=False, **options).tolist() == [[0] + [1] * 5]


# -------------------------------------------------------------------------------------------- padded prompts

PROMPTS = [[3], [1, 2, 3, 4, 5, 6], [7, 8, 9], [9, 9, 9, 9, 9, 9]]


@pytest.mark.parametrize("cached", [True, False])
def test_a_row_padded_on_the_left_generates_what_it_does_alone(model, cached):
    tokens, mask = pad_left(PROMPTS, pad=11)
    text = generate(model.next_scores, tokens, NEW, attention_mask=mask, cached=cached)
    for row, prompt in enumerate(PROMPTS):
        assert text[row, 6 - len(prompt) :].tolist() == by_loops(model, torch.tensor(prompt), NEW)
    assert not torch.equal(text, generate(model.next_scores, tokens, NEW)), "without the mask, padding is read as text"


def test_pad_left():
    tokens, mask = pad_left([[5], [6, 7, 8]], pad=9)
    assert tokens.tolist() == [[9, 9, 5], [6, 7, 8]] and tokens.dtype == torch.int64
    assert mask.tolist() == [[False, False, True], [True, True, True]]


# ------------------------------------------------------------------------------------------------- stop ids


def cut(row, T, stops):
    """What a row must be: after the first new stop id, that id to the end."""
    for n in range(T, len(row)):
        if row[n] in stops:
            return row[: n + 1] + [row[n]] * (len(row) - n - 1)
    return row


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("options", [{}, SAMPLED])
def test_stop(model, cached, options):
    options = dict(generator=seeded(), cached=cached) | options
    prompts = ids(4, 5)
    free = generate(model.next_scores, prompts, NEW, **options)
    for stop in (int(free[0, 8]), [int(free[1, 6]), int(free[2, 9])], set(range(V)), torch.arange(30).tolist()):
        options["generator"] = seeded()
        text = generate(model.next_scores, prompts, NEW, stop=stop, **options).tolist()
        stops = {stop} if isinstance(stop, int) else set(stop)
        expected = [cut(row, 5, stops) for row in free.tolist()]
        length = len(text[0])
        assert text == [row[:length] for row in expected]
        ends = [next((n for n in range(5, len(row)) if row[n] in stops), None) for row in expected]
        assert length == (5 + NEW if None in ends else max(ends) + 1), "as long as the last row to stop"


def test_a_stop_id_in_the_prompt_does_not_count():
    text = generate(lambda tokens: torch.eye(V)[tokens[:, -1] - 1], torch.tensor([[3, 9]]), 9, stop=3, cached=False)
    assert text.tolist() == [[3, 9, 8, 7, 6, 5, 4, 3]]


# --------------------------------------------------------------------------------------------- the generator


def test_the_same_seed_gives_the_same_text_and_another_seed_another(model):
    def text(seed):
        return generate(model.next_scores, ids(2, 4), NEW, temperature=1.0, generator=seeded(seed))

    assert torch.equal(text(1), text(1)) and not torch.equal(text(1), text(2))


def test_a_row_depends_on_its_place_and_not_on_the_other_rows():
    model, options = gpt(), dict(temperature=1.5)
    prompts, others = ids(3, 4), ids(3, 4, seed=7)
    text = generate(model.next_scores, prompts, NEW, generator=seeded(), **options)
    alone = generate(model.next_scores, prompts[:1], NEW, generator=seeded(), **options)
    assert torch.equal(text[:1], alone)
    others[2] = prompts[2]
    assert torch.equal(generate(model.next_scores, others, NEW, generator=seeded(), **options)[2], text[2])
    same = generate(model.next_scores, prompts[:1].expand(3, -1), NEW, generator=seeded(), **options)
    assert len(set(map(tuple, same.tolist()))) == 3, "equal prompts, different draws"


def test_the_generator_moves_by_the_same_numbers_whatever_happens():
    model = gpt()
    after = []
    for options in ({}, dict(stop=range(V)), dict(cached=False), SAMPLED):
        generator = seeded()
        generate(model.next_scores, ids(2, 4), NEW, generator=generator, **dict(temperature=1.0) | options)
        after.append(torch.rand(1, generator=generator))
    generator = seeded()
    torch.rand(2, NEW, dtype=torch.float64, generator=generator)
    assert set(map(float, after)) == {float(torch.rand(1, generator=generator))}


def test_tokens_follow_the_stated_distribution():
    """Chi-square of the first new token over 20,000 rows."""
    model, n = gpt(), 20_000
    prompt = ids(1, 5)
    with torch.no_grad():
        stated = distribution(model.next_scores(prompt)[0], 1.3, 12, 0.9)
    text = generate(model.next_scores, prompt.expand(n, -1), 1, temperature=1.3, top_k=12, top_p=0.9, generator=seeded())
    counts = text[:, -1].bincount(minlength=V).double()
    assert counts[stated == 0].sum() == 0 and (stated > 0).sum() > 5
    expected = n * stated[stated > 0].double()
    assert float(((counts[stated > 0] - expected) ** 2 / expected).sum()) < 31.3  # 99.9 % of 11 degrees of freedom


# ----------------------------------------------------------------------------------------- modes of the model


def test_no_dropout_and_every_module_gets_its_mode_back():
    model = GPT(Config(V, dropout=0.5, **SMALL), seeded())
    expected = generate(model.eval().next_scores, ids(2, 4), NEW)
    model.train()
    model.stack.blocks[0].eval()  # a part that is frozen
    modes = [module.training for module in model.modules()]
    for next_scores in (model.next_scores, functools.partial(functools.partial(model.next_scores), attention_mask=None)):
        assert torch.equal(generate(next_scores, ids(2, 4), NEW), expected)
        assert [module.training for module in model.modules()] == modes
    with pytest.raises(ValueError, match="tokens: got ids"):
        generate(model.next_scores, ids(2, 4) + V, NEW)
    assert [module.training for module in model.modules()] == modes, "after an error too"


def test_one_can_train_on_what_was_generated():
    model = gpt()
    text = generate(model.next_scores, ids(2, 4), NEW)
    logs = log_probabilities(model, text)
    assert not text.is_inference() and not logs.is_inference()
    model(text).logsumexp(-1).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_the_prompt_is_left_alone():
    prompts, mask = pad_left(PROMPTS)
    before = prompts.clone(), mask.clone()
    generate(gpt().next_scores, prompts, NEW, attention_mask=mask, stop=range(V))
    assert torch.equal(prompts, before[0]) and torch.equal(mask, before[1])


# ---------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(temperature=-1), "temperature: got -1"),
        (dict(top_k=5), "temperature: got 0, the greatest score, with top_k or top_p"),
        (dict(top_p=0.9), "temperature: got 0, the greatest score, with top_k or top_p"),
        (dict(temperature=1, top_k=0), "top_k: got 0"),
        (dict(temperature=1, top_k=V + 1), "top_k: got 41, expected at most 40"),
        (dict(temperature=1, top_p=0.0), "top_p: got 0.0"),
        (dict(temperature=1, top_p=1.1), "top_p: got 1.1"),
        (dict(tokens=torch.zeros(2, 0, dtype=torch.int64)), "tokens: got"),
        (dict(tokens=torch.zeros(0, 2, dtype=torch.int64)), "tokens: got"),
        (dict(tokens=torch.zeros(2, 3)), "tokens: got torch.float32"),
        (dict(tokens=torch.tensor([1, 2])), "tokens: got"),
        (dict(tokens=[[1, 2]]), "tokens: got list"),
        (dict(tokens=torch.tensor([[1, V]])), "tokens: got ids from 1 to 40"),
        (dict(tokens=torch.tensor([[-1, 2]])), "tokens: got ids from -1"),
        (dict(new=0), "new: got 0"),
        (dict(new=2.0), "new: got 2.0"),
        (dict(new=62), "new: got 62 after 4 tokens, expected at most 61"),
        (dict(stop=[]), "stop: got"),
        (dict(stop=-1), "stop: got -1"),
        (dict(stop=1.5), "stop: got 1.5"),
        (dict(stop=True), "stop: got True"),
        (dict(attention_mask=torch.tensor([[1, 1, 1, 0]] * 2).bool()), "attention_mask: got padding after a token"),
        (dict(attention_mask=torch.tensor([[1, 0, 1, 1]] * 2).bool()), "attention_mask: got padding after a token"),
        (dict(attention_mask=torch.zeros(2, 4).bool()), "attention_mask: got padding after a token"),
        (dict(attention_mask=torch.ones(2, 5).bool()), r"attention_mask: got shape \[2, 5\]"),
    ],
)
def test_bad_values(options, message):
    options = dict(tokens=ids(2, 4), new=5, generator=seeded()) | options
    with pytest.raises(ValueError, match=message):
        generate(gpt().next_scores, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(temperature=1.0), "generator: got None"),
        (dict(temperature=1.0, generator=3), "generator: got 3"),
        (dict(attention_mask=torch.ones(2, 4)), "attention_mask: got torch.float32"),
    ],
)
def test_bad_types(options, message):
    with pytest.raises(TypeError, match=message):
        generate(gpt().next_scores, ids(2, 4), 5, **options)


def test_all_positions_can_be_used_and_no_more_before_any_work():
    model = gpt()
    text = generate(model.next_scores, ids(1, 4), 61)  # the last of 65 is not read
    assert text.tolist() == [by_loops(model, ids(1, 4)[0], 61)]

    def never(*_):
        raise AssertionError("computed")

    model.embedding.register_forward_pre_hook(never)
    with pytest.raises(ValueError, match="new: got 62"):
        generate(model.next_scores, ids(1, 4), 62)
    assert generate(gpt("rotary, groups").next_scores, ids(1, 4), 80).shape == (1, 84), "no limit without a table"


def test_bad_next_scores(reader):
    with pytest.raises(ValueError, match=r"next_scores: got torch.float32 \[1, 4, 40\], expected \(B, V\); pass model"):
        generate(gpt(), ids(1, 4), 5)
    with pytest.raises(TypeError, match="next_scores: it takes no attention_mask"):
        generate(reader([0, 1]), ids(2, 2), 5, attention_mask=torch.ones(2, 2).bool())
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="next_scores: some scores are NaN"):
            generate(lambda tokens: torch.tensor([[0.0, bad, 1.0]]), torch.tensor([[0]]), 1, cached=False)
    with pytest.raises(ValueError, match="all are -∞"):
        generate(lambda tokens: torch.full((1, 3), -math.inf), torch.tensor([[0]]), 1, cached=False)


def test_bad_prompts():
    for bad in ([], [[1], []]):
        with pytest.raises(ValueError, match="prompts: got an empty list"):
            pad_left(bad)


# ----------------------------------------------------------------------------------------------------- score


def test_log_probabilities_by_hand():
    logs = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.125, 0.75], [1 / 3] * 3]).log()

    class Bigram(torch.nn.Module):
        def forward(self, tokens, attention_mask):
            return logs[tokens] + 7.0  # scores, not yet normed

    tokens = torch.tensor([[0, 1, 2], [2, 0, 0]])
    expected = torch.tensor([[0.25, 0.75], [1 / 3, 0.5]]).log()
    torch.testing.assert_close(log_probabilities(Bigram(), tokens), expected)
    whole = score(Bigram(), tokens)
    assert whole.tokens == 4 and whole.nats == pytest.approx(math.log(4 * 4 / 3 * 3 * 2))
    assert whole.perplexity == pytest.approx(32**0.25)
    assert whole.bits_per_byte(10) == pytest.approx(5 / 10), "32 = 2⁵"
    mask = torch.tensor([[True, True, False], [False, True, True]])
    masked = log_probabilities(Bigram(), tokens, mask)
    torch.testing.assert_close(masked, expected * torch.tensor([[1, 0], [0, 1]]))
    assert score(Bigram(), tokens, mask).tokens == 2


def test_a_padded_text_scores_as_alone_on_either_side(model):
    text = ids(1, 6)
    alone = score(model, text)
    for before, after in ((3, 0), (0, 3)):
        padded = torch.nn.functional.pad(text, (before, after), value=5)
        mask = torch.nn.functional.pad(torch.ones(1, 6).bool(), (before, after))
        given = score(model, padded, mask)
        assert given.tokens == 5 and given.nats == pytest.approx(alone.nats, rel=1e-5)


def test_what_greedy_generates_scores_higher_than_another_text(model):
    text = generate(model.next_scores, ids(2, 4), NEW)
    other = torch.cat([ids(2, 4), ids(2, NEW, seed=5)], dim=1)
    assert score(model, text).perplexity < score(model, other).perplexity
    assert log_probabilities(model, text).shape == (2, 3 + NEW)


def test_bad_scores():
    model = gpt()
    for bad in (ids(2, 1), ids(1, 4)[0], [[1, 2]]):
        with pytest.raises(ValueError, match="tokens: got"):
            score(model, bad)
    with pytest.raises(ValueError, match="attention_mask: no token"):
        score(model, ids(1, 3), torch.tensor([[True, False, True]]))
    with pytest.raises(ValueError, match="size: got 0"):
        score(model, ids(1, 3)).bits_per_byte(0)


def test_a_model_that_sees_the_token_is_not_scored():
    with pytest.raises(TypeError, match="model: got BERT, expected one that sees earlier tokens only"):
        log_probabilities(BERT(Config(20, 8, 1, 8, 2)), torch.ones(1, 4, dtype=torch.int64))
