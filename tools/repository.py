"""Moves the course to another GitHub address: ``python tools/repository.py https://github.com/OWNER/NAME``.

The address stands in ``_config.yml`` (``repository.url``). This rewrites it there and in every other
tracked text file: the notebooks' setup cells, Colab buttons, the package's metadata, the citation.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

import pairs

ROOT = Path(__file__).resolve().parents[1]
_ADDRESS = re.compile(r"https://github\.com/([A-Za-z0-9](?:[A-Za-z0-9-]{0,38}))/([A-Za-z0-9._-]{1,100}?)(?:\.git)?/?")


def parse(url: str) -> tuple[str, str]:
    """(owner, name) of ``https://github.com/owner/name``; ``ValueError`` says what else was given."""
    match = _ADDRESS.fullmatch(url.strip()) if isinstance(url, str) else None
    if not match or set(match[2]) <= {"."}:
        raise ValueError(f"URL: got {url!r}, expected https://github.com/OWNER/NAME")
    return match[1], match[2]


def current(root: Path = ROOT) -> tuple[str, str]:
    """(owner, name) of the address that ``_config.yml`` states."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    try:
        return parse(config["repository"]["url"])
    except (KeyError, TypeError) as error:
        raise ValueError("_config.yml: repository.url is missing; put the course's address there") from error


def replace(text: bytes, old: tuple[str, str], new: tuple[str, str]) -> bytes:
    """The text with each address of the repository and of its GitHub Pages changed.

    A longer name that begins like the old one (``name-2``, ``name.github.io``) is another repository.
    """
    owner, name = (re.escape(part).encode() for part in old)
    hosts = rb"(github\.com/|colab\.research\.google\.com/github/|raw\.githubusercontent\.com/)"
    end = rb"(?![\w-]|\.(?!git\b)\w)"
    to = "/".join(new).encode()
    text = re.sub(hosts + owner + rb"/" + name + end, lambda m: m[1] + to, text)
    pages = f"{new[0].lower()}.github.io/{new[1]}".encode()
    return re.sub(rb"(?<![\w.-])" + owner.lower() + rb"\.github\.io/" + name + end, lambda m: pages, text)


def tracked(root: Path) -> list[Path]:
    """The regular files that git tracks in ``root``."""
    done = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=False)
    if done.returncode:
        raise ValueError(f"{root} is not a git repository: {done.stderr.decode(errors='replace').strip()}")
    paths = (root / os.fsdecode(name) for name in done.stdout.split(b"\0") if name)
    return [p for p in paths if p.is_file() and not p.is_symlink()]


def write(path: Path, text: bytes) -> None:
    """The whole new file or, if anything fails, the whole old one; the file's mode is kept."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        os.chmod(temporary, path.stat().st_mode if path.exists() else 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def rewrite(url: str, root: Path = ROOT) -> list[Path]:
    """Changes the address to ``url`` in all tracked text files of ``root``; the files that changed.

    ``_config.yml`` goes last: if a run is interrupted, the old address is still known and the same
    command finishes the work. A file with a NUL byte is not text.
    """
    new, old = parse(url), current(root)
    changes = {}
    for path in tracked(root):
        text = path.read_bytes()
        if b"\0" not in text and (changed := replace(text, old, new)) != text:
            changes[path] = changed
    config = root / "_config.yml"
    for path in sorted(changes.keys() - {config}):
        write(path, changes[path])
    for path in tracked(root):
        if path.suffix == ".ipynb" and path.with_suffix(".py").is_file():
            identify(path)
    if config in changes:
        write(config, changes[config])
    return sorted(changes)


def identify(path: Path) -> None:
    """Gives the cells of a pair's ``.ipynb`` the ids that belong to their changed text."""
    text, fresh = path.read_text(encoding="utf-8"), pairs.read(path.with_suffix(".py")).cells
    cells = json.loads(text)["cells"]
    if [c.source for c in fresh] != ["".join(c["source"]) for c in cells]:
        return  # not in step with its .py, which a test reports
    changed = text
    for old, new in zip(cells, fresh, strict=True):
        changed = changed.replace(f'"id": "{old["id"]}"', f'"id": "{new.id}"', 1)
    if changed != text:
        write(path, changed.encode())


def warning(root: Path) -> str:
    """A line for those who publish a tree that has the solutions in it; nothing otherwise."""
    if not (root / "teaching" / "solutions").is_dir():
        return ""
    return (
        "Careful: teaching/solutions is here, and students can read what you publish. "
        "CONTRIBUTING.md, 'A fork, and your own course', says how to leave it out.\n"
    )


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not arguments[0].strip():
        print("use: make repository URL=https://github.com/OWNER/NAME", file=sys.stderr)
        return 2
    try:
        changed = rewrite(arguments[0], ROOT)
    except ValueError as error:
        print(f"{error}; nothing was changed", file=sys.stderr)
        return 2
    for path in changed:
        print(path.relative_to(ROOT))
    owner, name = current(ROOT)
    print(f"{len(changed)} files changed; the address is https://github.com/{owner}/{name}")
    print(warning(ROOT), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
