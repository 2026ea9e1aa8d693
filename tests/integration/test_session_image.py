"""A session is written out by one worker and goes on in another: same handles, same addresses, same bytes."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpupool.bench.worker_process import ProbedDevice, WorkerError, WorkerProcess, probe, software_driver

from tests.support.stack import wait_until
from tests.support.table_client import TableClient, handle
from tests.support.wire_client import hello_frame

SOFTWARE = {"SOFTGPU_DEVICES": "2", "SOFTGPU_MEMORY_MIB": "256"}
GRANULE = 2 << 20
ARENA = 0x6000_0000_0000  # where clients wish to have it

# data[i] = data[i] * factor + step, and `step` grows by one with each launch (of one warp).
PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.global .align 4 .u32 step = 5;
.visible .global .align 4 .b8 untouched[64];
.visible .entry other() { ret; }
.visible .entry scale(.param .u64 data, .param .u32 factor)
{
  .reg .b32 %r<9>; .reg .b64 %rd<5>; .reg .pred %p<2>;
  ld.param.u64 %rd1, [data]; ld.param.u32 %r1, [factor];
  mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r3, [step]; ld.global.u32 %r4, [%rd3];
  mul.lo.u32 %r5, %r4, %r1; add.u32 %r6, %r5, %r3; st.global.u32 [%rd3], %r6;
  setp.ne.u32 %p1, %r2, 0; @%p1 bra DONE;
  add.u32 %r7, %r3, 1; st.global.u32 [step], %r7;
DONE: ret;
}
"""

CONTEXT = handle("context", 0)
STREAM, OTHER_STREAM = handle("stream", 3), handle("stream", 4, 7)
EVENT = handle("event", 9)
MODULE, LIBRARY = handle("module", 1), handle("library", 2)
SCALE, SCALE_OF_LIBRARY = handle("function", 5), handle("kernel", 6)

Start = Callable[..., WorkerProcess]


@pytest.fixture(scope="module")
def devices() -> list[ProbedDevice]:
    return probe(software_driver(), SOFTWARE)[1]


@pytest.fixture
def start(devices: list[ProbedDevice], tmp_path: Path) -> Iterator[Start]:
    running: list[WorkerProcess] = []

    def start_one(device: int = 0, mib: int = 128, both: bool = False, **more: object) -> WorkerProcess:
        folder = tmp_path / f"w{len(list(tmp_path.glob('w*')))}"
        folder.mkdir()
        lent = [device, 1 - device] if both else [device]
        worker = WorkerProcess(
            folder, software_driver(), [(devices[n], 500, mib) for n in lent], environment=SOFTWARE, **more
        )  # type: ignore[arg-type]
        running.append(worker.__enter__())
        return worker

    yield start_one
    for worker in running:
        worker.__exit__(None, None, None)


def connect(worker: WorkerProcess) -> TableClient:
    client = TableClient(worker.port)
    if worker.fingerprint:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        client.socket = context.wrap_socket(client.socket)
    client.epoch = worker.epoch
    reply = client.hello(worker.token, worker.session, pid=os.getpid(), arena=ARENA)
    assert reply.status == 0
    assert struct.unpack_from("<Q", reply.body, 8)[0] == ARENA
    return client


def kernel_names(kernels: bytes) -> list[str]:
    """The names in a LoadImage reply; each description begins with its name."""
    return [name for name in ("other", "scale") if name.encode() in kernels]


