"""The installed `gpupool` command. Where only the kernel's part of the package is installed, it says what is missing."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Final

#: What the command line itself is written with. The extras `jupyter` and `pool` bring it.
_NEEDED: Final = ("typer", "rich")

#: As `exits.INTERRUPTED`, which cannot be loaded yet.
_INTERRUPTED: Final = 130
#: A full disk, or a full share of one.
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


def main() -> None:
    """Runs the command of the process's arguments, and ends the process."""
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What the terminal's encoding lacks is written as on standard error.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        # While modules are loaded: a command that runs ends as `exits` says.
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        _drop_output()  # whoever read it has enough
        sys.exit(1)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _drop_output()
        sys.exit(f"gpupool: the output cannot be written: {error.strerror}")


def _drop_output() -> None:
    """What is left of it would be tried again at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> None:
    try:
        from gpupool.cli.main import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        sys.exit(
            f"gpupool: the command line needs the package {error.name}. Run: pip install 'jupyter-gpupool[jupyter]', "
            "or 'jupyter-gpupool[pool]' for a pool server or a node"
        )
    app(prog_name="gpupool")
