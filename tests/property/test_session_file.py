"""The session file says what was written, is never half written, and nothing else is read as one."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
from gpupool.client.session_file import MAX_BYTES, SessionFile, SessionFileError, SessionRecord
from hypothesis import given
from hypothesis import strategies as st

LINE = st.text(st.characters(blacklist_categories=("Cc", "Cs"), blacklist_characters="\n"), max_size=200)
RECORDS = st.builds(
    SessionRecord,
    state=st.just("attached"),
    generation=st.integers(0, 2**32 - 1),
    session=st.text("0123456789abcdef", min_size=32, max_size=32),
    epoch=st.integers(1, 2**32 - 1),
    address=st.builds(
        "{}:{}{}".format,
        st.sampled_from(["127.0.0.1", "gpu-1.example", "[::1]"]),
        st.integers(1, 65535),
        st.sampled_from(["", " local=/run/g/data.sock", " tls=" + 64 * "0"]),
    ),
    token=st.text("0123456789abcdef", min_size=64, max_size=64),
    message=LINE.map(lambda text: " ".join(text.split())),
    software=st.booleans(),
    profile=st.just("/home/ann/a folder/profile"),
    share=st.sampled_from(["", "0:200:1638", "0:1000:143771,1:500:4096"]),
)  # fmt: skip


@given(RECORDS)
def test_what_is_written_is_read(record: SessionRecord) -> None:
    assert SessionRecord.decode(record.encode()) == record


@given(RECORDS, st.data())
def test_a_cut_file_is_never_read_as_another_session(record: SessionRecord, data: st.DataObject) -> None:
    raw = record.encode()
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    try:
        read = SessionRecord.decode(cut)
    except SessionFileError:
        return
    assert read.token in ("", record.token)
    assert read.session in ("", record.session)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_record_or_an_error(raw: bytes) -> None:
    for candidate in (raw, b"version 1\n" + raw):
        try:
            SessionRecord.decode(candidate)
        except SessionFileError:
            continue


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"version 2\nstate none\n",
        b"version 1\nstate happy\n",
        b"version 1\nstate none\nepoch 4294967296\n",
        b"version 1\nstate none\nepoch -1\n",
        b"version 1\nstate none\ntoken " + b"g" * 64 + b"\n",
        b"version 1\nstate none\ntoken abc\n",
        b"version 1\nstate none\naddress nowhere\n",
        b"version 1\nstate attached\n",
        b"version 1\nstate none\nstate attached\n",
        b"\xff\xfe",
        b"version 1\n" + b"a b\n" * MAX_BYTES,
    ],
)
def test_a_malformed_file_is_refused(raw: bytes) -> None:
    with pytest.raises(SessionFileError):
        SessionRecord.decode(raw)


def test_keys_of_a_newer_version_are_skipped() -> None:
    assert SessionRecord.decode(b"version 1\nstate none\ncolour blue\n") == SessionRecord()


def test_a_file_is_private_counts_generations_and_leaves_no_temporary(tmp_path: Path) -> None:
    file = SessionFile(tmp_path / "session")
    assert file.read() == SessionRecord()
    first = file.write("queued", message="place 2\nof 3")
    second = file.write("closed", message="over")
    assert (first.generation, second.generation) == (1, 2)
    assert first.message == "place 2 of 3"
    assert file.read() == second
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["session"]
    file.remove()
    file.remove()


def test_what_the_format_cannot_hold_is_not_written(tmp_path: Path) -> None:
    file = SessionFile(tmp_path / "session")
    with pytest.raises(SessionFileError):
        file.write("attached", session="ab")
    with pytest.raises(SessionFileError):
        file.write("none", profile="/a\ntoken " + "0" * 64)
    for share in ("0:200", "0:200:1638,", "0:200:1638\ntoken", "a:b:c"):
        with pytest.raises(SessionFileError):
            file.write("none", share=share)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_beside_a_writer_sees_whole_files_only(tmp_path: Path) -> None:
    file = SessionFile(tmp_path / "session")
    file.write("none")
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number = number % 1000 + 1
            file.write("attached", session=f"{number:032x}", address=f"h:{number}", token=f"{number:064x}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        generation = 0
        for _ in range(500):
            record = file.read()
            assert record.generation >= generation
            generation = record.generation
            if record.session:
                assert int(record.session, 16) == int(record.token, 16)
                assert record.address == f"h:{int(record.token, 16)}"
    finally:
        stop.set()
        writer.join()
