"""What published checkpoints call the parts of a Transformer, beside what they are called here.

Read the tables across: four columns and RoBERTa, one block. ``checkpoints.load`` follows them.
"""

import re

from torch import Tensor

from lmcourse.arguments import whole
from lmcourse.configuration import Config

# What the parts of one block are called. a+b: one matrix below the other. GPT-2 has all three in one, as we do.
# N is T5's last layer of a block: 1 in the encoder, 2 in the decoder, after the cross-attention.
BLOCK = """
ours                               gpt2        bert                           t5
attention.norm                     ln_1        attention.output.LayerNorm     layer.0.layer_norm
attention.sublayer.query_key_value attn.c_attn attention.self.query+key+value layer.0.SelfAttention.q+k+v
attention.sublayer.output          attn.c_proj attention.output.dense         layer.0.SelfAttention.o
cross_attention.norm               -           -                              layer.1.layer_norm
cross_attention.sublayer.query     -           -                              layer.1.EncDecAttention.q
cross_attention.sublayer.key_value -           -                              layer.1.EncDecAttention.k+v
cross_attention.sublayer.output    -           -                              layer.1.EncDecAttention.o
feed_forward.norm                  ln_2        output.LayerNorm               layer.N.layer_norm
feed_forward.sublayer.up           mlp.c_fc    intermediate.dense             layer.N.DenseReluDense.wi
feed_forward.sublayer.down         mlp.c_proj  output.dense                   layer.N.DenseReluDense.wo
"""
LLAMA_BLOCK = """
ours                               llama
attention.norm                     input_layernorm
attention.sublayer.query_key_value self_attn.q_proj+k_proj+v_proj
attention.sublayer.output          self_attn.o_proj
feed_forward.norm                  post_attention_layernorm
feed_forward.sublayer.up           mlp.gate_proj+up_proj
feed_forward.sublayer.down         mlp.down_proj
"""
# What stands around the blocks. #: the number of the block.
AROUND = """
ours                gpt2 bert                                t5                       llama
embedding.tokens    wte  embeddings.word_embeddings          shared                   embed_tokens
embedding.positions wpe  embeddings.position_embeddings      -                        -
embedding.segments  -    embeddings.token_type_embeddings    -                        -
embedding.norm      -    embeddings.LayerNorm                -                        -
stack.blocks.#      h.#  encoder.layer.#                     -                        layers.#
stack.norm          ln_f -                                   -                        norm
encoder.blocks.#    -    -                                   encoder.block.#          -
decoder.blocks.#    -    -                                   decoder.block.#          -
encoder.norm        -    -                                   encoder.final_layer_norm -
decoder.norm        -    -                                   decoder.final_layer_norm -
head.transform.0    -    cls.predictions.transform.dense     -                        -
head.transform.2    -    cls.predictions.transform.LayerNorm -                        -
head.vocabulary     -    cls.predictions                     -                        lm_head
pooler.0            -    pooler.dense                        -                        -
"""
# RoBERTa is BERT with another name for the head; T5 keeps the bias that all blocks share in the first one.
BESIDES = {
    "roberta": {
        "head.transform.0": "lm_head.dense",
        "head.transform.2": "lm_head.layer_norm",
        "head.vocabulary": "lm_head",
    },
    "t5": {
        "encoder.bias.table": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        "decoder.bias.table": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    },
}

# What may stand in a published file besides: the same tensor under a second name,
TWICE = {
    "gpt2": {"lm_head.weight": "wte.weight"},
    "bert": {
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    "roberta": {"lm_head.decoder.weight": "embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"},
    "t5": {f"{name}.weight": "shared.weight" for name in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head")},
    "llama": {"lm_head.weight": "embed_tokens.weight"},
}
# and what a model with one head does not have: constants, BERT's head for the next sentence (there is
# checkpoints.load_next_sentence for it), a table that T5's code never reads.
UNUSED = {
    "gpt2": r"h\.\d+\.attn\.(masked_)?bias",
    "bert": r"embeddings\.position_ids|cls\.seq_relationship\.(weight|bias)",
    "roberta": r"embeddings\.position_ids",
    "t5": r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
    "llama": r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
}
# What config.json must say, where it says it: otherwise the weights would be right and the model wrong.
SETTINGS = {
    "gpt2": dict(activation_function="gelu_new", scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False),
    "bert": dict(hidden_act="gelu", position_embedding_type="absolute", is_decoder=False),
    "roberta": dict(hidden_act="gelu", position_embedding_type="absolute", is_decoder=False, pad_token_id=1),
    "t5": dict(feed_forward_proj="relu", relative_attention_num_buckets=32, relative_attention_max_distance=128),
    "llama": dict(hidden_act="silu", rope_theta=10_000, rope_type="default", rope_scaling=None, attention_bias=False),
}

# What config.json calls our options. Sizes are read from the shapes and have to agree with it.
SAME = {
    "vocabulary": ("vocab_size",),
    "positions": ("n_positions", "max_position_embeddings"),
    "segments": ("type_vocab_size",),
    "layers": ("n_layer", "num_hidden_layers", "num_layers"),
    "width": ("n_embd", "hidden_size", "d_model"),
    "heads": ("n_head", "num_attention_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads",),
    "epsilon": ("layer_norm_epsilon", "layer_norm_eps", "rms_norm_eps"),
}


def names(family: str, layers: int) -> dict[str, list[str]]:
    """Our modules and what a published file calls them: {ours: [theirs]}; where there are several, ours is all of them,
    one below the other.
    """
    column = "bert" if family == "roberta" else family
    around = _column(AROUND, column) | BESIDES.get(family, {})
    block = _column(LLAMA_BLOCK if family == "llama" else BLOCK, column)
    table = {ours: theirs for ours, theirs in around.items() if "#" not in ours}
    for stack in (ours for ours in around if "#" in ours):
        decoder = stack.startswith("decoder")
        for i in range(layers):
            for part, theirs in block.items():
                if decoder or not part.startswith("cross"):
                    theirs = theirs.replace("layer.N", "layer.2" if decoder else "layer.1")
                    table[f"{stack}.{part}".replace("#", str(i))] = f"{around[stack]}.{theirs}".replace("#", str(i))
    return {ours: _stacked(theirs) for ours, theirs in table.items()}


def _column(table: str, family: str) -> dict[str, str]:
    first, *rows = (line.split() for line in table.strip().splitlines())
    return {row[0]: row[first.index(family)] for row in rows if row[first.index(family)] != "-"}


def _stacked(theirs: str) -> list[str]:
    """``attn.k+v`` → ``["attn.k", "attn.v"]``."""
    first, *rest = theirs.split("+")
    return [first, *(first.rpartition(".")[0] + "." + other for other in rest)]


# ------------------------------------------------------------------------------------------ their tensors, our sizes


def tensors(theirs: dict[str, Tensor], family: str) -> dict[str, Tensor]:
    """The tensors of a published file under the names of the tables, matrices as ``nn.Linear`` has them."""
    prefix = {"gpt2": "transformer.", "llama": "model."}.get(family, f"{family}.")
    found = {}
    for name, x in theirs.items():
        name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))  # of norms, as TensorFlow called them
        name = name.removeprefix(prefix)
        if name in found:
            raise ValueError(f"{name}: got it twice, with and without {prefix!r} or an old name, expected it once")
        found[name] = _linear(name, x) if family == "gpt2" else x
    return found


