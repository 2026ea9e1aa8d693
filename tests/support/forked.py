"""Processes that begin without the start of an interpreter: they are forked from one that has loaded what they need.

The starts of hundreds of interpreters, and what each of them imports, were most of what tests of real processes cost.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 60.0
#: Standard input, output and errors.
_STANDARD = (0, 1, 2)


class ForkServer:
    """The process that forks, one for each that runs tests; it ends with it.

    Args:
        module: what it runs. With the path of a socket as argument it calls :func:`load` and :func:`serve`.
        variables: of its environment that take effect when a process starts, as `LD_LIBRARY_PATH`.
    """

    def __init__(self, module: str, variables: Mapping[str, str] | None = None) -> None:
        self._module = module
        self._variables = dict(variables or {})
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""

    def connect(self) -> socket.socket:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"{self._folder}/s")
        return connection

    def _start(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="gpf-")
        # One thread: only such a process can be forked.
        environment = {**os.environ, **self._variables, "OPENBLAS_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "server")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module, f"{self._folder}/s"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment,
        )  # fmt: skip
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _START_SECONDS)
        assert ready and self._process.stdout.readline() == b"ready\n", f"{self._module} could not be loaded"
        atexit.register(self._end)

    def _end(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(10)
        for path in Path(self._folder).glob("*"):
            path.unlink()
        Path(self._folder).rmdir()


class ForkedProcess:
    """A process that runs, with what tests use of `subprocess.Popen`.

    Args:
        server: that forks it.
        arguments: what the server's module is to do.
        environment: all of its variables.
        files: descriptors of its standard input (None: nothing), output and errors.
        folder: where it runs.
        session: whether it begins a session and a process group of its own.

    Attributes:
        args: its arguments.
        pid: of the process.
        returncode: once its end has been noticed.
    """

    def __init__(
        self,
        server: ForkServer,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        files: tuple[int | None, int, int],
        folder: Path | None = None,
        session: bool = False,
    ) -> None:
        self.args = list(arguments)
        self.returncode: int | None = None
        job = {
            "arguments": self.args,
            "environment": dict(environment),
            "folder": str(folder or Path.cwd()),
            "session": session,
        }
        self._connection = server.connect()
        with contextlib.ExitStack() as opened:
            if files[0] is None:
                nothing = os.open(os.devnull, os.O_RDONLY)
                opened.callback(os.close, nothing)
                files = (nothing, *files[1:])
            descriptors = array.array("i", files)
            self._connection.sendmsg([b"-"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
            self._connection.sendall(json.dumps(job).encode() + b"\n")
            self._answers = self._connection.makefile("r")
            self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        """Its status, negative after a signal; None: it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its status. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            ready, _, _ = select.select([self._connection], [], [], timeout)
            if not ready:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def load(modules: Iterable[str]) -> None:
    """What the processes are made of. None of it may start a thread, which would not be in what is forked."""
    for module in modules:
        importlib.import_module(module)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "something has started a thread"
    gc.freeze()


def serve(path: str) -> list[str]:
    """Forks for each connection; returns the arguments in the process that is to do something with them."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                os._exit(0)
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(4 * len(_STANDARD)))
    files = array.array("i", ancillary[0][2])
    job: dict[str, Any] = json.loads(connection.makefile().readline())
    process = os.fork()
    if process != 0:
        for file in files:
            os.close(file)
        _tell(connection, process)
    connection.close()
    _become(job, files)
    return list(job["arguments"])


def _tell(connection: socket.socket, process: int) -> NoReturn:
    """Says which process it is, and later how it ended."""
    for descriptor in _STANDARD:
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    with contextlib.suppress(OSError):  # whoever wanted to know may be gone
        connection.sendall(f"{process}\n".encode())
    _, status = os.waitpid(process, 0)
    with contextlib.suppress(OSError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(job: Mapping[str, Any], files: Iterable[int]) -> None:
    """Its files, folder and environment."""
    if job["session"]:
        os.setsid()
    last = 2
    for descriptor, file in zip(_STANDARD, files, strict=True):
        os.dup2(file, descriptor)
        last = max(last, file)
    os.closerange(3, last + 1)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    random.seed()
