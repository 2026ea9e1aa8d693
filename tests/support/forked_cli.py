"""The command line without the start of an interpreter: each command is a process of its own, forked from one that has
loaded everything.

Half a second of processor time for each of hundreds of commands was most of what tests of them cost. Tests that send
signals to a command, and all services, start it as people do.
"""

from __future__ import annotations

import array
import atexit
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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked_cli", f"{self._folder}/s"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "server")])},
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


def gpupool(*arguments: str, environment: dict[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Runs `gpupool` with these arguments. Raises subprocess.TimeoutExpired, and then it is killed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, _server.connect() as connection:
        job = {"arguments": arguments, "environment": environment, "folder": str(Path.cwd())}
        descriptors = array.array("i", [out.fileno(), err.fileno()])
        connection.sendmsg([b"-"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        connection.sendall(json.dumps(job).encode() + b"\n")
        answers = connection.makefile("r")
        pid = int(answers.readline())
        connection.settimeout(seconds)
        try:
            code = int(answers.readline())
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(["gpupool", *arguments], seconds) from None
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(
            ["gpupool", *arguments], code, out.read().decode(), err.read().decode()
        )


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
        connection.sendall(f"{command}\n".encode())
        _, status = os.waitpid(command, 0)
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    connection.close()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.closerange(3, max(out, err) + 1)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    sys.argv = ["gpupool", *job["arguments"]]
    random.seed()


if __name__ == "__main__":
    from gpupool.cli.main import app

    _serve(sys.argv[1])
    app(prog_name="gpupool")