def _linear(name: str, x: Tensor) -> Tensor:
    """GPT-2 writes xW with W (in, out): → ``nn.Linear``'s (out, in)."""
    turned = x.ndim == 2 and re.search(r"\.(c_attn|c_proj|c_fc)\.weight$", name)
    return x.mT.contiguous() if turned else x


def layers(theirs: dict[str, Tensor], family: str) -> int:
    """How many blocks there are."""
    pattern = {"gpt2": "h", "t5": "encoder.block", "llama": "layers"}.get(family, "encoder.layer")
    return len({found[1] for name in theirs if (found := re.match(rf"{pattern}\.(\d+)\.", name))})


def config(theirs: dict[str, Tensor], family: str, settings: dict, heads: int | None = None) -> Config:
    """The sizes, from the shapes; the number of heads is not in them (but for T5) and comes from ``settings``."""
    told = {ours: settings[name] for ours, known in SAME.items() for name in known if name in settings}
    sizes = _sizes(theirs, family, told.get("heads") if heads is None else heads)
    for name in sizes.keys() & told.keys():
        if sizes[name] != told[name]:
            raise ValueError(f"{name}: got {sizes[name]}, expected {told[name]} as in config.json, for this file")
    options = dict(epsilon=told["epsilon"]) if "epsilon" in told else {}
    if family in ("bert", "roberta"):
        options |= dict(pooler="pooler.dense.weight" in theirs)
    if family == "llama":
        options |= dict(tied="lm_head.weight" not in theirs and settings.get("tie_word_embeddings") is not False)
    return getattr(Config, family)(**sizes | options)


def _sizes(theirs: dict[str, Tensor], family: str, heads: int | None) -> dict[str, int | None]:
    table, block = names(family, 1), "encoder.blocks.0" if family == "t5" else "stack.blocks.0"

    def shape(ours: str, which: int = 0) -> tuple[int, int]:
        return _shape(theirs, f"{table[ours][which]}.weight", family)

    (V, D), wide = shape("embedding.tokens"), shape(f"{block}.attention.sublayer.output")[1]
    H = _heads(shape("encoder.bias.table")[1] if family == "t5" else heads, wide)
    sizes = dict(vocabulary=V, layers=layers(theirs, family), width=D, heads=H)
    sizes |= {name: shape(f"embedding.{name}")[0] for name in ("positions", "segments") if f"embedding.{name}" in table}
    sizes |= dict(hidden=shape(f"{block}.feed_forward.sublayer.up")[0], head_width=wide // H)
    if family == "llama":
        sizes |= dict(kv_heads=_groups(shape(f"{block}.attention.sublayer.query_key_value", 1)[0], wide // H))
    usual = dict(hidden=4 * D, head_width=D / H, kv_heads=H)  # which Config writes as None
    return {name: None if size == usual.get(name) else size for name, size in sizes.items()}


def _shape(theirs: dict[str, Tensor], name: str, family: str) -> tuple[int, int]:
    if name not in theirs:
        raise ValueError(f"got no {name}, expected a file of {family}; it has {shortened(theirs)}")
    if theirs[name].ndim != 2:
        raise ValueError(f"{name}: got shape {list(theirs[name].shape)}, expected a matrix")
    return tuple(theirs[name].shape)


def _heads(heads: int | None, wide: int) -> int:
    if heads is None:
        raise ValueError("heads: got none, and no config.json beside the file, expected their number; give heads=12")
    whole("heads", heads)
    if wide % heads:
        raise ValueError(f"heads: got {heads}, expected a divisor of {wide}, the width of all queries")
    return heads


def _groups(rows: int, d: int) -> int:
    if rows % d or not rows:
        raise ValueError(f"k_proj: got {rows} rows, expected a multiple of {d}, the width of a head; is heads right?")
    return rows // d


def shortened(found, most: int = 5) -> str:
    """The first names of ``found``, sorted, and how many more there are."""
    found = sorted(found)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return (", ".join(found[:most]) or "nothing") + more
