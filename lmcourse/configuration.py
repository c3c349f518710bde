"""All in which the Transformers of this course differ, but for masks, objectives and cross-attention."""

from dataclasses import dataclass, fields, replace
from numbers import Integral

from lmcourse.arguments import is_number, kind

CHOICES = {
    "norm": ("layer", "rms"),
    "activation": ("gelu", "gelu_tanh", "relu", "geglu", "swiglu"),
    "position": ("learned", "sinusoidal", "relative", "rotary"),
}


@dataclass(frozen=True)
class Config:
    """The sizes and options of ``transformer.Block`` and what stands around the blocks.

    The defaults are the course's own: GPT, BERT and T5 from one such configuration differ in mask, objective and
    cross-attention only. The published models differ in more:

    ==============  ==========  =========  =========  ========  ===========
    option          course      GPT-2      BERT       T5        Llama-style
    ==============  ==========  =========  =========  ========  ===========
    norm            layer       layer      layer      rms       rms
    norm_first      yes         yes        no         yes       yes
    activation      gelu        gelu_tanh  gelu       relu      swiglu
    bias            yes         yes        yes        no        no
    position        learned     learned    learned    relative  rotary
    segments        0           0          2          0         0
    scale_scores    yes         yes        yes        no        yes
    tied            yes         yes        yes        yes       no
    head_transform  no          no         yes        no        no
    head_bias       no          no         yes        no        no
    head_scaled     no          no         no         yes       no
    pooler          no          no         yes        no        no
    ==============  ==========  =========  =========  ========  ===========

    The course's checkpoints are made with rotary positions (``recipes/``): learned ones ask for more text.

    RoBERTa is BERT with one segment, a larger vocabulary, ε 1e-5 and positions counted from 2. BERT's ε is 1e-12, T5's
    1e-6. All were trained with dropout 0.1, which is 0 here unless asked for. BERT's GELU is the exact one of the usual
    readers of its checkpoints.
    """

    vocabulary: int  # V
    positions: int = 512  # rows of the table, so the longest sequence; rotary and relative ones do not set a limit
    layers: int = 4
    width: int = 256  # D
    heads: int = 4  # H
    kv_heads: int | None = None  # heads of keys and values, shared by the H (grouped-query attention); None: H
    head_width: int | None = None  # d; None: D / H
    hidden: int | None = None  # of the feed-forward layer; None: 4 D
    norm: str = "layer"
    norm_first: bool = True  # before each sublayer and at the end; if not, after each sublayer and the embedding
    epsilon: float = 1e-5  # in the norms, under the root
    activation: str = "gelu"  # geglu and swiglu multiply by a gate
    window: int | None = None  # in a causal stack a query sees so many keys, itself included; None: all
    bias: bool = True  # in the blocks
    dropout: float = 0.0  # of embeddings, attention weights and what a sublayer adds
    position: str = "learned"
    first_position: int = 0  # the row of the first token in the table of learned positions
    segments: int = 0  # vectors for the parts of a text; where none are given, all tokens are in part 0
    scale_scores: bool = True  # by 1/√d
    tied: bool = True  # the head's matrix is the embedding
    head_transform: bool = False  # BERT's head: a layer with GELU and norm before the matrix
    head_bias: bool = False
    head_scaled: bool = False  # T5's head, where it is tied: states times 1/√D
    pooler: bool = False  # for BERT's classifiers; other models have none
    initial: float | None = 0.02  # standard deviation of the matrices; None: 1/√(fan-in), as T5

    def __post_init__(self):
        for field in fields(self):
            self._check(field.name, getattr(self, field.name), field.default)
        if self.head_width is None and self.width % self.heads:
            raise ValueError(f"heads: got {self.heads}, expected a divisor of width {self.width}; or give head_width")
        if self.heads % self.groups:
            raise ValueError(f"kv_heads: got {self.kv_heads}, expected a divisor of the {self.heads} heads")
        if self.position == "rotary" and self.d % 2:
            raise ValueError(f"head_width: got {self.d}, expected an even number; rotary positions turn pairs")
        if self.position == "sinusoidal" and self.width % 2:
            raise ValueError(f"width: got {self.width}, expected an even number; sinusoids come in pairs")
        if self.first_position >= self.positions:
            raise ValueError(f"first_position: got {self.first_position}, expected below {self.positions}")

    def _check(self, name: str, value, default) -> None:
        if name in CHOICES:
            right, expected = value in CHOICES[name], f"one of {', '.join(CHOICES[name])}"
        elif isinstance(default, bool):
            right, expected = isinstance(value, bool), "True or False"
        elif name == "dropout":
            right, expected = is_number(value) and 0 <= value < 1, "a number from 0 on, below 1"
        elif name in ("epsilon", "initial"):
            right = is_number(value) and 0 < value < 1 or name == "initial" and value is None
            expected = "a number between 0 and 1"
        else:
            least = 0 if name in ("segments", "first_position") else 1
            optional = default is None and value is None
            right = optional or isinstance(value, Integral) and not isinstance(value, bool) and value >= least
            expected = f"a whole number from {least} on"
        if not right:
            raise ValueError(f"{name}: got {value!r}, expected {expected}")
        if isinstance(value, Integral) and not isinstance(value, bool):
            object.__setattr__(self, name, int(value))  # numpy's integers would not go into a JSON file

    @property
    def groups(self) -> int:
        """G: how many heads have keys and values of their own."""
        return self.kv_heads or self.heads

    @property
    def d(self) -> int:
        """The width of one head."""
        return self.head_width or self.width // self.heads

    @property
    def longest(self) -> int | None:
        """The longest sequence that has positions, None where there is no limit."""
        return self.positions - self.first_position if self.position in ("learned", "sinusoidal") else None

    # ------------------------------------------------------------------------------------ published models

    @classmethod
    def gpt2(cls, size: str = "small", **changes) -> "Config":
        """Radford et al. 2019: small (124M), medium (355M), large (774M), xl (1558M)."""
        sizes = {"small": (12, 768, 12), "medium": (24, 1024, 16), "large": (36, 1280, 20), "xl": (48, 1600, 25)}
        options = dict(vocabulary=50_257, positions=1024, activation="gelu_tanh")
        return cls(**_size(sizes, size) | options | changes)

    @classmethod
    def bert(cls, size: str = "base", **changes) -> "Config":
        """Devlin et al. 2019, uncased: base, large; minilm is a sentence encoder, after Wang et al. 2020."""
        sizes = {"base": (12, 768, 12), "large": (24, 1024, 16), "minilm": (6, 384, 12)}
        options = dict(vocabulary=30_522, norm_first=False, epsilon=1e-12, segments=2)
        options |= dict(head_transform=True, head_bias=True, pooler=True)
        return cls(**_size(sizes, size) | options | changes)

    @classmethod
    def roberta(cls, size: str = "base", **changes) -> "Config":
        """Liu et al. 2019: base, large, with the pooler that their checkpoints' usual readers add."""
        options = dict(vocabulary=50_265, positions=514, first_position=2, segments=1, epsilon=1e-5)
        return cls.bert(size, **options | changes)

    @classmethod
    def t5(cls, size: str = "small", **changes) -> "Config":
        """Raffel et al. 2020, v1.0: small, base, large. ``layers`` blocks in the encoder and as many in the decoder."""
        sizes = {"small": (6, 512, 8), "base": (12, 768, 12), "large": (24, 1024, 16)}
        options = dict(vocabulary=32_128, norm="rms", epsilon=1e-6, activation="relu", bias=False, position="relative")
        options |= dict(scale_scores=False, head_scaled=True, initial=None)
        return cls(**_size(sizes, size) | options | changes)

    @classmethod
    def llama(cls, vocabulary: int, **changes) -> "Config":
        """The block of Touvron et al. 2023 at a size of your choice: RMSNorm, SwiGLU, rotary positions, no biases.

        The hidden width is 8/3 D unless given: three matrices then hold what two of 4 D hold. Meta's models
        round that up, to 11,008 for 4096.
        """
        options = dict(norm="rms", activation="swiglu", bias=False, position="rotary", tied=False)
        config = cls(vocabulary, **options | changes)
        return config if "hidden" in changes else replace(config, hidden=8 * config.width // 3)


def _size(sizes: dict[str, tuple[int, int, int]], size: str) -> dict[str, int]:
    if size not in sizes:
        raise ValueError(f"size: got {size!r}, expected one of {', '.join(sizes)}")
    return dict(zip(("layers", "width", "heads"), sizes[size]))


def differences(first: Config, second: Config) -> dict[str, tuple]:
    """The options in which two configurations differ: {name: (first's, second's)}."""
    kind("first", first, Config, "use Config(vocabulary)")
    kind("second", second, Config, "use Config(vocabulary)")
    pairs = {f.name: (getattr(first, f.name), getattr(second, f.name)) for f in fields(Config)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
