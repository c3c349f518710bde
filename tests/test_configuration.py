"""The options: presets against the docstring's table and the papers, what differs between models, bad input."""

import dataclasses
import math

import pytest
from lmcourse.configuration import CHOICES, Config, differences

SMALL = dict(vocabulary=50, positions=16, layers=2, width=16, heads=4)
PRESETS = {
    "course": Config(50_000),
    "GPT-2": Config.gpt2(),
    "BERT": Config.bert(),
    "T5": Config.t5(),
    "Llama-style": Config.llama(32_000),
}


def table():
    """{option: {model: cell}} of the docstring's table."""
    lines = [line.strip() for line in Config.__doc__.splitlines()]
    rule = [i for i, line in enumerate(lines) if line.startswith("====")]
    head, *rows = [line.split() for line in (lines[rule[0] + 1], *lines[rule[1] + 1 : rule[2]])]
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


def cell(config, option):
    if option == "head":
        return "transform" if config.head_transform else "scaled" if config.head_scaled else "plain"
    value = getattr(config, option)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("option", sorted(table()))
def test_the_table_in_the_docstring_says_what_the_presets_do(option):
    assert list(table()[option]) == list(PRESETS)
    for model, stated in table()[option].items():
        assert cell(PRESETS[model], option) == stated, model


def test_the_table_has_every_option_of_kind():
    """What a preset changes, beyond sizes, initial values and ε, has a row."""
    sizes = {"vocabulary", "positions", "layers", "width", "heads", "epsilon", "initial", "head_bias", "hidden"}
    changed = {name for preset in PRESETS.values() for name in differences(PRESETS["course"], preset)} - sizes
    heads = {"head_transform", "head_scaled"}
    assert changed - heads <= set(table()) and "head" in table()


def test_roberta_is_bert_with_the_changes_that_are_stated():
    assert differences(Config.bert(), Config.roberta()) == {
        "vocabulary": (30_522, 50_265),
        "positions": (512, 514),
        "epsilon": (1e-12, 1e-5),
        "first_position": (0, 2),
        "segments": (2, 1),
    }
    assert Config.roberta().longest == 512 == Config.bert().longest


def test_differences_of_gpt2_and_bert():
    assert differences(Config.gpt2(), Config.bert()) == {
        "vocabulary": (50_257, 30_522),
        "positions": (1024, 512),
        "norm_first": (True, False),
        "epsilon": (1e-5, 1e-12),
        "activation": ("gelu_tanh", "gelu"),
        "segments": (0, 2),
        "head_transform": (False, True),
        "head_bias": (False, True),
        "pooler": (False, True),
    }
    assert differences(Config.gpt2(), Config.gpt2()) == {}
    swapped = {name: pair[::-1] for name, pair in differences(Config.gpt2(), Config.bert()).items()}
    assert differences(Config.bert(), Config.gpt2()) == swapped


@pytest.mark.parametrize("preset, size, sizes", [
    (Config.gpt2, "small", (12, 768, 12)), (Config.gpt2, "medium", (24, 1024, 16)),
    (Config.gpt2, "large", (36, 1280, 20)), (Config.gpt2, "xl", (48, 1600, 25)),
    (Config.bert, "base", (12, 768, 12)), (Config.bert, "large", (24, 1024, 16)),
    (Config.bert, "minilm", (6, 384, 12)), (Config.roberta, "large", (24, 1024, 16)),
    (Config.t5, "small", (6, 512, 8)), (Config.t5, "base", (12, 768, 12)), (Config.t5, "large", (24, 1024, 16)),
])  # fmt: skip
def test_published_sizes(preset, size, sizes):
    config = preset(size)
    assert (config.layers, config.width, config.heads) == sizes
    assert config.d * config.heads == config.width and config.d == (32 if size == "minilm" else 64)


def test_a_preset_can_be_changed():
    assert Config.gpt2("medium", width=64, heads=8, tied=False).d == 8
    assert Config.bert(vocabulary=100).vocabulary == 100
    assert differences(Config.gpt2(), Config.gpt2(tied=False)) == {"tied": (True, False)}


