"""Which kernels run a cell, heard over real ZMQ sockets from a publisher in the kernel's place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
import zmq
from jupyter_client.session import Session
from zmq.eventloop.zmqstream import ZMQStream

from jupyter_gpupool.server.watching.busy import BusyTracker


class CountingStream(ZMQStream):
    """Counts what arrives."""

    arrived = 0

    def on_recv(self, callback: Callable[[list[bytes]], object], *arguments: Any, **more: Any) -> None:  # type: ignore[override]
        def counted(parts: list[bytes]) -> object:
            self.arrived += 1
            return callback(parts)

        super().on_recv(counted, *arguments, **more)


class Publisher:
    """What a kernel publishes; ``topic`` of its status messages."""

    def __init__(self, address: str, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._context, self._address = context, address
        self._socket = context.socket(zmq.XPUB)
        self._socket.bind(address)
        self.session = Session(key=b"a key")
        self.topic = b"kernel.7.status"

    def connect_iopub(self) -> CountingStream:
        socket = self._context.socket(zmq.SUB)
        socket.subscribe(b"")
        socket.connect(self._address)
        self.stream = CountingStream(socket)
        assert self._socket.recv() == b"\x01"  # it is subscribed now
        return self.stream

    def changes_of_subscription(self, count: int) -> list[bytes]:
        return [self._socket.recv() for _ in range(count)]

    def status(self, state: str, cell: str, kind: str = "execute_request") -> None:
        parent = {"msg_id": cell, "msg_type": kind}
        self.session.send(
            self._socket, "status", {"execution_state": state}, parent={"header": parent}, ident=self.topic
        )

    def prints(self, text: str) -> None:
        self.session.send(self._socket, "stream", {"name": "stdout", "text": text}, ident=b"stream.stdout")

    def close(self) -> None:
        self._socket.close(linger=0)


@pytest_asyncio.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Publisher]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    publisher = Publisher(f"ipc://{tmp_path}/iopub", context)
    yield publisher
    publisher.close()
    context.destroy(linger=0)


def tracker_of(kernel: Publisher) -> BusyTracker:
    tracker = BusyTracker(SimpleNamespace(get_kernel=lambda kernel_id: kernel))
    tracker.watch("k1")
    return tracker


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("topic", [b"kernel.7.status", b"kernel_core.7.status", b"status", b""])
async def test_busy_from_the_begin_of_a_cell_to_its_end(kernel: Publisher, topic: bytes) -> None:
    kernel.topic = topic
    tracker = tracker_of(kernel)
    for cell in ("one", "two"):
        kernel.status("busy", cell)
        await until(lambda: tracker.busy("k1"))
        kernel.status("busy", "slider", "comm_msg")
        kernel.status("idle", "slider", "comm_msg")
        kernel.status("idle", "cell of another", "execute_request")
        await asyncio.sleep(0.05)
        assert tracker.open_requests("k1") == {cell}
        kernel.status("idle", cell)
        await until(lambda: not tracker.busy("k1"))
    tracker.close()


async def test_a_thread_that_prints_for_ever_is_not_listened_to(kernel: Publisher) -> None:
    tracker = tracker_of(kernel)
    kernel.status("busy", "cell")
    await until(lambda: tracker.busy("k1"))
    assert kernel.changes_of_subscription(2) == [b"\x01kernel.7.status", b"\x00"]
    # More than any queue holds, while nobody reads.
    for _ in range(5_000):
        kernel.prints("tick")
    kernel.status("idle", "cell")
    await until(lambda: not tracker.busy("k1"))
    assert kernel.stream.arrived == 2
    tracker.close()


async def test_what_cannot_be_read_is_passed_over(kernel: Publisher) -> None:
    tracker = tracker_of(kernel)
    kernel.status("busy", "cell")
    await until(lambda: tracker.busy("k1"))
    kernel._socket.send_multipart([kernel.topic, b"<IDS|MSG>", b"not signed", b"{}", b"{}", b"{}", b"{}"])
    kernel._socket.send_multipart([kernel.topic])
    kernel.status("idle", "cell")
    await until(lambda: not tracker.busy("k1"))
    tracker.close()


async def test_after_a_restart_no_old_cell_runs(kernel: Publisher) -> None:
    tracker = tracker_of(kernel)
    kernel.status("busy", "cell")
    await until(lambda: tracker.busy("k1"))
    kernel.changes_of_subscription(2)
    tracker.forget("k1")
    assert kernel.changes_of_subscription(1) == [b"\x00kernel.7.status"]
    tracker.watch("k1")
    assert not tracker.busy("k1")
    kernel.topic = b"kernel.8.status"  # another process
    kernel.status("busy", "next")
    await until(lambda: tracker.busy("k1"))
    tracker.close()
