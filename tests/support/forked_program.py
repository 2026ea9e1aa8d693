"""Programs that use CUDA without the start of an interpreter: each is a process of its own (`forked.py`).

numpy, NVIDIA's bindings and numba are loaded when such a program begins, and with numba the library that stands for the driver.
No function of that library has been called: it looks at the environment, begins threads and connects when it is first used.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
import traceback
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from tests.support.forked import ForkedProcess, ForkServer, load, serve

LOADED = ("numpy", "cuda.bindings.driver", "numba.cuda")
#: What is looked at when a process starts, or numba is loaded: one server for each set of values.
_AT_START = ("LD_LIBRARY_PATH", "LD_PRELOAD", "NUMBA_")

_servers: dict[tuple[tuple[str, str], ...], ForkServer] = {}


def _server(environment: Mapping[str, str]) -> ForkServer:
    values = tuple(sorted((name, value) for name, value in environment.items() if name.startswith(_AT_START)))
    if values not in _servers:
        _servers[values] = ForkServer("tests.support.forked_program", dict(values))
    return _servers[values]


class Program(ForkedProcess):
    """`python -W ignore ...` that runs, with pipes for text: `stdin`, `stdout`, `stderr`.

    Args:
        arguments: a script and its arguments, or `-c` and what to run.
        environment: all of its variables.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        (their_in, own_in), (own_out, their_out), (own_err, their_err) = os.pipe(), os.pipe(), os.pipe()
        try:
            super().__init__(_server(environment), arguments, environment, (their_in, their_out, their_err))
        finally:
            for theirs in (their_in, their_out, their_err):
                os.close(theirs)
        self.stdin: IO[str] = os.fdopen(own_in, "w")
        self.stdout: IO[str] = os.fdopen(own_out)
        self.stderr: IO[str] = os.fdopen(own_err)
        self._readers: list[_Reader] = []

    def communicate(self, text: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """What it writes until its end. Raises subprocess.TimeoutExpired; it may be called again then."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with contextlib.suppress(BrokenPipeError):
            if text:
                self.stdin.write(text)
            self.stdin.close()
        if not self._readers:
            self._readers = [_Reader(self.stdout), _Reader(self.stderr)]
        for reader in self._readers:
            reader.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        self.wait(None if deadline is None else max(1.0, deadline - time.monotonic()))
        out, errors = (reader.text for reader in self._readers)
        self._close()
        return out, errors

    def _close(self) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class _Reader(threading.Thread):
    """Reads a pipe to its end."""

    def __init__(self, pipe: IO[str]) -> None:
        super().__init__(daemon=True)
        self.text = ""
        self._pipe = pipe
        self.start()

    def run(self) -> None:
        self.text = self._pipe.read()


def _fail(told: threading.ExceptHookArgs) -> None:
    """A thread that fails ends its program: else what the thread was to find is missed by nobody."""
    if told.exc_value is not None:
        traceback.print_exception(told.exc_value)
    sys.stderr.flush()
    os._exit(1)


def _run(arguments: Sequence[str], own_path: Sequence[str]) -> None:
    """As the interpreter runs a script or `-c`, in a module `__main__` of its own."""
    script, *_ = arguments
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if script == "-c":
        code, name = arguments[1], "<string>"
        sys.argv = ["-c", *arguments[2:]]
        sys.path[:] = ["", *paths, *own_path]
    else:
        code, name = Path(script).read_text(), script
        main.__file__ = script
        sys.argv = list(arguments)
        sys.path[:] = [str(Path(script).resolve().parent), *paths, *own_path]
    np.random.seed()
    threading.excepthook = _fail
    exec(compile(code, name, "exec"), main.__dict__)


if __name__ == "__main__":
    own_path = sys.path[1:]
    warnings.simplefilter("ignore")
    load(LOADED)
    _run(serve(sys.argv[1]), own_path)
