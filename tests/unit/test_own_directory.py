"""Directories of session files: each goes with its process, and what a killed one has left, the next one removes."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from gpupool.client.session.own_directory import own_directory

from jupyter_gpupool.server.session.sessions import Sessions
from tests.support.memory_pool import MemoryPool

#: Larger than any process id.
ENDED = 2**22 + 1


def left(parent: Path, process: int, host: str) -> Path:
    """As of a process that was killed."""
    directory = parent / f"{process}-00000000"
    directory.mkdir()
    (directory / "lock").write_text(host)
    (directory / "session").write_text("token")
    return directory


def sessions_of_a_server(parent: Path) -> Sessions:
    pool: Any = MemoryPool()
    return Sessions(pool, parent, on_change=lambda _: None)


def test_it_goes_with_its_process(tmp_path: Path) -> None:
    with own_directory(tmp_path, os.getpid()) as directory:
        (directory / "session").write_text("token")
        assert (directory.parent, directory.stat().st_mode & 0o777) == (tmp_path, 0o700)
    assert not directory.exists()


def test_it_stays_where_a_forked_child_ends_before(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(own_directory(tmp_path, os.getpid()))
        child = os.fork()
        if child == 0:
            stack.close()  # what Python does at its end with a generator that waits
            os._exit(0)
        os.waitpid(child, 0)
        assert (directory / "lock").exists()
    assert not directory.exists()


# In a container that starts again, the next process has the number of the one that was killed.
@pytest.mark.parametrize("itself", [False, True])
def test_what_a_killed_process_has_left_is_removed(tmp_path: Path, itself: bool) -> None:
    directory = left(tmp_path, os.getpid() if itself else ENDED, socket.gethostname())
    with own_directory(tmp_path, os.getpid()):
        assert not directory.exists()


def test_what_may_be_in_use_stays(tmp_path: Path) -> None:
    elsewhere = left(tmp_path, ENDED, "another-host")
    parents = left(tmp_path, os.getppid(), socket.gethostname())
    with own_directory(tmp_path, os.getpid()) as first, own_directory(tmp_path, os.getpid()) as second:
        assert first.exists()
        assert second.exists()
    assert elsewhere.exists()
    assert parents.exists()


async def test_a_jupyter_server_removes_the_session_files_of_one_that_was_killed(tmp_path: Path) -> None:
    killed = left(tmp_path, ENDED, socket.gethostname())
    sessions, others = sessions_of_a_server(tmp_path), sessions_of_a_server(tmp_path)
    assert not killed.exists()
    await sessions.start()
    await others.start()
    path = (await sessions.launch("k1")).files.session.path
    beside = (await others.launch("k1")).files.session.path
    assert path != beside
    assert path.exists()
    await sessions.stop()
    assert (path.parent.exists(), beside.exists()) == (False, True)
    await others.stop()
    assert list(tmp_path.iterdir()) == []
