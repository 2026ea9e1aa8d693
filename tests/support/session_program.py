"""The program of session_program.c as an object: commands in, answers out, in batches."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from gpupool.client.child_environment import environment
from gpupool.client.native import native_directory, native_file

from tests.support.session_memory import Words

ROOT = Path(__file__).resolve().parents[2]
#: No batch takes longer, on a busy machine; more is a hang.
PATIENCE: Final = 60.0


class ProgramFailed(AssertionError):
    """The program ended, or does not answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`error` is a CUresult, 0 for success; `words` what was read."""

    error: int
    text: str
    words: Words | None = None

    @property
    def value(self) -> int:
        return int(self.text.split()[0])


def build(folder: Path) -> Path:
    """Compiles the program against the client runtime."""
    found = subprocess.run(
        [sys.executable, ROOT / "src" / "protocol" / "find_cuda_headers.py"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    program = folder / "session_program"
    source = ROOT / "tests" / "support" / "session_program.c"
    library = native_file("client", "libcuda.so.1")
    options = ("-O1", "-Wall", "-Wextra", "-Werror", "-isystem", found.stdout.strip())
    subprocess.run(["cc", *options, "-o", program, source, library], check=True)
    return program


class SessionProgram:
    """One running program; its session file decides whether it has a GPU."""

    def __init__(self, program: Path, session_file: Path) -> None:
        # The program's own library is enough; what is preloaded for numba would only cost time.
        variables = environment(native_directory(), session_file, os.environ, software=True, preload=False)
        self._process = subprocess.Popen(
            [program], env=os.environ | variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._waiting = select.poll()
        self._waiting.register(self._out, select.POLLIN | select.POLLHUP)
        self._buffer = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def batch(self, commands: Sequence[str]) -> list[Answer]:
        """Executes them in order; an error does not keep the later ones from being tried."""
        if not commands:
            return []
        self.send(commands)
        return [self.receive(command) for command in commands]

    def send(self, commands: Sequence[str]) -> None:
        try:
            os.write(self._in, ("\n".join(commands) + "\nflush\n").encode())
        except BrokenPipeError as error:
            raise ProgramFailed(f"the program ended: {self._process.wait(5)}") from error

    def receive(self, command: str) -> Answer:
        deadline = time.monotonic() + PATIENCE
        line = self._until(b"\n", 1, deadline, command)
        kind, _, rest = line.decode(errors="replace").rstrip("\n").partition(" ")
        if kind == "error":
            number, _, text = rest.partition(" ")
            return Answer(int(number), text)
        if kind != "ok":
            raise ProgramFailed(f"{command!r} was answered by {line!r}")
        if command.split(" ", 1)[0] in ("read", "steps"):
            raw = self._until(b"", 4 * int(rest.split()[0]), deadline, command)
            return Answer(0, rest, np.frombuffer(raw, dtype=np.uint32))
        return Answer(0, rest)

    def run(self, command: str) -> Answer:
        return self.batch([command])[0]

    def end(self) -> None:
        """Lets it end by itself, closing its connection in order; kills it when it does not."""
        if self._process.poll() is None:
            with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
                os.write(self._in, b"end\n")
                self._process.wait(10)
        self.kill()

    def kill(self) -> None:
        """Kills it if it still runs. May be called twice."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _until(self, mark: bytes, size: int, deadline: float, command: str) -> bytes:
        """The next `size` bytes, or through the next `mark`."""
        while True:
            end = self._buffer.find(mark) + 1 if mark else size if len(self._buffer) >= size else 0
            if end > 0 or (not mark and size == 0):
                taken, self._buffer = self._buffer[:end], self._buffer[end:]
                return taken
            if not self._waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise ProgramFailed(f"{command!r} has not been answered in {PATIENCE:.0f} s")
            more = os.read(self._out, 1 << 20)
            if not more:
                raise ProgramFailed(f"the program ended with {self._process.wait(5)} at {command!r}")
            self._buffer += more
