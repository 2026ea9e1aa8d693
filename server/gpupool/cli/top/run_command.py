"""How `gpupool run` works: lease, session file, child process, signals, release."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from gpupool.cli.common import exits
from gpupool.cli.common.exits import say
from gpupool.cli.common.words import say_queued
from gpupool.client.child_environment import CHOICE_OF_CARDS, OF_ANOTHER_SHARE, environment
from gpupool.client.errors import GpupoolError
from gpupool.client.holder import RENEW_SECONDS
from gpupool.client.pool import PoolClient
from gpupool.client.program.run_directory import run_directory
from gpupool.client.program.session import ProgramSession, Wanted
from gpupool.client.program.words import COMMAND_WORDS
from gpupool.client.refused_memory import larger_share, left_beside
from gpupool.client.session.shell import AttachRefusedError
from gpupool.client.types import LeaseRequest
from gpupool.request.gpu_request import GpuRequest
from gpupool.text import printable

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
#: A pool that takes longer to say what is free leaves it unsaid, seconds.
_POOL_SECONDS: Final = 2.0

_FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
_FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
# Without a command to tell, these mean nothing.
_HARMLESS: Final = (signal.SIGWINCH,)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What to run, and with what."""

    command: tuple[str, ...]
    request: GpuRequest
    wait_again_seconds: float | None
    on_behalf_of: str
    endpoint: str | None
    token_file: Path | None


async def run_command(options: RunOptions) -> int:
    """Runs the command with its share; the exit code for the shell."""
    exits.check_command(options.command[0])
    # The directory comes before the share, which would stay held if there is nowhere to write.
    with SignalRelay() as relay, run_directory(os.getpid()) as directory:
        async with PoolClient(options.endpoint, options.token_file) as pool:
            return await _run_in(directory, pool, options, relay)


def label_of(command: Sequence[str]) -> str:
    """What others may see of a command line, at most 80 characters: the program, and its script or module.

    Never its other arguments: people put passwords and keys there.
    """
    words = itertools.dropwhile(lambda word: Path(word).name == "env" or _ASSIGNMENT.match(word), command)
    program = next(words, "")
    if not program or program.startswith("-"):
        return Path(command[0]).name  # an option of env
    shown = [Path(program).name]
    for word, following in itertools.pairwise((*words, "")):
        if word == "-m" and shown[0].startswith("python"):
            shown += [word, following]
        # Not `Path.is_file`, which raises for the text of a program after `-c`: it is no name of a file.
        elif not word.startswith("-") and os.path.isfile(word):  # noqa: PTH113
            shown.append(Path(word).name)
        else:
            continue
        break
    return printable(" ".join(shown))[:80]


async def _run_in(directory: Path, pool: PoolClient, options: RunOptions, relay: SignalRelay) -> int:
    request = LeaseRequest.of(
        options.request,
        on_behalf_of=options.on_behalf_of,
        label=label_of(options.command),
        holder=f"run:{os.uname().nodename}:{os.getpid()}",
    )
    session = ProgramSession(
        pool,
        directory,
        holder=request.holder,
        interval=float(os.environ.get("GPUPOOL_RENEW_SECONDS", RENEW_SECONDS)),
        say=say,
        say_place=say_queued,
        return_seconds=options.wait_again_seconds,
        asks_later=False,
        words=COMMAND_WORDS,
    )
    async with session:
        waiting = asyncio.ensure_future(
            session.attach(
                Wanted(request, hold=True, wait_seconds=options.request.patience), say_queued, by="command"
            )
        )
        relay.cancels(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            say("left the queue")
            return 128 + (relay.cancelled_by or signal.SIGINT)
        except AttachRefusedError as refused:
            # What the pool has said, with what would help.
            raise refused.__cause__ or refused from None
        relay.keeps()
        return await _run_with(session, pool, options.command, relay)


async def _run_with(
    session: ProgramSession, pool: PoolClient, command: tuple[str, ...], relay: SignalRelay
) -> int:
    grant = session.latest
    assert grant is not None
    path = session.files.session.path
    variables = environment(None, path, os.environ, software=grant.software, preload=True)
    left_out = {CHOICE_OF_CARDS, *OF_ANOTHER_SHARE}
    others = {name: value for name, value in os.environ.items() if name not in left_out}
    try:
        # In the caller's own process group: the child may use the terminal. And with the descriptors
        # that the caller lets its children have, so that multiprocessing can start its own in this way.
        child = await asyncio.create_subprocess_exec(*command, env=others | variables, close_fds=False)
    except OSError as error:
        say(f"{command[0]}: {error.strerror}")
        return exits.NOT_EXECUTABLE
    relay.forwards(child)
    status = await child.wait()
    relay.keeps()
    await _say_what_was_lacking(session, pool)
    await session.settle()
    return status if status >= 0 else 128 - status


async def _say_what_was_lacking(session: ProgramSession, pool: PoolClient) -> None:
    """One line, where the program has ended without the memory that it asked for last."""
    refused = left_beside(session.files.session.path)
    if refused is None or session.latest is None:
        return
    larger = None
    with contextlib.suppress(GpupoolError, TimeoutError):  # the numbers are told all the same
        devices = await asyncio.wait_for(pool.devices(), _POOL_SECONDS)
        larger = larger_share(refused, session.latest.shares, devices)
    say(" ".join([f"{refused.sentence()}.", *([larger.words("-p {}")] if larger is not None else [])]))


class SignalRelay:
    """What signals for this program mean, from the asking for the share to its release.

    While it waits they end the waiting; before and after the command runs they are kept, so
    that nothing is left behind; while it runs they are the command's. Those that this program was
    started to ignore, as by ``nohup``, stay ignored: the command inherits that.
    """

    def __init__(self) -> None:
        #: The signal that ended the waiting.
        self.cancelled_by: int | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._child: asyncio.subprocess.Process | None = None
        self._kept: list[signal.Signals] = []
        self._taken = [
            number
            for number in (*_FORWARDED, *_FROM_TERMINAL)
            if signal.getsignal(number) is not signal.SIG_IGN
        ]

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in self._taken:
            loop.add_signal_handler(number, self._take, number)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in self._taken:
            loop.remove_signal_handler(number)

    def cancels(self, waiting: asyncio.Future[None]) -> None:
        """A signal that would end this program cancels ``waiting``."""
        self._waiting = waiting

    def keeps(self) -> None:
        """Signals wait for :meth:`forwards`."""
        self._waiting = self._child = None

    def forwards(self, child: asyncio.subprocess.Process) -> None:
        """Signals are the child's, those kept until now first."""
        self._child = child
        kept, self._kept = self._kept, []
        for number in kept:
            self._send(number)

    def _take(self, number: signal.Signals) -> None:
        if self._child is not None:
            # The terminal gives these to the whole foreground group, the child included.
            if number not in _FROM_TERMINAL or not _in_foreground():
                self._send(number)
        elif number in _HARMLESS:
            return
        elif self._waiting is not None:
            self.cancelled_by = number
            self._waiting.cancel()
        else:
            self._kept.append(number)

    def _send(self, number: signal.Signals) -> None:
        assert self._child is not None
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(number)


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False