class Program:
    """What a client has on its worker, and how it looks at it again."""

    data = ARENA + 8 * GRANULE
    large = ARENA + 64 * GRANULE

    def __init__(self) -> None:
        self.pattern = os.urandom(GRANULE)

    def set_up(self, client: TableClient) -> None:
        client.post("SelectContext", context=CONTEXT)
        client.post("MapMemory", device=0, address=self.data, size=GRANULE)
        client.post("MapMemory", device=0, address=self.large, size=16 * GRANULE)
        client.post("cuStreamCreateWithPriority", phStream=STREAM, flags=1, priority=-1)
        client.post("cuStreamCreate", phStream=OTHER_STREAM, Flags=0)
        client.post("cuEventCreate", phEvent=EVENT, Flags=0)
        loaded = client.call("LoadImage", image=MODULE, payload=PTX)
        assert loaded["result"] == 0
        names = kernel_names(loaded["kernels"])
        assert client.call("LoadImage", image=LIBRARY, payload=PTX)["result"] == 0
        order = sorted(names, key=lambda name: loaded["kernels"].index(name.encode()))
        client.post("BindFunction", function=SCALE, image=MODULE, ordinal=order.index("scale"))
        client.post("BindFunction", function=SCALE_OF_LIBRARY, image=LIBRARY, ordinal=order.index("scale"))
        client.post("CopyFromHost", address=self.data, stream=STREAM, payload=struct.pack("<32I", *range(32)))
        # The same two megabytes three times, and zeros around them.
        for n in (1, 5, 6):
            client.post("CopyFromHost", address=self.large + n * GRANULE, stream=0, payload=self.pattern)
        self.launch(client, SCALE, STREAM, 3)  # step: 5, then 6
        client.post("cuEventRecord", hEvent=EVENT, hStream=STREAM)
        client.call("cuStreamSynchronize", hStream=STREAM)
        self.launch(client, SCALE_OF_LIBRARY, OTHER_STREAM, 1)
        assert client.call("cuStreamSynchronize", hStream=OTHER_STREAM)["result"] == 0
        assert client.deferred() == 0

    def launch(self, client: TableClient, function: int, stream: int, factor: int) -> None:
        client.post(
            "Launch", function=function, grid_x=1, grid_y=1, grid_z=1, block_x=32, block_y=1, block_z=1,
            stream=stream, parameters=struct.pack("<QI", self.data, factor),
        )  # fmt: skip

    def read(self, client: TableClient, address: int, size: int) -> bytes:
        answer = client.call("CopyToHost", address=address, size=size, stream=0)
        assert answer["result"] == 0
        return bytes(answer["payload"])

    def values(self, client: TableClient) -> list[int]:
        return list(struct.unpack("<32I", self.read(client, self.data, 128)))

    def check(self, client: TableClient) -> None:
        """Everything that set_up made is there and works; changes nothing for good but one launch."""
        before = [(n * 3 + 5) * 1 + 5 for n in range(32)]
        assert self.values(client) == before
        for n in range(16):
            expected = self.pattern if n in (1, 5, 6) else bytes(GRANULE)
            assert self.read(client, self.large + n * GRANULE, GRANULE) == expected
        assert client.call("cuEventQuery", hEvent=EVENT)["result"] == 0
        # The variable of each image has kept its value, and kernels their numbers.
        self.launch(client, SCALE, STREAM, 2)
        client.post("cuStreamWaitEvent", hStream=OTHER_STREAM, hEvent=EVENT, Flags=0)
        assert client.call("cuStreamSynchronize", hStream=STREAM)["result"] == 0
        after = [value * 2 + 6 for value in before]
        assert self.values(client) == after
        assert client.deferred() == 0


def written(worker: WorkerProcess, folder: Path) -> dict[str, str]:
    """Revokes the lease and writes the session out."""
    assert worker.ask(f"revoke epoch={worker.epoch}").startswith("ok")
    answer = worker.ask(f"export folder={folder}", timeout=30)
    assert answer.startswith("ok "), answer
    return dict(item.split("=") for item in answer.split()[1:])


def test_a_session_goes_on_from_a_folder_in_another_worker_on_another_device(
    start: Start, tmp_path: Path
) -> None:
    old = start()
    program = Program()
    client = connect(old)
    program.set_up(client)
    assert old.stats()["move"] == "ok"
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
    assert new.stats()["mem"].split(":")[1] == str(17 * GRANULE)
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
    assert new.stats()["mem"].split(":")[1] == str(GRANULE)


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
        client.post("CreateContext", context=context, flags=0, device=0)
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


def test_only_a_session_without_a_lease_is_written(start: Start, tmp_path: Path) -> None:
    worker = start()
    connect(worker)
    assert worker.ask(f"export folder={tmp_path / 'image'}") == "refused epoch=1 reason=attached"
    assert not (tmp_path / "image").exists()


# ---- from worker to worker


def address_of(worker: WorkerProcess, how: str) -> str:
    tcp = f"127.0.0.1:{worker.port}"
    return {"tcp": tcp, "tls": f"{tcp} tls={worker.fingerprint}", "shared memory": worker.address}[how]


