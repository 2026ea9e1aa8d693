"""`gpupool kernel-packs`: PTX for frameworks whose wheels hold machine code only, made from users' own sources."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Final

import typer

from gpupool.cli.common import exits, show
from gpupool.cli.common.options import Json, refuse_options, whole
from gpupool.kernel_packs import build as building
from gpupool.kernel_packs import torch
from gpupool.kernel_packs.build import Outcome, Recipe
from gpupool.kernel_packs.errors import PackError
from gpupool.kernel_packs.library import Library, read_library
from gpupool.kernel_packs.store import Store, default_folder
from gpupool.text import printable

app = typer.Typer(
    name="kernel-packs",
    help="PTX for frameworks whose wheels contain only machine code. The software GPU runs it "
    "instead of the machine code.",
    no_args_is_help=True,
)

_MOST_JOBS: Final = 256


class FileSet(Enum):
    """Which of PyTorch's files."""

    TRAIN = "train"
    ALL = "all"


def _store() -> Store:
    return Store(default_folder(os.environ))


@app.command("build", epilog=exits.HELP)
def build(
    context: typer.Context,
    torch_python: Annotated[
        Path | None,
        typer.Option(
            "--torch", metavar="PYTHON", help="Python with the PyTorch to build for.", show_default=False
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            help="PyTorch's sources of the same version: a folder or an archive.", show_default=False
        ),
    ] = None,
    file_set: Annotated[
        FileSet,
        typer.Option("--set", help="The kernels that common networks need for training, or all kernels."),
    ] = FileSet.TRAIN,
    library: Annotated[
        Path | None, typer.Option(help="Another library with machine code for GPUs.", show_default=False)
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this file: for PyTorch its name, for another library its path. May be repeated. Without it, another "
            "library's own PTX is used.",
            show_default=False,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="Option for the compiler, for another library. May be repeated.", show_default=False
        ),
    ] = None,
    nvcc: Annotated[
        Path | None, typer.Option(help="The compiler [default: nvcc in the PATH].", show_default=False)
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            parser=whole(1, _MOST_JOBS),
            metavar="NUMBER",
            help="Files at a time, of up to 1.5 GB of memory each [default: half of the cores].",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Compile sources to PTX and keep what fits the library. What was built before is kept; an interrupted build goes on.

    \b
    Examples:
      gpupool kernel-packs build --torch python3 --source pytorch-v2.6.0.tar.gz
      gpupool kernel-packs build --file SortStable.cu
      gpupool kernel-packs build --library libmine.so --file mine.cu --option=-Iinclude
      gpupool kernel-packs build --library libbitsandbytes_cuda128.so
    """
    if library is not None:
        refuse_options(
            context, ("source", "file_set"), "it is for PyTorch, and --library names another library"
        )
    else:
        refuse_options(context, ("option",), "it is for --library")
    if library is not None and not file and torch_python is None:
        refuse_options(context, ("option", "nvcc", "jobs"), "without --file nothing is compiled")
        with exits.clear_errors():
            _from_itself(library, json=json)
        return
    with exits.clear_errors(), tempfile.TemporaryDirectory(prefix="gpupool-kernel-pack-") as work:
        recipe, of = _recipe(torch_python, source, library, file, option, Path(work))
        files = list(recipe.sources) if library else file or torch.chosen(recipe, file_set.value)
        left_out = [] if file else [name for name in files if recipe.obstacle(name)]
        files = [name for name in files if name not in left_out]
        if unknown := [name for name in files if name not in recipe.sources]:
            raise typer.BadParameter(f"{recipe.product} has no file {unknown[0]!r}")
        if left_out:
            print(f"{len(left_out)} files are left out: {recipe.obstacle(left_out[0])}", file=sys.stderr)
        compiler = nvcc or Path(shutil.which("nvcc") or "")
        if not compiler.is_file():
            raise PackError("there is no nvcc in PATH: install NVIDIA's CUDA toolkit, or name it with --nvcc")
        outcomes = building.build(
            recipe, of, _store(), compiler, files, jobs or max(1, (os.cpu_count() or 2) // 2)
        )
        done = []
        for number, outcome in enumerate(outcomes, 1):
            done.append(outcome)
            if not json:
                print(f"[{number}/{len(files)}] {outcome.file}: {_in_words(outcome)}", flush=True)
        if json:
            show.as_json([_record(outcome) for outcome in done])
        if problems := sum(bool(outcome.problem) for outcome in done):
            raise PackError(
                f"{problems} of {len(files)} files could not be built; the others are in the kernel pack"
            )


@app.command("list", epilog=exits.HELP)
def list_packs(json: Json = False) -> None:
    """List kernel packs.

    \b
    Examples:
      gpupool kernel-packs list
    """
    with exits.clear_errors():
        store = _store()
        packs = list(store.packs())
        if json:
            show.as_json(
                [
                    {
                        "build_id": pack.build_id,
                        "library": pack.library,
                        "product": pack.product,
                        "files": len(pack.files),
                        "kernels": pack.kernels,
                        "bytes": store.size(pack.build_id),
                    }
                    for pack in packs
                ]
            )
            return
        if not packs:
            print(f"There is no kernel pack in {store.folder}.")
        for pack in packs:
            mib = store.size(pack.build_id) / 2**20
            contents = f"{pack.kernels} kernels of {len(pack.files)} files, {mib:.1f} MiB"
            print(f"{pack.build_id}  {pack.library} of {pack.product}: {contents}")


@app.command("verify", epilog=exits.HELP)
def verify(json: Json = False) -> None:
    """Check that kernel packs are whole, and say which kernels do not fit their library.

    \b
    Examples:
      gpupool kernel-packs verify
    """
    with exits.clear_errors():
        store = _store()
        damaged = [(path.parent.name, f"{path}: it is damaged") for path in store.unreadable()]
        left_out: list[tuple[str, str, tuple[str, ...]]] = []
        for pack in store.packs():
            damaged += [(pack.product, problem) for problem in building.verify(pack, store)]
            left_out += [
                (pack.product, name, built.other_parameters)
                for name, built in pack.files.items()
                if built.other_parameters
            ]
        if json:
            show.as_json(
                {
                    "damaged": [{"product": product, "problem": problem} for product, problem in damaged],
                    "left_out": [
                        {"product": product, "file": name, "kernels": kernels}
                        for product, name, kernels in left_out
                    ],
                }
            )
        else:
            for product, problem in damaged:
                print(f"{product}: {problem}")
            for product, name, kernels in left_out:
                print(f"{product}: {name}: {len(kernels)} kernels were left out, they take other parameters:")
                for kernel in kernels:
                    print(f"  {printable(kernel)}")
        if damaged:
            raise PackError("build what is missing again: gpupool kernel-packs build")


@app.command("remove", epilog=exits.HELP)
def remove(
    build_id: Annotated[
        str, typer.Argument(help="Name of the pack, as `gpupool kernel-packs list` shows it.")
    ],
    json: Json = False,
) -> None:
    """Delete a kernel pack.

    \b
    Examples:
      gpupool kernel-packs remove 58d8f7fe0aa934e94694f8feb70211d2a35b89fc
    """
    with exits.clear_errors():
        _store().remove(build_id)
        if json:
            show.as_json({"removed": build_id})


def _from_itself(library: Path, *, json: bool) -> None:
    outcomes = list(building.build_from_itself(library.name, read_library(library), _store()))
    if json:
        show.as_json([_record(outcome) for outcome in outcomes])
        return
    for outcome in outcomes:
        print(f"{library.name}: {_in_words(outcome)}")


def _recipe(
    torch_python: Path | None,
    source: Path | None,
    library: Path | None,
    file: list[str] | None,
    option: list[str] | None,
    work: Path,
) -> tuple[Recipe, Library]:
    if torch_python is None and source is None and library is None and file:
        torch_python, source = _as_before()
    if (torch_python is None) == (library is None):
        raise typer.BadParameter("say what to build for: --torch PYTHON --source SOURCE, or --library FILE")
    if library is not None:
        assert file
        sources: dict[str, Path] = {}
        for name in file:
            if sources.setdefault(Path(name).name, Path(name)) != Path(name):
                raise typer.BadParameter(
                    f"two files are named {Path(name).name}: {sources[Path(name).name]} and {name}; a pack knows them by name"
                )
        return Recipe(library.name, sources, tuple(option or ())), read_library(library)
    if source is None:
        raise typer.BadParameter("say where PyTorch's sources are: --source FOLDER_OR_ARCHIVE")
    assert torch_python is not None
    found = Path(shutil.which(torch_python) or torch_python)
    wheel = torch.find_wheel(found)
    folder = torch.open_sources(source, work)
    torch.check_version(folder, wheel)
    recipe = replace(
        torch.recipe(wheel, folder, work), python=str(found.absolute()), source=str(source.absolute())
    )
    return recipe, read_library(wheel.library)


def _as_before() -> tuple[Path | None, Path | None]:
    """What the one PyTorch pack that there is was built from."""
    known = [pack for pack in _store().packs() if pack.python]
    if len(known) != 1:
        return None, None
    return Path(known[0].python), Path(known[0].source)


def _record(outcome: Outcome) -> dict[str, object]:
    built = outcome.built
    return {
        "file": outcome.file,
        "problem": outcome.problem or None,
        "built_before": outcome.was_there,
        "kernels": built.kernels if built else 0,
        "absent": list(built.absent) if built else [],
        "other_parameters": list(built.other_parameters) if built else [],
        "left_out": outcome.left_out or None,
    }


def _in_words(outcome: Outcome) -> str:
    if outcome.problem:
        return outcome.problem
    built = outcome.built
    assert built is not None
    if not built.digests:
        return "the library has no kernel of it"
    words = f"{built.kernels} kernels"
    if built.absent:
        words += f", {len(built.absent)} more are in the library alone"
    if built.other_parameters:
        words += f", {len(built.other_parameters)} left out: the library's take other parameters"
    if outcome.left_out:
        words += f" ({outcome.left_out})"
    return words + (" (built before)" if outcome.was_there else "")
