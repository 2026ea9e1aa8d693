"""Which of NVIDIA's math libraries this machine has: workers give clients' operations to them on a real GPU.

They come with the extras ``jupyter-gpupool[cuda12]`` and ``[cuda13]`` (wheels beside this program), with a toolkit that
the system's loader knows, or from folders that the administrator names.
"""

from __future__ import annotations

import ctypes.util
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

#: Read by workers: folders, separated by colons.
VARIABLE: Final = "GPUPOOL_MATH_LIBRARIES"
#: By what users call them; the majors that workers open (src/worker/libraries).
LIBRARIES: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "cuBLAS": ("cublas", (13, 12)),
    "cuBLASLt": ("cublasLt", (13, 12)),
    "cuDNN": ("cudnn", (9,)),
    "cuFFT": ("cufft", (12, 11)),
    "cuRAND": ("curand", (10,)),
    "cuSOLVER": ("cusolver", (12, 11)),
    "cuSPARSE": ("cusparse", (12,)),
}
#: Of CUDA 13, which a driver of CUDA 12 does not start.
_OF_CUDA_13: Final[Mapping[str, int]] = {"cuBLAS": 13, "cuBLASLt": 13, "cuFFT": 12, "cuSOLVER": 12}
_CUDA_13: Final = 13000


class FolderUnusableError(Exception):
    """A folder that the administrator named is none; the sentence says which."""


@dataclass(frozen=True, slots=True)
class MathLibraries:
    """What was found.

    Attributes:
        folders: where workers look; empty: where the system's loader does.
        versions: the major of each library that is there, by its name.
    """

    folders: tuple[Path, ...] = ()
    versions: Mapping[str, int] | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in LIBRARIES if name not in (self.versions or {}))

    def environment(self) -> dict[str, str]:
        """What workers are told. The loader is told too: the libraries open parts of themselves, and each other, by name."""
        if not self.folders:
            return {}
        folders = ":".join(map(str, self.folders))
        own = os.environ.get("LD_LIBRARY_PATH")
        return {VARIABLE: folders, "LD_LIBRARY_PATH": f"{folders}:{own}" if own else folders}


def find(
    named: Sequence[Path] = (),
    *,
    cuda: int = _CUDA_13,
    of_the_system: Callable[[str], str | None] = ctypes.util.find_library,
) -> MathLibraries:
    """The libraries of the named folders, else of wheels, else of the system. Takes up to a second: call it in a thread.

    Args:
        named: by the administrator.
        cuda: the driver's version of CUDA as ``cuDriverGetVersion`` has it, 12040 for 12.4: libraries for a newer one are
            passed over, as workers do.
        of_the_system: finds a library's file name.

    Raises:
        FolderUnusableError: a named folder is none.
    """
    for folder in named:
        if not folder.is_dir():
            raise FolderUnusableError(f"{str(folder)[:200]!r} is no folder")
        if ":" in str(folder):
            raise FolderUnusableError(f"{str(folder)[:200]!r} has a colon, which separates folders")
    if named:
        folders = tuple(folder.absolute() for folder in named)
        return MathLibraries(folders, dict(_in_folders(folders, cuda)))
    # All of them: the libraries need others, such as nvJitLink, that lie in wheels of their own.
    wheels = tuple(folder for folder in _wheel_folders() if cuda >= _CUDA_13 or "cu13" not in folder.parts)
    if found := dict(_in_folders(wheels, cuda)):
        return MathLibraries(wheels, found)
    return MathLibraries((), dict(_of_the_system(of_the_system, cuda)))


def _majors(name: str, cuda: int) -> tuple[int, ...]:
    """What a driver starts, the best first."""
    _, majors = LIBRARIES[name]
    return tuple(major for major in majors if cuda >= _CUDA_13 or major != _OF_CUDA_13.get(name))


def _wheel_folders() -> Iterator[Path]:
    """NVIDIA's wheels share a package without a module: ``nvidia/<name>/lib``."""
    spec = find_spec("nvidia")
    for place in spec.submodule_search_locations or () if spec is not None else ():
        yield from sorted(Path(place).glob("*/lib"))


def _in_folders(folders: Iterable[Path], cuda: int) -> Iterator[tuple[str, int]]:
    places = tuple(folders)
    for name, (file, _) in LIBRARIES.items():
        for major in _majors(name, cuda):
            if any((folder / f"lib{file}.so.{major}").exists() for folder in places):
                yield name, major
                break


def _of_the_system(find_library: Callable[[str], str | None], cuda: int) -> Iterator[tuple[str, int]]:
    for name, (file, _) in LIBRARIES.items():
        soname = find_library(file)
        version = re.search(r"\.so\.(\d+)", soname or "")
        if version is not None and int(version[1]) in _majors(name, cuda):
            yield name, int(version[1])
