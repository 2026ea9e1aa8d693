"""Kernel packs on disk: one folder for each library, named after its build id.

Beside the files that the driver reads (``src/softgpu/packs/pack_folder.h``) stands ``pack.json``: what was built from what.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from gpupool.kernel_packs.errors import PackError
from gpupool.kernel_packs.library import FatBinary, Frame, Library, problem_of, read_kernels, write_kernels

#: Read by the driver too (src/softgpu/driver/described/settings.h).
FOLDER: Final = "GPUPOOL_SOFTGPU_KERNEL_PACKS"

_BUILD_ID: Final = re.compile(r"[0-9a-f]{8,128}")


@dataclass(frozen=True, slots=True)
class BuiltFile:
    """What one source file gave.

    Attributes:
        recipe: digest of the source, the compiler and its options.
        digests: of the machine code that it stands for; empty if the library has none of the file's kernels.
        kernels: how many can be used.
        absent: kernels of the machine code that the source does not have.
        other_parameters: kernels that were left out, because the machine code takes other parameters.
    """

    recipe: str
    kernel_file: str
    digests: tuple[str, ...]
    kernels: int
    absent: tuple[str, ...] = ()
    other_parameters: tuple[str, ...] = ()


@dataclass(slots=True)
class Pack:
    """A library's pack."""

    build_id: str
    library: str  # file name
    product: str  # "torch 2.6.0"
    python: str = ""  # of PyTorch's packs: what they were built for,
    source: str = ""  # and where its sources are
    files: dict[str, BuiltFile] = field(default_factory=dict)

    @property
    def kernels(self) -> int:
        """How many kernels can be used."""
        return sum(file.kernels for file in self.files.values())


def default_folder(environment: Mapping[str, str]) -> Path:
    """Where packs are, as the driver looks for them.

    Raises:
        PackError: the environment names no folder and no home.
    """
    if (named := environment.get(FOLDER, "")).startswith("/"):
        return Path(named)
    if (data := environment.get("XDG_DATA_HOME", "")).startswith("/"):
        return Path(data) / "gpupool" / "kernel-packs"
    if (home := environment.get("HOME", "")).startswith("/"):
        return Path(home) / ".local" / "share" / "gpupool" / "kernel-packs"
    raise PackError(f"set {FOLDER} to the folder for kernel packs: there is no HOME")


class Store:
    """All packs below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def packs(self) -> Iterator[Pack]:
        """Every pack that can be read."""
        for path in sorted(self.folder.glob("*/pack.json")):
            pack = self._read(path)
            if pack is not None:
                yield pack

    def unreadable(self) -> list[Path]:
        """What should say what is in a pack, and cannot be read."""
        return [path for path in sorted(self.folder.glob("*/pack.json")) if self._read(path) is None]

    def pack_of(self, library: Library, product: str) -> Pack:
        """The pack of a library, empty if there is none."""
        found = self._read(self.path(library.build_id) / "pack.json")
        return found or Pack(library.build_id, library.path.name, product)

    def path(self, build_id: str) -> Path:
        """The folder of a pack.

        Raises:
            PackError: that is no build id.
        """
        if not _BUILD_ID.fullmatch(build_id):
            raise PackError(f"{build_id[:40]!r} is no build id; see gpupool kernel-packs list")
        return self.folder / build_id

    def size(self, build_id: str) -> int:
        """Bytes of a pack on disk."""
        return sum(file.stat().st_size for file in self.path(build_id).iterdir())

    def add(
        self,
        pack: Pack,
        library: Library,
        origins: Mapping[FatBinary, str],
        built: Mapping[str, BuiltFile] | None = None,
    ) -> None:
        """Adds files to a pack and writes it, with the index for the driver. Kernel files were written before.

        Several builds may add to one pack at a time: what another one has added since stays, and is in ``pack`` afterwards.

        Args:
            pack: what it is called, and what it is built from.
            library: what it is for.
            origins: which source file a fat binary comes from.
            built: the new files, by name.

        Raises:
            PackError: a file cannot be written.
        """
        folder = self.path(pack.build_id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(folder):
            now = self._read(folder / "pack.json")
            pack.files = {**(now.files if now else {}), **(built or {})}
            kernel_files = _kernel_files(pack, folder, built or {})
            _replace(folder / "pack.json", json.dumps(asdict(pack), indent=1))
            _replace(
                folder / "index",
                "".join(f"{line}\n" for line in _index(pack, library, origins, kernel_files)),
            )

    def remove(self, build_id: str) -> None:
        """Deletes a pack.

        Raises:
            PackError: there is none.
        """
        folder = self.path(build_id)
        if not folder.is_dir():
            raise PackError(f"there is no kernel pack {build_id} in {self.folder}")
        shutil.rmtree(folder)

    def _read(self, path: Path) -> Pack | None:
        try:
            record = json.loads(path.read_text())
            files = {name: _built_file(each) for name, each in record["files"].items()}
            return Pack(
                record["build_id"],
                record["library"],
                record["product"],
                record["python"],
                record["source"],
                files,
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _built_file(record: Mapping[str, object]) -> BuiltFile:
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
    return BuiltFile(**values)  # type: ignore[arg-type]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """While another build writes this pack, waits."""
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def merged(parts: Iterable[Sequence[Frame]]) -> list[Frame]:
    """Frames of several files. If two have the same kernel, as two files have that use one template, the first one counts."""
    frames: list[Frame] = []
    have: set[str] = set()
    for frame in (frame for part in parts for frame in part):
        if have.isdisjoint(frame.names):
            frames.append(frame)
            have.update(frame.names)
    return frames


def _readable(kernel_file: Path) -> list[Frame]:
    """Nothing of a file that is damaged: `gpupool kernel-packs verify` names it, and a build makes it again."""
    try:
        return read_kernels(kernel_file)
    except PackError:
        return []


def _kernel_files(pack: Pack, folder: Path, new: Mapping[str, BuiltFile]) -> dict[str, str]:
    """Which kernel file stands for a piece of machine code.

    Machine code that was linked from several source files has the kernels of them all: theirs are put into one file.
    """
    files_of: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, file in pack.files.items():
        if file.kernels:
            files_of[file.digests].append(name)
    found: dict[str, str] = {}
    for digests, names in files_of.items():
        kernel_file = pack.files[names[0]].kernel_file
        if len(names) > 1:
            kernel_file = f"merged-{digests[0][:16]}.kernels"
            if not new.keys().isdisjoint(names) or problem_of(folder / kernel_file) is not None:
                parts = (_readable(folder / pack.files[name].kernel_file) for name in names)
                write_kernels(folder / kernel_file, merged(parts))
        found |= dict.fromkeys(digests, kernel_file)
    return found


def _index(
    pack: Pack, library: Library, origins: Mapping[FatBinary, str], built: Mapping[str, str]
) -> Iterator[str]:
    yield f"gpupool-kernel-pack 1 {pack.library} of {pack.product}"
    for each in library.fat_binaries:
        source = origins.get(each, "-")
        for digest in each.digests if not each.has_ptx else ():
            yield f"built {digest} {built[digest]}" if digest in built else f"missing {digest} {source}"


def _replace(path: Path, text: str) -> None:
    unfinished = path.with_name(path.name + ".new")
    with unfinished.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
