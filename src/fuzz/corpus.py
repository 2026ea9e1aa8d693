"""The kept inputs of the fuzz targets: one archive each, `corpus/TARGET.tar.xz`.

    corpus.py unpack FOLDER [TARGET...]   into FOLDER/TARGET, in place of what lies there
    corpus.py add TARGET FILE...          keeps further inputs; folders stand for all files in them
    corpus.py list [TARGET...]

The same inputs give the same archive. An input that is kept already, under any name, is not added again.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import lzma
import shutil
import sys
import tarfile
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"


def archive_of(target: str, corpus: Path = CORPUS) -> Path:
    return corpus / f"{target}.tar.xz"


def targets(corpus: Path = CORPUS) -> list[str]:
    return sorted(path.name.removesuffix(".tar.xz") for path in corpus.glob("*.tar.xz"))


def read(target: str, corpus: Path = CORPUS) -> dict[str, bytes]:
    """The inputs by name."""
    inputs: dict[str, bytes] = {}
    with tarfile.open(archive_of(target, corpus), "r:xz") as archive:
        for member in archive:
            if not member.isfile() or "/" in member.name:
                raise SystemExit(
                    f"{archive_of(target, corpus)}: {member.name!r} is not a file of the top folder"
                )
            content = archive.extractfile(member)
            assert content is not None
            inputs[member.name] = content.read()
    return inputs


def write(target: str, inputs: dict[str, bytes], corpus: Path = CORPUS) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in sorted(inputs.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    archive_of(target, corpus).write_bytes(lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def unpack(folder: Path, names: list[str]) -> None:
    for target in names or targets():
        place = folder / target
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for name, content in read(target).items():
            (place / name).write_bytes(content)


def add(target: str, given: list[Path], corpus: Path = CORPUS) -> int:
    """How many inputs are new."""
    inputs = read(target, corpus) if archive_of(target, corpus).exists() else {}
    known = set(inputs.values())
    files = [file for path in given for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    before = len(inputs)
    for file in files:
        if file.is_dir() or (content := file.read_bytes()) in known:
            continue
        known.add(content)
        # libFuzzer calls an input by its digest, a finding `crash-DIGEST`; other names say what it is about.
        digest = hashlib.sha1(content).hexdigest()
        name = digest[:16] if file.name.endswith(digest) else file.name
        inputs[name if name not in inputs else f"{name}-{digest[:16]}"] = content
    if len(inputs) != before:
        write(target, inputs, corpus)
    return len(inputs) - before


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    unpacking = commands.add_parser("unpack")
    unpacking.add_argument("folder", type=Path)
    unpacking.add_argument("targets", nargs="*")
    adding = commands.add_parser("add")
    adding.add_argument("target")
    adding.add_argument("files", type=Path, nargs="+")
    listing = commands.add_parser("list")
    listing.add_argument("targets", nargs="*")
    wanted = parser.parse_args()
    if wanted.command == "unpack":
        unpack(wanted.folder, wanted.targets)
    elif wanted.command == "add":
        print(f"{wanted.target}: {add(wanted.target, wanted.files)} new inputs")
    else:
        for target in wanted.targets or targets():
            for name, content in sorted(read(target).items()):
                print(f"{target}/{name} {len(content)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