def test_derived_sizes():
    config = Config(**SMALL)
    assert (config.d, config.groups, config.longest) == (4, 4, 16)
    assert Config(**SMALL, kv_heads=2).groups == 2 and Config(**SMALL, kv_heads=1).groups == 1
    assert Config(**SMALL, head_width=6).d == 6 and Config(**SMALL | {"heads": 5}, head_width=3).d == 3
    assert Config(**SMALL, position="sinusoidal").longest == 16
    assert Config(**SMALL, position="rotary").longest is None is Config(**SMALL, position="relative").longest
    assert Config(**SMALL, first_position=2).longest == 14


def test_a_configuration_is_a_frozen_value():
    config = Config(**SMALL)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.width = 8
    assert config == Config(**SMALL) and hash(config) == hash(Config(**SMALL))
    assert Config(**dataclasses.asdict(config)) == config, "what a checkpoint writes down"
    with pytest.raises(ValueError, match="heads"):
        dataclasses.replace(config, heads=3)


# ------------------------------------------------------------------------------------------------------ bad input

WHOLE = ["vocabulary", "positions", "layers", "width", "heads", "kv_heads", "head_width", "hidden"]
BAD = [{name: value} for name in WHOLE for value in (0, -1, 2.0, True, "4", math.nan)]
BAD += [{name: None} for name in WHOLE[:5]]
BAD += [{name: value} for name in CHOICES for value in ("batch", None, 1, "", [])]
BAD += [{"dropout": value} for value in (1.0, 1, 2.5, -0.1, math.nan, math.inf, "0.1", None, True)]
BAD += [{"heads": 3}, {"heads": 32}, {"kv_heads": 3}, {"kv_heads": 8}]
BAD += [{"position": "rotary", "head_width": 3}, {"position": "sinusoidal", "width": 15, "heads": 5}]  # odd
BAD += [{"dropout": False}]
BAD += [{"epsilon": value} for value in (-1e-5, math.nan, math.inf, "1", None)]
BAD += [{"initial": value} for value in (-0.1, 0.0, math.nan, math.inf, "0.02")]
BAD += [{"segments": value} for value in (-1, 1.5, None, True)]
BAD += [{"first_position": value} for value in (-1, 16, 20, 0.5, None)]
FLAGS = ["norm_first", "bias", "scale_scores", "tied", "head_transform", "head_bias", "head_scaled", "pooler"]
BAD += [{name: "no"} for name in FLAGS]


@pytest.mark.parametrize("options", BAD, ids=str)
def test_bad_options_are_named(options):
    with pytest.raises((ValueError, TypeError), match=rf"^({'|'.join(options)}): got .*expected"):
        Config(**SMALL | options)


def test_an_even_width_has_rotary_and_sinusoidal_positions_and_an_odd_one_has_learned():
    Config(**SMALL | {"position": "rotary", "head_width": 6})
    Config(**SMALL | {"position": "sinusoidal", "width": 30, "heads": 5})
    Config(**SMALL | {"position": "learned", "width": 15, "heads": 5})


@pytest.mark.parametrize("preset", [Config.gpt2, Config.bert, Config.roberta, Config.t5])
def test_an_unknown_size_lists_the_known_ones(preset):
    for size in ("huge", "", None, 7):
        with pytest.raises(ValueError, match="size: got .*expected one of .*large"):
            preset(size)


def test_an_unknown_option_is_named():
    with pytest.raises(TypeError, match="layer_norm"):
        Config(**SMALL, layer_norm=True)


def test_whole_numbers_of_numpy_are_whole_numbers():
    numpy = pytest.importorskip("numpy")
    assert Config(**SMALL | {"width": numpy.int64(16)}) == Config(**SMALL)


@pytest.mark.parametrize("other", [None, {}, "gpt2"])
def test_differences_of_something_else(other):
    with pytest.raises(TypeError, match="got .*expected a Config"):
        differences(Config.gpt2(), other)
