"""A session is written out by one worker and goes on in another: same handles, same addresses, same bytes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.worker_process import WorkerError, WorkerProcess
from tests.support.moving_session import (
    ARENA,
    CONTEXT,
    EVENT,
    GRANULE,
    MODULE,
    PTX,
    SCALE,
    STREAM,
    Program,
    Start,
    connect,
    start,
    written,
)
from tests.support.stack import wait_until
from tests.support.table_client import TableClient, handle
from tests.support.worker_state import used_bytes

__all__ = ["start"]  # the fixture


def test_a_session_goes_on_from_a_folder_in_another_worker_on_another_device(
    start: Start, tmp_path: Path
) -> None:
    old = start()
    program = Program()
    client = connect(old)
    program.set_up(client)
    assert old.stats()["move"] == "ok"
    used = used_bytes(old)
    assert used // GRANULE == 17
    folder = tmp_path / "image"
    figures = written(old, folder)
    # 36 MiB are mapped: one page of numbers, the pattern once, a program, the conversation.
    assert GRANULE < int(figures["bytes"]) < 3 * GRANULE
    assert (folder / "manifest").stat().st_mode & 0o777 == 0o600
    assert (folder / "chunks").stat().st_mode & 0o777 == 0o600
    old.process.kill()
    old.process.wait()
    client.socket.close()

    new = start(device=1, epoch=2, session=old.session, token=old.token, image=folder)
    assert int(new.stats()["kernels"]) == 2
    assert used_bytes(new) == used
    again = connect(new)
    elapsed = again.call("cuEventElapsedTime_v2", hStart=EVENT, hEnd=EVENT)
    assert elapsed["result"] == 400  # complete, but nobody knows any more when that was
    program.check(again)
    # What it made it can end, and make again under the same handle.
    for call, field, value in (
        ("cuEventDestroy_v2", "hEvent", EVENT),
        ("cuStreamDestroy_v2", "hStream", STREAM),
        ("UnloadImage", "image", MODULE),
    ):
        again.post(call, **{field: value})
    again.post("cuEventCreate", phEvent=EVENT, Flags=2)
    again.post("UnmapMemory", device=0, address=program.large, size=16 * GRANULE)
    assert again.deferred() == 0
    assert used_bytes(new) // GRANULE == 1


def test_it_can_be_moved_on_from_where_it_went(start: Start, tmp_path: Path) -> None:
    worker = start()
    program = Program()
    client = connect(worker)
    program.set_up(client)
    session, token = worker.session, worker.token
    for epoch in (2, 3, 4):
        written(worker, tmp_path / f"image{epoch}")
        worker.process.kill()
        worker.process.wait()
        worker = start(epoch=epoch, session=session, token=token, image=tmp_path / f"image{epoch}")
    program.check(connect(worker))


def test_what_was_written_down_stands_still_until_the_worker_is_given_a_lease_again(
    start: Start, tmp_path: Path
) -> None:
    worker = start()
    program = Program()
    client = connect(worker)
    program.set_up(client)
    written(worker, tmp_path / "image")
    # Without a lease memory can be freed; but then the image would know nothing of it.
    client.post("UnmapMemory", device=0, address=program.data, size=GRANULE)
    used = worker.stats()["mem"]
    assert worker.ask("lease epoch=2 deadline_ns=9000000000000000000").startswith("ok")
    client.epoch = 2
    assert client.deferred() == 0
    assert worker.stats()["mem"] != used


@pytest.mark.parametrize("what", ["manifest", "chunks", "cut", "none", "epoch", "session", "share"])
def test_an_image_that_cannot_be_used_is_one_clear_sentence(start: Start, tmp_path: Path, what: str) -> None:
    old = start()
    program = Program()
    program.set_up(connect(old))
    folder = tmp_path / "image"
    written(old, folder)
    more: dict[str, object] = {"epoch": 2, "session": old.session, "token": old.token, "image": folder}
    match what:
        case "manifest" | "chunks":
            bytes_ = bytearray((folder / what).read_bytes())
            bytes_[len(bytes_) // 2] ^= 1
            (folder / what).write_bytes(bytes_)
            said = "damaged"
        case "cut":
            os.truncate(folder / "chunks", (folder / "chunks").stat().st_size // 2)
            said = "is missing"
        case "none":
            (folder / "manifest").unlink()
            said = "No such file"
        case "epoch":
            more["epoch"] = 1
            said = "epoch 1"
        case "session":
            more["session"] = "00" * 16
            said = "another session"
        case _:
            more["mib"] = 16
            said = "no room in the share"
    with pytest.raises(WorkerError, match=said):
        start(**more)


def test_a_folder_that_holds_an_image_is_not_written_again(start: Start, tmp_path: Path) -> None:
    worker = start()
    connect(worker)
    written(worker, tmp_path / "image")
    assert worker.ask(f"export folder={tmp_path / 'image'}") == "refused epoch=1 reason=failed"
    assert worker.ask(f"export folder={tmp_path / 'no' / 'image'}") == "refused epoch=1 reason=failed"
    new = start(epoch=2, session=worker.session, token=worker.token, image=tmp_path / "image")
    assert new.stats()["move"] == "ok"


def test_what_cannot_be_carried_is_known_beforehand_and_only_for_as_long_as_it_exists(start: Start) -> None:
    worker = start()
    client = connect(worker)
    client.post("SelectContext", context=CONTEXT)
    assert client.deferred() == 0
    assert worker.stats()["move"] == "ok"
    graph = handle("graph", 1)
    assert client.call("cuGraphCreate", phGraph=graph, flags=0)["result"] == 0
    assert worker.stats()["move"] == "graphs"
    client.post("cuGraphDestroy", hGraph=graph)
    assert client.deferred() == 0
    assert worker.stats()["move"] == "ok"
    assert client.call("LoadImage", image=MODULE, payload=PTX)["result"] == 0
    assert client.call("FindGlobal", image=MODULE, name=b"step")["result"] == 0
    assert worker.stats()["move"] == "global-addresses"
    worker.ask("revoke epoch=1")
    assert worker.ask("export folder=/nowhere") == "refused epoch=1 reason=global-addresses"
    client.post("UnloadImage", image=MODULE)
    assert client.deferred() == 0
    assert worker.stats()["move"] == "ok"
    assert worker.ask("lease epoch=2 deadline_ns=9000000000000000000").startswith("ok")
    client.epoch = 2
    allocates = PTX + b".extern .func (.param .b64 memory) malloc(.param .b64 size);\n"
    assert client.call("LoadImage", image=MODULE, payload=allocates)["result"] == 0
    assert worker.stats()["move"] == "other"


def test_an_image_that_begins_as_addresses_stays_where_it_is(start: Start) -> None:
    worker = start()
    client = connect(worker)
    client.post("SelectContext", context=CONTEXT)
    begins_as_address = PTX + b".global .u64 first = generic(step);\n"
    assert client.call("LoadImage", image=MODULE, payload=begins_as_address)["result"] == 0
    assert worker.stats()["move"] == "other"


def moved(start: Start, old: WorkerProcess, folder: Path, **more: object) -> TableClient:
    """The client in the worker to which the session went."""
    written(old, folder)
    return connect(
        start(epoch=old.epoch + 1, session=old.session, token=old.token, image=folder, device=1, **more)
    )


def test_memory_of_the_programs_own_keeps_what_is_mapped_nowhere_and_what_is_mapped_twice(
    start: Start, tmp_path: Path
) -> None:
    old = start()
    program = Program()
    client = connect(old)
    client.post("SelectContext", context=CONTEXT)
    memory, other = handle("allocation", 4, 3), handle("allocation", 5)
    here, there, rest = (ARENA + n * 8 * GRANULE for n in (1, 2, 3))
    for name, size in ((memory, 3 * GRANULE), (other, GRANULE)):
        client.post("CreatePhysical", memory=name, device=0, size=size)

    def map_at(
        client: TableClient, address: int, size: int, offset: int, memory: int, access: int = 3
    ) -> None:
        client.post("MapPhysical", place=0, address=address, size=size, offset=offset, memory=memory)
        client.post("SetPhysicalAccess", place=0, address=address, size=size, access=access)

    map_at(client, here, 3 * GRANULE, 0, memory)
    client.post("CopyFromHost", address=here + GRANULE, stream=0, payload=program.pattern * 2)
    client.post("UnmapPhysical", place=0, address=here, size=3 * GRANULE)
    map_at(client, there, GRANULE, GRANULE, memory)
    map_at(client, rest, GRANULE, GRANULE, memory, access=1)
    map_at(client, here, GRANULE, 0, other)
    client.post("CopyFromHost", address=here, stream=0, payload=b"7" * GRANULE)
    client.post("UnmapPhysical", place=0, address=here, size=GRANULE)  # nowhere now
    assert client.deferred() == 0
    again = moved(start, old, tmp_path / "image")
    assert program.read(again, there, GRANULE) == program.pattern
    # One memory behind two addresses, of which one may be read only.
    again.post("CopyFromHost", address=there, stream=0, payload=b"new")
    again.post("SetPhysicalAccess", place=0, address=rest, size=GRANULE, access=3)
    assert program.read(again, rest, 3) == b"new"
    map_at(again, here, GRANULE, 0, other)
    assert program.read(again, here, GRANULE) == b"7" * GRANULE
    map_at(again, here + GRANULE, GRANULE, 2 * GRANULE, memory)
    assert program.read(again, here + GRANULE, GRANULE) == program.pattern
    for name in (memory, other):
        again.post("ReleasePhysical", memory=name)
    assert again.deferred() == 0


def test_contexts_of_the_programs_own_come_along_with_their_streams_settings_and_variables(
    start: Start, tmp_path: Path
) -> None:
    old = start()
    program = Program()
    client = connect(old)
    own, gone = handle("context", 8), handle("context", 9, 2)
    for context in (own, gone):
        assert client.call("CreateContext", context=context, flags=0, device=0)["result"] == 0
        client.post("SelectContext", context=context)
        assert client.call("cuCtxSetLimit", limit=0, value=8192)["result"] == 0
    client.post("MapMemory", device=0, address=program.data, size=GRANULE)
    client.post("SelectContext", context=own)
    client.post("cuStreamCreate", phStream=STREAM, Flags=1)
    loaded = client.call("LoadImage", image=MODULE, payload=PTX)
    ordinal = 0 if loaded["kernels"].index(b"scale") < loaded["kernels"].index(b"other") else 1
    client.post("BindFunction", function=SCALE, image=MODULE, ordinal=ordinal)
    program.launch(client, SCALE, STREAM, 1)
    client.post("DestroyContext", context=gone)
    assert client.deferred() == 0
    again = moved(start, old, tmp_path / "image")  # what was selected is so still
    assert again.call("cuCtxGetLimit", limit=0)["pvalue"] == 8192
    program.launch(again, SCALE, STREAM, 1)
    assert program.values(again) == [5 + 6] * 32
    again.post("DestroyContext", context=own)
    assert again.deferred() == 0


def test_a_session_on_two_devices_moves_as_a_whole(start: Start, tmp_path: Path) -> None:
    old = start(both=True)
    program = Program()
    client = connect(old)
    span = 1 << 40
    second = ARENA + span
    client.post("SelectContext", context=CONTEXT)
    client.post("MapMemory", device=0, address=ARENA, size=GRANULE)
    client.post("MapMemory", device=1, address=second, size=2 * GRANULE)
    client.post("CopyFromHost", address=ARENA, stream=0, payload=b"first")
    client.post("SelectContext", context=handle("context", 1))
    client.post("cuStreamCreate", phStream=STREAM, Flags=0)
    client.post("CopyFromHost", address=second + GRANULE, stream=STREAM, payload=program.pattern)
    assert client.deferred() == 0
    again = moved(start, old, tmp_path / "image", both=True)
    assert again.call("cuStreamQuery", hStream=STREAM)["result"] == 0
    assert program.read(again, second + GRANULE, GRANULE) == program.pattern
    assert program.read(again, ARENA, 5) == b"first"
    with pytest.raises(WorkerError, match="it has 2 devices, and this worker 1"):
        start(epoch=3, session=old.session, token=old.token, image=tmp_path / "image")


def test_a_session_whose_memory_lies_in_the_host_is_written_too(start: Start, tmp_path: Path) -> None:
    old = start()
    program = Program()
    client = connect(old)
    program.set_up(client)
    assert old.ask("revoke epoch=1").startswith("ok")
    assert old.ask("park epoch=1", timeout=30).startswith("ok")
    assert old.stats()["place"] == "host"
    # Said while memory was away: it counts all the same.
    posts = int(old.stats()["posts"])
    client.post("cuEventDestroy_v2", hEvent=EVENT)
    wait_until(lambda: int(old.stats()["posts"]) > posts, 5, "the frame to be received", interval=0.01)
    answer = old.ask(f"export folder={tmp_path / 'image'}", timeout=30)
    assert answer.startswith("ok "), answer
    new = start(device=1, epoch=2, session=old.session, token=old.token, image=tmp_path / "image")
    again = connect(new)
    assert again.call("cuEventQuery", hEvent=EVENT)["result"] == 400
    again.post("cuEventCreate", phEvent=EVENT, Flags=0)
    program.check(again)


def test_a_start_that_took_longer_than_its_lease_serves_under_the_renewal(
    start: Start, tmp_path: Path
) -> None:
    old = start()
    program = Program()
    program.set_up(connect(old))
    written(old, tmp_path / "image")
    more: dict[str, object] = {"session": old.session, "token": old.token, "image": tmp_path / "image"}
    new = start(device=1, epoch=2, lease_seconds=0.01, **more)
    assert new.ask("lease epoch=2 deadline_ns=9000000000000000000") == "ok epoch=2"
    assert new.stats()["state"] == "attached"
    program.check(connect(new))


def test_memory_that_was_brought_back_in_vain_goes_to_the_host_again(start: Start, tmp_path: Path) -> None:
    worker = start()
    program = Program()
    client = connect(worker)
    program.set_up(client)
    written(worker, tmp_path / "image")
    assert worker.ask("park epoch=1", timeout=30).startswith("ok")
    # The folder holds an image already.
    assert worker.ask(f"export folder={tmp_path / 'image'}", timeout=30) == "refused epoch=1 reason=failed"
    assert worker.stats()["place"] == "host"
    assert worker.ask("lease epoch=2 deadline_ns=9000000000000000000", timeout=30).startswith("ok")
    client.epoch = 2
    program.check(client)


def test_only_a_session_without_a_lease_is_written(start: Start, tmp_path: Path) -> None:
    worker = start()
    connect(worker)
    assert worker.ask(f"export folder={tmp_path / 'image'}") == "refused epoch=1 reason=attached"
    assert not (tmp_path / "image").exists()
