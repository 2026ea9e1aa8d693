"""Compiles source files to PTX and puts what fits a library into its kernel pack."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpupool.kernel_packs import cub
from gpupool.kernel_packs.bind import Bound, Module, Names, bind, read_module
from gpupool.kernel_packs.errors import PackError
from gpupool.kernel_packs.library import FatBinary, Library, own_texts, problem_of, write_kernels
from gpupool.kernel_packs.origins import find_origins
from gpupool.kernel_packs.ptx_text import NotPtxError
from gpupool.kernel_packs.store import BuiltFile, Pack, Store, merged

#: PTX for this architecture runs on every software GPU of compute capability 8.0 and more.
ARCHITECTURE: Final = "compute_80"
#: Changes with the rules by which PTX is bound, so that what was bound by others is built again.
BINDING: Final = "2"
#: Characters of a compiler's error that are shown.
_MOST_SAID: Final = 400


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the files of a product are compiled.

    Attributes:
        product: in words, with its version.
        sources: path of each file, by the name that users say.
        options: of the compiler.
        headers: folders of headers from which only `made_from_headers` are made: they may come later.
        headers_version: changes with what is in them.
        made_from_headers: files.
        without_headers: why these can't be compiled if there are no such headers.
        work: a folder that is another one at each run; what is in it is the same.
        python, source: of PyTorch; where they were found, so that a file can be added without saying it again.
    """

    product: str
    sources: Mapping[str, Path]
    options: tuple[str, ...]
    headers: tuple[str, ...] = ()
    headers_version: str = ""
    made_from_headers: frozenset[str] = frozenset()
    without_headers: str = ""
    python: str = ""
    source: str = ""
    work: str = ""

    def obstacle(self, file: str) -> str:
        """Why a file can't be compiled; empty if nothing is known against it."""
        return self.without_headers if file in self.made_from_headers and not self.headers else ""

    @property
    def lasting_options(self) -> tuple[str, ...]:
        """The options without what is another one at each run."""
        return tuple(option.replace(self.work, "") if self.work else option for option in self.options)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file.

    Attributes:
        problem: empty if it is in the pack.
        left_out: why kernels of it are not in the pack, if that has one reason.
    """

    file: str
    built: BuiltFile | None = None
    problem: str = ""
    was_there: bool = False
    left_out: str = ""


def build(
    recipe: Recipe, library: Library, store: Store, nvcc: Path, files: Sequence[str], jobs: int
) -> Iterator[Outcome]:
    """Builds files, ``jobs`` at a time, and yields each outcome when it is on disk.

    A file that was built from the same source with the same options is not compiled again, if its kernels can be read.
    """
    pack = store.pack_of(library, recipe.product)
    pack.product, pack.python, pack.source = recipe.product, recipe.python, recipe.source
    names = Names(library.fat_binaries)
    origins = find_origins(library.fat_binaries, recipe.sources)
    store.add(pack, library, origins)
    ours, theirs = _version_of_cub(nvcc, recipe.options), cub.version_of(library)
    other_cub = ""
    if theirs is not None and ours != theirs:
        other_cub = f"CUB is {cub.shown(theirs)} in {library.path.name}, " + (
            f"and {cub.shown(ours)} in {nvcc}" if ours is not None else f"and {nvcc} has none"
        )
    digest = _Recipes(nvcc, [*recipe.lasting_options, f"CUB {ours}"], recipe)

    def make(file: str) -> Outcome:
        if obstacle := recipe.obstacle(file):
            return Outcome(file, problem=obstacle)
        try:
            return _make(file, recipe, pack, names, store, nvcc, digest(file), other_cub)
        except (PackError, NotPtxError) as error:
            return Outcome(file, problem=str(error))

    with ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(make, files):
            if outcome.built is not None and not outcome.was_there:
                store.add(pack, library, origins, {outcome.file: outcome.built})
            yield outcome


def build_from_itself(product: str, library: Library, store: Store) -> Iterator[Outcome]:
    """Puts the library's own PTX into its pack; yields an outcome for each fat binary that gets some. Nothing is compiled.

    A library that was compiled in parts and then linked (`nvcc -rdc=true`) holds the parts with their PTX, which no driver
    looks at, and the linked machine code without any.

    Raises:
        PackError: there is no such PTX, or the pack cannot be written.
    """
    pack = store.pack_of(library, product)
    names = Names(library.fat_binaries)
    parts: dict[FatBinary, list[Bound]] = {}
    for text in own_texts(library.path):
        module = _read_part(text)
        if module is not None and (fat_binary := names.best(module.kernels)) is not None:
            parts.setdefault(fat_binary, []).append(bind(module, fat_binary))
    if not any(bound.frames for of_one in parts.values() for bound in of_one):
        raise PackError(
            f"{library.path} holds no PTX of machine code that has none; name its source files: --file PATH"
        )
    store.add(pack, library, {})
    for number, (fat_binary, of_one) in enumerate(parts.items(), 1):
        file = f"linked-{number}"
        outcome = Outcome(file, _built_of_parts(f"{file}.kernels", fat_binary, of_one, store, pack))
        assert outcome.built is not None
        store.add(pack, library, {}, {file: outcome.built})
        yield outcome


def _read_part(text: str) -> Module | None:
    try:
        return read_module(text)
    except NotPtxError:
        return None


def _built_of_parts(
    kernel_file: str, fat_binary: FatBinary, parts: Sequence[Bound], store: Store, pack: Pack
) -> BuiltFile:
    frames = merged(bound.frames for bound in parts)
    have = {name for frame in frames for name in frame.names}
    write_kernels(store.path(pack.build_id) / kernel_file, frames)
    wrong = {name for bound in parts for name in bound.other_parameters} - have
    absent = set(fat_binary.kernels) - have - wrong
    usable = len(fat_binary.kernels) - len(absent) - len(wrong)
    return BuiltFile("", kernel_file, fat_binary.digests, usable, tuple(sorted(absent)), tuple(sorted(wrong)))


def verify(pack: Pack, store: Store) -> list[str]:
    """What is wrong with a pack on disk, a sentence each; empty if it is whole."""
    folder = store.path(pack.build_id)
    files = {folder / file.kernel_file for file in pack.files.values() if file.kernels}
    files |= set(folder.glob("merged-*.kernels"))
    return [problem for problem in map(problem_of, sorted(files)) if problem is not None]


class _Recipes:
    """Digests of all that decides what a compilation gives."""

    def __init__(self, nvcc: Path, options: Sequence[str], recipe: Recipe) -> None:
        self._recipe = recipe
        version = _run([str(nvcc), "--version"])
        self._start = "\0".join([BINDING, version, *options, ARCHITECTURE]).encode()

    def __call__(self, file: str) -> str:
        source = self._recipe.sources[file]
        headers = self._recipe.headers_version if file in self._recipe.made_from_headers else ""
        try:
            return hashlib.sha256(self._start + headers.encode() + source.read_bytes()).hexdigest()
        except OSError as error:
            raise PackError(f"{source}: {error.strerror}") from None


def _make(
    file: str, recipe: Recipe, pack: Pack, names: Names, store: Store, nvcc: Path, digest: str, other_cub: str
) -> Outcome:
    before = pack.files.get(file)
    kernel_file = file.replace("/", "-") + ".kernels"
    path = store.path(pack.build_id) / kernel_file
    if before is not None and before.recipe == digest and (not before.kernels or problem_of(path) is None):
        return Outcome(file, before, was_there=True)
    headers = recipe.headers if file in recipe.made_from_headers else ()
    options = (*recipe.options, *(f"-I{folder}" for folder in headers))
    module = read_module(_compile(nvcc, options, recipe.sources[file]))
    fat_binary = names.best(module.kernels)
    if fat_binary is None:
        return Outcome(file, BuiltFile(digest, "", (), 0))
    usable_part = cub.without_cub(module) if other_cub else module
    left_out = other_cub if len(usable_part.kernels) < len(module.kernels) else ""
    bound = bind(usable_part, fat_binary)
    if bound.frames:
        write_kernels(path, bound.frames)
    usable = len(fat_binary.kernels) - len(bound.absent) - len(bound.other_parameters)
    return Outcome(
        file,
        BuiltFile(digest, kernel_file, fat_binary.digests, usable, bound.absent, bound.other_parameters),
        left_out=left_out,
    )


def _version_of_cub(nvcc: Path, options: Sequence[str]) -> str | None:
    with tempfile.TemporaryDirectory(prefix="gpupool-kernel-pack-") as folder:
        question = Path(folder) / "version.cu"
        question.write_text(cub.QUESTION)
        try:
            return cub.version_said(_run([str(nvcc), "-E", f"-arch={ARCHITECTURE}", *options, str(question)]))
        except PackError:
            # Wrong options: each file says so by its name.
            return None


def _compile(nvcc: Path, options: Sequence[str], source: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="gpupool-kernel-pack-") as folder:
        to = Path(folder) / "out.ptx"
        _run([str(nvcc), "-ptx", f"-arch={ARCHITECTURE}", *options, str(source), "-o", str(to)])
        return to.read_text()


def _run(command: Sequence[str]) -> str:
    try:
        ended = subprocess.run(command, capture_output=True, check=False, text=True)
    except OSError as error:
        raise PackError(f"{command[0]}: {error.strerror}") from None
    if ended.returncode != 0:
        said = [line for line in ended.stderr.splitlines() if "error" in line] or ended.stderr.splitlines()
        # Types of templates take many kilobytes.
        first = textwrap.shorten(said[0], _MOST_SAID, placeholder=" …") if said else "it said nothing"
        raise PackError(f"{command[0]} ended with {ended.returncode}: {first}")
    return ended.stdout
