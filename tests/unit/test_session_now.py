"""What a process takes its session for while the file that says so can't be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpupool.client.session_file import SESSION_FILE_VARIABLE, SessionFile, SessionRecord, session_now


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionFile:
    monkeypatch.setenv(SESSION_FILE_VARIABLE, str(tmp_path / "session"))
    return SessionFile(tmp_path / "session")


def test_a_file_that_is_not_there_says_none(file: SessionFile) -> None:
    assert session_now() == SessionRecord()


def test_one_that_cannot_be_read_says_what_it_said_last(
    file: SessionFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without free descriptors: arrays of the session must not be taken for lost."""
    file.write("parked", message="No GPU is attached.", session="5e" * 16)
    before = session_now()
    assert before.session == "5e" * 16

    def fails(_: SessionFile) -> SessionRecord:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(SessionFile, "read", fails)
    assert session_now() == before
    monkeypatch.setenv(SESSION_FILE_VARIABLE, str(tmp_path / "another"))
    assert session_now() == SessionRecord()
