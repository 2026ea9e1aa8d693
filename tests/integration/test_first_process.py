"""`gpupool` as the first process of a container: a signal in its first seconds ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

#: A container in so far as it matters here: the program is process 1 of a namespace of its own.
NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")


def _allowed() -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    return False


pytestmark = pytest.mark.skipif(not _allowed(), reason="this machine gives no process namespaces")


@contextlib.contextmanager
def first_process(program: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """It runs and has said its first line. With the id that it has out here."""
    command = [*NAMESPACE, sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as unshare:
        try:
            assert unshare.stdout is not None
            assert unshare.stdout.readline().strip() == "1"
            yield unshare, int(Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text())
        finally:
            unshare.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_while_it_imports(number: signal.Signals) -> None:
    program = "import gpupool.cli.main, os, time; print(os.getpid(), flush=True); time.sleep(300)"
    with first_process(program) as (unshare, pid):
        os.kill(pid, number)
        assert unshare.wait(timeout=60) == 128 + number


def test_without_that_the_kernel_ignores_it() -> None:
    """What the test above would see if nothing were done."""
    program = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
    with first_process(program) as (unshare, pid):
        os.kill(pid, signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            unshare.wait(timeout=0.5)


def test_any_other_process_keeps_what_it_had() -> None:
    program = "import gpupool.cli.main, signal; print(int(signal.getsignal(signal.SIGTERM)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) == signal.SIG_DFL
