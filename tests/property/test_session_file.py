"""The session file says what was written, is never half written, and nothing else is read as one."""

from __future__ import annotations

import stat
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from gpupool.client.session_file import (
    MAX_BYTES,
    MAX_WORKERS,
    SessionFile,
    SessionFileError,
    SessionRecord,
    WorkerRecord,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.support.patience import BUSY

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
    told=st.booleans(),
)  # fmt: skip
FURTHER = st.builds(
    WorkerRecord,
    session=st.text("0123456789abcdef", min_size=32, max_size=32),
    epoch=st.integers(1, 2**32 - 1),
    address=st.sampled_from(["10.0.0.2:7000", "gpu-2.example:7001 tls=" + 64 * "a"]),
    token=st.text("0123456789abcdef", min_size=64, max_size=64),
)


@st.composite
def gangs(draw: st.DrawFn) -> SessionRecord:
    """A process with workers on several nodes."""
    workers = tuple(draw(st.lists(FURTHER, min_size=1, max_size=MAX_WORKERS - 1)))
    devices = tuple(draw(st.integers(1, 4)) for _ in range(1 + len(workers)))
    return replace(draw(RECORDS), workers=workers, devices=devices)


@given(RECORDS | gangs())
def test_what_is_written_is_read(record: SessionRecord) -> None:
    assert SessionRecord.decode(record.encode()) == record


@given(RECORDS | gangs(), st.data())
def test_a_cut_file_is_never_read_as_another_session(record: SessionRecord, data: st.DataObject) -> None:
    raw = record.encode()
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    try:
        read = SessionRecord.decode(cut)
    except SessionFileError:
        return
    assert read.token in ("", record.token)
    assert read.session in ("", record.session)
    assert read.workers in ((), record.workers), "no worker is left out, and none is half named"


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


FIRST = SessionRecord(
    "attached", 1, session="a" * 32, epoch=1, address="10.0.0.1:7000", token="b" * 64, devices=(2, 1)
)
SECOND = WorkerRecord("c" * 32, 3, "10.0.0.2:7000", "d" * 64)


def test_workers_on_several_nodes_as_they_are_written() -> None:
    assert replace(FIRST, workers=(SECOND,)).encode().decode().splitlines() == [
        *("version 1", "state attached", "generation 1", "session " + "a" * 32, "epoch 1"),
        *("address 10.0.0.1:7000", "token " + "b" * 64, "devices 2,1"),
        *("session.1 " + "c" * 32, "epoch.1 3", "address.1 10.0.0.2:7000", "token.1 " + "d" * 64),
        "software 0",
    ]


@pytest.mark.parametrize(
    "record",
    [
        FIRST,  # devices of a worker that is not named
        replace(FIRST, workers=(SECOND,), devices=()),
        replace(FIRST, workers=(SECOND,), devices=(2,)),
        replace(FIRST, workers=(SECOND,), devices=(2, 0)),
        replace(FIRST, workers=(SECOND,), devices=(60, 5)),
        replace(FIRST, workers=(SECOND,) * MAX_WORKERS, devices=(1,) * (1 + MAX_WORKERS)),
        *(
            replace(FIRST, workers=(replace(SECOND, **{key: value}),))
            for key, value in {"session": "", "epoch": 0, "address": "", "token": ""}.items()
        ),
        replace(FIRST, workers=(replace(SECOND, address="nowhere"),)),
        replace(FIRST, workers=(replace(SECOND, token="d" * 63),)),
    ],
)
def test_half_a_gang_is_not_written(record: SessionRecord) -> None:
    with pytest.raises(SessionFileError):
        record.encode()


@pytest.mark.parametrize(
    "line",
    [
        "session.0 " + "c" * 32,
        "session.16 " + "c" * 32,
        "session.01 " + "c" * 32,
        "session.x " + "c" * 32,
        "session.2 " + "c" * 32,  # and no worker 1
        "session. " + "c" * 32,
        "epoch.1 0",
        "epoch.1 4294967296",
        "token.1 abc",
        "address.1",
        "devices 0",
        "devices 1,",
        "devices 1,1,1,x",
    ],
)
def test_a_malformed_further_worker_is_refused(line: str) -> None:
    with pytest.raises(SessionFileError):
        SessionRecord.decode(f"version 1\nstate none\ndevices 1,1,1\n{line}\n".encode())
    if "devices" in line:
        with pytest.raises(SessionFileError):
            SessionRecord.decode(f"version 1\nstate none\n{line}\n".encode())


def test_of_a_parked_gang_not_every_worker_need_be_named() -> None:
    raw = b"version 1\nstate parked\nsession " + b"a" * 32 + b"\ndevices 2,1\n"
    assert SessionRecord.decode(raw).devices == (2, 1)


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
        generation, seen = 0, set()
        until = time.monotonic() + 30 * BUSY
        while len(seen) < 20:
            assert time.monotonic() < until and writer.is_alive()
            record = file.read()
            assert record.generation >= generation
            generation = record.generation
            if record.session:
                seen.add(generation)
                assert int(record.session, 16) == int(record.token, 16)
                assert record.address == f"h:{int(record.token, 16)}"
    finally:
        stop.set()
        writer.join()