@pytest.mark.parametrize("how", ["tcp", "tls", "shared memory"])
def test_a_session_goes_straight_from_one_worker_to_another(start: Start, how: str) -> None:
    old = start(options=("--tls", "on") if how == "tls" else ())
    program = Program()
    client = connect(old)
    program.set_up(client)
    assert old.ask("revoke epoch=1").startswith("ok")
    new = start(device=1, epoch=2, session=old.session, token=old.token, image_from=address_of(old, how))
    program.check(connect(new))
    # The old one has it still, and stands still: nothing that a late client says changes what was taken.
    assert old.stats()["mem"].split(":")[1] == str(17 * GRANULE)
    client.post("UnmapMemory", device=0, address=program.large, size=16 * GRANULE)
    assert old.stats()["mem"].split(":")[1] == str(17 * GRANULE)


class Meddler:
    """Passes bytes between two TCP ends; damages one, or hangs up, after so many from the worker."""

    def __init__(self, port: int, *, after: int, damage: bool) -> None:
        self._target, self._after, self._damage = port, after, damage
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(("127.0.0.1", self._target))
        threading.Thread(target=self._pass, args=(near, far, None), daemon=True).start()
        self._pass(far, near, self._after)

    def _pass(self, source: socket.socket, sink: socket.socket, after: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if after is not None and passed <= after < passed + len(data):
                    changed = bytearray(data)
                    changed[after - passed] ^= 1
                    data = bytes(changed) if self._damage else data[: after - passed]
                    sink.sendall(data)
                    if not self._damage:
                        break
                else:
                    sink.sendall(data)
                passed += len(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize("after", [5, 60, 400, 3000, GRANULE])
@pytest.mark.parametrize("damage", [True, False], ids=["damaged", "cut"])
def test_a_move_that_goes_wrong_leaves_the_session_where_it_is(
    start: Start, after: int, damage: bool
) -> None:
    old = start()
    program = Program()
    client = connect(old)
    program.set_up(client)
    assert old.ask("revoke epoch=1").startswith("ok")
    meddler = Meddler(old.port, after=after, damage=damage)
    with pytest.raises(WorkerError) as failure:
        start(epoch=2, session=old.session, token=old.token, image_from=f"127.0.0.1:{meddler.port}")
    meddler.close()
    said = str(failure.value)
    assert any(
        words in said for words in ("damaged", "broke", "something else", "sent no image", "too large")
    ), said
    assert old.token not in said
    assert old.ask("lease epoch=3 deadline_ns=9000000000000000000").startswith("ok")
    client.epoch = 3
    program.check(client)


def test_a_session_with_a_lease_in_force_is_not_handed_over(start: Start) -> None:
    old = start()
    program = Program()
    client = connect(old)
    program.set_up(client)
    with pytest.raises(WorkerError, match="does not hand it over: attached"):
        start(epoch=2, session=old.session, token=old.token, image_from=address_of(old, "tcp"))
    assert old.ask("revoke epoch=1").startswith("ok")
    with pytest.raises(WorkerError, match="broke"):  # who does not know the token learns nothing
        start(epoch=2, session=old.session, image_from=address_of(old, "tcp"))
    graph = handle("graph", 1)
    assert old.ask("lease epoch=2 deadline_ns=9000000000000000000").startswith("ok")
    client.epoch = 2
    assert client.call("cuGraphCreate", phGraph=graph, flags=0)["result"] == 0
    assert old.ask("revoke epoch=2").startswith("ok")
    with pytest.raises(WorkerError, match="does not hand it over: graphs"):
        start(epoch=3, session=old.session, token=old.token, image_from=address_of(old, "tcp"))


def test_a_worker_that_stops_in_the_middle_does_not_keep_the_session(start: Start) -> None:
    old = start()
    program = Program()
    client = connect(old)
    program.set_up(client)
    assert old.ask("revoke epoch=1").startswith("ok")
    with TableClient(old.port) as stopped:
        frame = bytearray(hello_frame(old.token, old.session))
        frame[4] = 14  # Control::session in the place of HELLO
        stopped.socket.sendall(frame)
        assert stopped.socket.recv(10)  # the manifest begins, so the session stands still
        assert old.ask("lease epoch=2 deadline_ns=9000000000000000000").startswith("ok")
        client.epoch = 2
        program.check(client)


def test_a_worker_that_is_not_there_is_named(start: Start) -> None:
    with pytest.raises(WorkerError, match="cannot be reached"):
        start(epoch=2, image_from="127.0.0.1:1")
