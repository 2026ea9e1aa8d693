"""Exit codes, after sysexits.h, and the one place that turns errors into them."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import typer

from gpupool.client.errors import GpupoolError, PoolRefusedError, PoolUnavailableError, QueueTimeoutError
from gpupool.shares import ShareError
from gpupool.text import printable

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
#: EX_UNAVAILABLE: the pool does not answer.
UNAVAILABLE: Final = 69
#: EX_TEMPFAIL: full, or the wait in the queue timed out; try again later.
TEMPORARY: Final = 75
#: EX_NOPERM: refused by quota or permission.
REFUSED: Final = 77
#: As a shell says of a command that is there, and of one that is not.
NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
INTERRUPTED: Final = 130

HELP: Final = (
    "Exit codes: 0 done, 1 failed, 2 wrong arguments, 69 the pool does not answer, "
    "75 full, busy, or timed out in the queue, 77 refused by quota or permission."
)

_CODE_OF_REASON: Final = {
    "full": TEMPORARY,
    "timeout": TEMPORARY,
    "no-node": TEMPORARY,
    "busy": TEMPORARY,
    "ports-busy": TEMPORARY,
    "hub-down": TEMPORARY,
    "hub-busy": TEMPORARY,
    "quota": REFUSED,
    "limit": REFUSED,
    "over-quota": REFUSED,
    "too-many-requests": REFUSED,
    "unknown-project": USAGE,
    "forbidden": REFUSED,
    "bad-share": USAGE,
    "bad-request": USAGE,
}

#: What to do when no pool answers.
_NO_POOL: Final = "Start one there (gpupool pool serve), or say where it is: --pool, or GPUPOOL_ENDPOINT in the environment."

#: Behind the advice to wait.
_SO: Final = ", for example with --wait 10m"

Value = TypeVar("Value")


def code_of(error: Exception) -> int:
    """The exit code that an error stands for."""
    if isinstance(error, PoolUnavailableError):
        return UNAVAILABLE
    if isinstance(error, QueueTimeoutError):
        return TEMPORARY
    if isinstance(error, PoolRefusedError):
        return _CODE_OF_REASON.get(error.reason, FAILED)
    if isinstance(error, ShareError):
        return USAGE
    return FAILED


def say(text: str) -> None:
    """One line for people, on standard error: standard output belongs to results."""
    print(f"gpupool: {printable(text)}", file=sys.stderr, flush=True)


def _advise(error: Exception) -> None:
    """The best advice that is a request of its own, and whether to wait for a node."""
    details = error.details if isinstance(error, PoolRefusedError) else None
    helps = details.helps if details is not None else ()
    for help_ in [help_ for help_ in helps if help_.arguments][:1]:
        say(f"this would be granted now: {help_.arguments}")
    for help_ in helps:
        if help_.action == "grow":
            say(f"{help_.sentence}{_SO}")


@contextmanager
def clear_errors() -> Iterator[None]:
    """Ends the program with the right code and one sentence when a known error passes."""
    try:
        yield
    except PoolUnavailableError as error:
        say(str(error) if error.advice else f"{error} {_NO_POOL}")
        raise typer.Exit(UNAVAILABLE) from None
    except (GpupoolError, ShareError) as error:
        say(str(error))
        _advise(error)
        raise typer.Exit(code_of(error)) from None
    except BrokenPipeError:
        raise  # whoever read the output has enough of it; typer ends quietly
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        say(f"{named}{error.strerror or error}")
        raise typer.Exit(FAILED) from None
    except OverflowError as error:
        say(f"a number is too large: {error}")
        raise typer.Exit(USAGE) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def check_command(name: str) -> None:
    """Ends the program, as a shell would, where a command cannot be started."""
    if shutil.which(name) is not None:
        return
    there = "/" in name and Path(name).exists()
    say(f"{name}: {'permission denied' if there else 'command not found'}")
    raise typer.Exit(NOT_EXECUTABLE if there else NOT_FOUND)


def run_async(work: Coroutine[Any, Any, Value]) -> Value:
    """Runs a command's coroutine to its end under :func:`clear_errors`."""
    with clear_errors():
        return asyncio.run(work)


def log_to_stderr(verbose: bool = False, *, seen_by: Any = None) -> None:
    """Services log one line per event to standard error.

    `seen_by`: a processor of structlog that sees each event too.
    """
    import structlog

    level = logging.DEBUG if verbose else logging.INFO
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *([seen_by] if seen_by is not None else []),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
