"""The command line without the start of an interpreter: each command is a process of its own (`forked.py`).

How people start commands is tried by `gpupool lab` and `gpupool up`, and by tests of what a terminal does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tests.support.forked import ForkedProcess, ForkServer, load, serve

#: The command line, and what its commands load when they run.
LOADED = (
    "gpupool.cli.main", "gpupool.pool.server", "gpupool.pool.serving", "gpupool.node.service", "gpupool.cli.top.run_command",
)  # fmt: skip

_server = ForkServer("tests.support.forked_cli")


class Command(ForkedProcess):
    """A `gpupool` that runs.

    Args:
        arguments: of the command.
        environment: all of its variables.
        out: file for what it prints.
        err: file for its errors.
        folder: where it runs.
        session: whether it begins a session and a process group of its own.
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
        super().__init__(
            _server, ["gpupool", *arguments], environment, (None, out.fileno(), err.fileno()), folder, session
        )


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


if __name__ == "__main__":
    load(LOADED)
    from gpupool.cli.main import app

    sys.argv = serve(sys.argv[1])
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # as `gpupool.cli.main` does when it is loaded
    app(prog_name="gpupool")
