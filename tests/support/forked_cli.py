"""The command line without the start of an interpreter: each command is a process of its own, forked from one that has
loaded everything.

The start of an interpreter for each of hundreds of commands, and 1.5 s of imports for each pool with a node, were most of what
tests of them cost. How people start them is tried by `gpupool lab` and `gpupool up`, and by tests of what a terminal does.
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
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
#: The command line, and what its commands load when they run.
LOADED = (
    "gpupool.cli.main", "gpupool.pool.server", "gpupool.pool.serving", "gpupool.node.service", "gpupool.cli.top.run_command",
)  # fmt: skip
_START_SECONDS = 60.0


class _Server:
    """The process that forks, one for each that runs tests; it ends with it."""

    def __init__(self) -> None:
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
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "server")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked_cli", f"{self._folder}/s"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment,
        )  # fmt: skip
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _START_SECONDS)
        assert ready and self._process.stdout.readline() == b"ready\n", "the command line could not be loaded"
        atexit.register(self._end)

    def _end(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(10)
        for path in Path(self._folder).glob("*"):
            path.unlink()
        Path(self._folder).rmdir()


_server = _Server()


class Command:
    """A `gpupool` that runs, with what tests use of `subprocess.Popen`.

    Args:
        arguments: of the command.
        environment: all of its variables.
        out: file for what it prints.
        err: file for its errors.
        folder: where it runs.
        session: whether it begins a session and a process group of its own.

    Attributes:
        args: the command.
        pid: of its process.
        returncode: once its end has been noticed.
    """

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str],
        out: IO[Any],
        err: IO[Any],
        folder: Path | None = None,
        session: bool = False,
    ) -> None:
        self.args = ["gpupool", *arguments]
        self.returncode: int | None = None
        job = {
            "arguments": arguments,
            "environment": dict(environment),
            "folder": str(folder or Path.cwd()),
            "session": session,
        }
        self._connection = _server.connect()
        descriptors = array.array("i", [out.fileno(), err.fileno()])
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


def gpupool(*arguments: str, environment: dict[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Runs `gpupool` with these arguments. Raises subprocess.TimeoutExpired, and then it is killed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        command = Command(*arguments, environment=environment, out=out, err=err)
        try:
            code = command.wait(seconds)
        except subprocess.TimeoutExpired:
            command.kill()
            raise
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(command.args, code, out.read().decode(), err.read().decode())


def _serve(path: str) -> None:
    """Forks for each connection; returns in the process that is to be the command."""
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
    _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(8))
    out, err = array.array("i", ancillary[0][2])
    job = json.loads(connection.makefile().readline())
    command = os.fork()
    if command != 0:
        os.close(out)
        os.close(err)
        _tell(connection, command)
    connection.close()
    if job["session"]:
        os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.closerange(3, max(out, err) + 1)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # as `gpupool.cli.main` does when it is loaded
    os.chdir(job["folder"])
    sys.argv = ["gpupool", *job["arguments"]]
    random.seed()


def _tell(connection: socket.socket, command: int) -> NoReturn:
    """Says which process the command is, and later how it ended."""
    for descriptor in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    with contextlib.suppress(OSError):  # whoever wanted to know may be gone
        connection.sendall(f"{command}\n".encode())
    _, status = os.waitpid(command, 0)
    with contextlib.suppress(OSError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _load() -> None:
    """All that commands are made of."""
    for module in LOADED:
        importlib.import_module(module)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "something has started a thread"
    gc.freeze()


if __name__ == "__main__":
    _load()
    from gpupool.cli.main import app

    _serve(sys.argv[1])
    app(prog_name="gpupool")
