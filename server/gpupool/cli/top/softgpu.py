"""`gpupool softgpu`: a CUDA program on the software GPU, without a pool."""

from __future__ import annotations

import os
import re
import signal
from decimal import Decimal
from enum import Enum
from typing import Annotated, Final, NoReturn

import typer

from gpupool.cli.common import exits, show
from gpupool.cli.common.options import Json, whole
from gpupool.client import software_gpu

EPILOG: Final = (
    "Exit codes: 0 done, 1 the software GPU is not installed, 2 wrong arguments, 126 the command cannot be executed, "
    "127 there is no such command; once it runs, the command's own."
)

_MEMORY: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(mib|gib)?", re.IGNORECASE | re.ASCII)
_CAPABILITY: Final = re.compile(r"[0-9]{1,2}\.[0-9]", re.ASCII)


class Check(Enum):
    """What the software GPU looks for while kernels run."""

    MEMORY = "memory"
    RACE = "race"
    INITIALISED = "initialised"
    BARRIER = "barrier"
    ALL = "all"


def memory_mib(text: str) -> int:
    """MiB of ``8GiB``, ``512MiB`` or ``512``."""
    match = _MEMORY.fullmatch(text.strip())
    mib = Decimal(0)
    if match is not None:
        mib = Decimal(match[1]) * (1024 if (match[2] or "").lower() == "gib" else 1)
    least, most = software_gpu.LEAST_MEMORY_MIB, software_gpu.MOST_MEMORY_MIB
    if mib != mib.to_integral_value() or not least <= mib <= most:
        raise typer.BadParameter(
            f"{text[:40]!r} is no memory from {least} MiB to {most // 1024} GiB; write for example 8GiB or 512MiB"
        )
    return int(mib)


def capability(text: str) -> str:
    """A compute capability as ``8.6``."""
    if not _CAPABILITY.fullmatch(text) or int(text.split(".")[0]) < 5:
        raise typer.BadParameter(f"{text[:40]!r} is no compute capability from 5.0 on, such as 8.6 or 12.0")
    return text


def softgpu(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND [ARGUMENT]...", help="Command to run.", show_default=False),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            "--memory",
            "-m",
            parser=memory_mib,
            metavar="MEMORY",
            help="Memory of each device: MiB, 512MiB or 8GiB [default: 8GiB].",
            show_default=False,
        ),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(
            "--devices",
            "-n",
            parser=whole(0, software_gpu.MOST_DEVICES),
            metavar="NUMBER",
            help=f"How many devices, at most {software_gpu.MOST_DEVICES} [default: 1].",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            parser=whole(1, software_gpu.MOST_THREADS),
            metavar="NUMBER",
            help="Threads that execute kernels [default: the cores that this process may use].",
            show_default=False,
        ),
    ] = None,
    compute_capability: Annotated[
        str | None,
        typer.Option(
            parser=capability,
            metavar="MAJOR.MINOR",
            help="Compute capability that the devices report [default: 12.0].",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        list[Check] | None,
        typer.Option(
            help="Find errors while kernels run: accesses outside of allocations, races in shared memory, "
            "reads of shared memory before a write, barriers that not all threads reach. Slower. May "
            "be repeated.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Print versions and exit.")] = False,
    json: Json = False,
) -> None:
    """Run a command that finds a software GPU where it looks for an NVIDIA GPU. Needs no GPU, no pool and no rights.

    It runs CUDA programs that bring PTX: numba-cuda, Triton, torch.compile, cuda-core, CuPy 12, NVRTC and nvcc
    programs with PTX inside. The command takes this process's place: signals, terminal and exit code are its own.

    \b
    Examples:
      gpupool softgpu -- python program.py
      gpupool softgpu --memory 2GiB --devices 2 -- pytest tests
      gpupool softgpu --check memory -- ./vector_add
      gpupool softgpu --version
    """
    settings = software_gpu.Settings(
        memory_mib=memory,
        devices=devices,
        threads=threads,
        compute_capability=compute_capability,
        checks=tuple(dict.fromkeys(each.value for each in check or ())),
    )
    with exits.clear_errors():
        if version:
            _print_version(json)
        elif command:
            _become(command, software_gpu.program_environment(settings, os.environ))
        else:
            raise typer.BadParameter("say what to run: gpupool softgpu -- COMMAND [ARGUMENT]...")


def _print_version(json: bool) -> None:
    from gpupool.client.agreement import own_version

    facts = software_gpu.driver_facts()
    if json:
        show.as_json(
            {
                "version": own_version(),
                "cuda": facts.cuda,
                "compute_capability": facts.compute_capability,
                "library": str(facts.library),
            }
        )
    else:
        print(
            f"gpupool {own_version()}, software GPU: CUDA {facts.cuda}, compute capability {facts.compute_capability}"
        )


def _become(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Replaces this process by the command, so that nothing stands between it and who started it."""
    exits.check_command(command[0])
    # Python ignores these, and a program inherits that: it would not end with the pipe that it writes to.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606
    except OSError as error:
        exits.say(f"{command[0]}: {error.strerror}")
        raise typer.Exit(exits.NOT_EXECUTABLE) from None
