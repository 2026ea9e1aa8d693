"""`gpupool up`: a pool and a node on this machine, in one command, until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gpupool.cli.common import exits, interrupts
from gpupool.cli.common.options import refuse_options, whole
from gpupool.cli.node.port_range import port_range as read_port_range
from gpupool.client.endpoint import ENDPOINT_VARIABLE, HOME_VARIABLE, home
from gpupool.client.errors import GpupoolError
from gpupool.client.software_gpu import MOST_DEVICES, MOST_MEMORY_MIB
from gpupool.text import printable

if TYPE_CHECKING:
    from gpupool.embedded.join import Lifeline
    from gpupool.embedded.options import EmbeddedOptions

_LOOK_SECONDS: Final = 0.5

Home = Annotated[
    Path | None,
    typer.Option(
        help="Directory of the ledger and the logs, mode 0700 [default: $GPUPOOL_HOME or ~/.local/state/gpupool].",
        show_default=False,
    ),
]
Driver = Annotated[
    str,
    typer.Option(
        help="auto: NVIDIA GPUs if there are any, else software GPUs. Or software, nvidia, or the path "
        "of a libcuda.so.1."
    ),
]
SoftwareGpus = Annotated[
    int,
    typer.Option(
        parser=whole(1, MOST_DEVICES),
        metavar="NUMBER",
        help=f"How many software GPUs to lend, at most {MOST_DEVICES}.",
    ),
]
MemoryMib = Annotated[
    int, typer.Option(parser=whole(512, MOST_MEMORY_MIB), metavar="MIB", help="Memory of each software GPU.")
]
Quotas = Annotated[
    list[str] | None,
    typer.Option(
        "--quota",
        metavar="USER=GPUS",
        help="The largest number of GPUs that a user may hold at one time. May be repeated.",
    ),
]
NoticeSeconds = Annotated[
    float | None,
    typer.Option(min=0, help="Warning time before a share is taken back.", show_default=False),
]
Providers = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Borrow GPUs from the engines in this file (TOML), such as Slurm, as your own jobs, and lend none of this "
        "machine's.",
        show_default=False,
    ),
]
Listen = Annotated[
    str,
    typer.Option(
        metavar="HOST[:PORT]",
        help="With --providers: the address of this machine that their nodes dial [default: its name, and a free port].",
        show_default=False,
    ),
]
Ports = Annotated[
    str | None,
    typer.Option(
        parser=read_port_range,
        metavar="FIRST-LAST",
        help="TCP ports of this machine's workers, so that SSH can forward them. Each session and each worker that is "
        "started ahead take one [default: the system chooses].",
        show_default=False,
    ),
]
NoRestart = Annotated[bool, typer.Option("--no-restart", help="Don't restart a pool or node that has died.")]


def tell(text: str) -> None:
    """Prints at once: whoever starts this in a pipe waits for it."""
    print(text, flush=True)


def use_home(named: Path | None) -> Path:
    """The home, for this process and what it starts."""
    if named is not None:
        os.environ[HOME_VARIABLE] = str(named.absolute())
    return home()


def options_of(
    driver: str,
    software_gpus: int,
    memory_mib: int,
    quota: list[str] | None,
    notice_seconds: float | None,
    no_restart: bool,
    providers: Path | None,
    listen: str,
    port_range: str | None,
) -> EmbeddedOptions:
    """What a new pool is made of. Raises typer.BadParameter."""
    from gpupool.cli.common import quantities
    from gpupool.embedded.borrowing import borrowing
    from gpupool.embedded.options import EmbeddedOptions

    for text in quota or []:
        quantities.quota(text)
    options = EmbeddedOptions(
        driver,
        software_gpus,
        memory_mib,
        tuple(quota or ()),
        notice_seconds,
        not no_restart,
        port_range=port_range or "",
    )
    if providers is None:
        if listen:
            raise typer.BadParameter("--listen is for the nodes of --providers; without them nobody dials it")
        return options
    if driver != "auto":
        raise typer.BadParameter(
            f"--providers lends no GPU of this machine, so --driver {driver[:200]} has no effect; leave one of them out"
        )
    if port_range:
        raise typer.BadParameter(
            "--providers starts no worker on this machine, so --port-range has no effect; the file's node_options choose "
            "the ports of its nodes"
        )
    try:
        return borrowing(options, providers, home(), listen)
    except GpupoolError as error:
        raise typer.BadParameter(str(error)) from None


def joined(directory: Path, options: EmbeddedOptions) -> Lifeline | None:
    """Holds the pool of this home, and says what it lends; None: one that was started otherwise runs there."""
    from gpupool.embedded.inventory import sentence
    from gpupool.embedded.join import join

    with _log_in_lines():
        lifeline = join(directory, options, tell)
    if lifeline is None:
        tell(f"A pool that was started by `gpupool pool serve` runs in {directory}; it is used as it is.")
        return None
    if not lifeline.started:
        tell("A pool of yours runs on this machine already; it is used as it is.")
    tell(sentence(lifeline.ready.gpus, lifeline.ready.providers))
    return lifeline


@contextlib.contextmanager
def _log_in_lines() -> Iterator[None]:
    """A pool that cannot be started is told with the end of its log, which has lines."""
    from gpupool.embedded.join import EmbeddedError

    try:
        yield
    except EmbeddedError as error:
        problem, _, log = str(error).partition("\n")
        exits.say(problem)
        for line in log.splitlines():
            print(f"  {printable(line)}", file=sys.stderr)
        raise typer.Exit(exits.FAILED) from None


def leave(lifeline: Lifeline) -> None:
    """Lets go of the pool, and says what becomes of it."""
    others = lifeline.leave()
    if others:
        tell(f"The pool runs on: {'another program uses' if others == 1 else f'{others} others use'} it.")
    else:
        tell("Everything that was started has ended.")


def refuse_without_effect(context: typer.Context, driver: str, providers: Path | None) -> None:
    """Ends the command if options of software GPUs were given that it does not start."""
    why = "--providers lends no GPU of this machine" if providers else "--driver nvidia lends no software GPU"
    if providers or driver == "nvidia":
        refuse_options(context, ("software_gpus", "memory_mib"), why)


def up(
    context: typer.Context,
    home: Home = None,
    driver: Driver = "auto",
    software_gpus: SoftwareGpus = 2,
    memory_mib: MemoryMib = 8192,
    quota: Quotas = None,
    notice_seconds: NoticeSeconds = None,
    no_restart: NoRestart = False,
    providers: Providers = None,
    listen: Listen = "",
    port_range: Ports = None,
) -> None:
    """Start a pool with the GPUs of this machine, and keep it until Ctrl-C.

    Needs no GPU: where there is none it lends software GPUs. The pool ends with this command, unless something else that
    holds it (`gpupool lab`, JupyterLab) still runs.

    \b
    Examples:
      gpupool up
      gpupool up --driver software --software-gpus 4
      gpupool up --providers slurm.toml
      gpupool up --port-range 40000-40019
    """
    refuse_without_effect(context, driver, providers)
    directory = use_home(home)
    options = options_of(
        driver, software_gpus, memory_mib, quota, notice_seconds, no_restart, providers, listen, port_range
    )
    with exits.clear_errors(), interrupts.as_keyboard_interrupt():
        lifeline = joined(directory, options)
        if lifeline is None:
            return
        try:
            _say_how_to_use(directory, waits=bool(lifeline.ready.providers))
            _wait(lifeline)
        except KeyboardInterrupt:
            tell("\nStopping …")
        finally:
            with interrupts.ignored():
                leave(lifeline)


def _say_how_to_use(directory: Path, *, waits: bool) -> None:
    # A program that doesn't wait brings no node.
    wait = "--wait 10m " if waits else ""
    tell("")
    if os.environ.get(HOME_VARIABLE):
        tell(f"In another terminal, first:  export {HOME_VARIABLE}={shlex.quote(str(directory))}")
    if os.environ.get(ENDPOINT_VARIABLE):
        tell(
            f"${ENDPOINT_VARIABLE} names another pool. In another terminal, first:  unset {ENDPOINT_VARIABLE}"
        )
    for command, meaning in (
        (f"gpupool run -p 0.5 {wait}-- python program.py", "a program with half a GPU"),
        ("gpupool smi", "who has what"),
        ("jupyter lab", "then %%gpu 0.5 above a cell"),
    ):
        tell(f"{'Use it:' if 'run' in command else '':9}{command:{42 + len(wait)}} {meaning}")
    tell("ready: Ctrl-C ends the pool.")


def _wait(lifeline: Lifeline) -> None:
    """Until the pool ends by itself, which it does only when its keeper is killed."""
    while True:
        readable, _, _ = select.select([lifeline], [], [], _LOOK_SECONDS)
        if readable:
            report(lifeline)


def report(lifeline: Lifeline) -> None:
    """Says what its keeper tells. Ends the program if the pool has failed."""
    with _log_in_lines():
        _report(lifeline)


def _report(lifeline: Lifeline) -> None:
    from gpupool.embedded import messages
    from gpupool.embedded.join import EmbeddedError

    told = lifeline.told(_LOOK_SECONDS)
    while told is not None:
        if told.state in (messages.RESTARTED, messages.DIED):
            tell(told.text)
        elif told.state in (messages.FAILED, messages.ENDED):
            raise EmbeddedError(told.text or "The embedded pool has ended.")
        # What came with it.
        told = lifeline.told(0)
