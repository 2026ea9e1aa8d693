"""Which devices a node does not lend: what NVML says of them, and what becomes of those that it does not speak of in time."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from gpupool.engines.records import DeviceInventory
from gpupool.node.agent import Agent
from gpupool.node.agent_settings import AgentSettings
from gpupool.node.connection import Connection, ConnectionLostError
from gpupool.node.health import DeviceHealth, NvmlHealth
from gpupool.node.health_watch import MOST_LATE, NO_ANSWER, HealthWatch

from tests.support.patience import BUSY


class FakeNvml:
    """The few functions of pynvml that health uses, over a dictionary of devices."""

    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, NVML_FEATURE_ENABLED = 1, 0, 1

    class NVMLError(Exception):
        pass

    class NVMLError_NotFound(NVMLError):
        pass

    class NVMLError_NotSupported(NVMLError):
        pass

    def __init__(
        self,
        errors: int | None,
        pending: int = 0,
        lost: bool = False,
        remapped: tuple[int, int, int, int] | None = None,
        known_as: bytes = b"GPU-",
        memory: str = "",
    ) -> None:
        self.errors, self.pending, self.lost, self.remapped = errors, pending, lost, remapped
        self.known_as, self.memory = known_as, memory
        self.asked: list[bytes] = []

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> str:
        self.asked.append(uuid)
        if self.lost:
            raise self.NVMLError("GPU is lost")
        if not uuid.startswith(self.known_as):
            raise self.NVMLError_NotFound("Not Found")
        return "handle"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        if self.memory:
            unsupported = self.memory == "Not Supported"
            raise (self.NVMLError_NotSupported if unsupported else self.NVMLError)(self.memory)
        return SimpleNamespace(total=143771 * 1024 * 1024)

    def nvmlDeviceGetTotalEccErrors(self, handle: str, kind: int, counter: int) -> int:
        if self.errors is None:
            raise self.NVMLError("Not Supported")
        return self.errors

    def nvmlDeviceGetRetiredPagesPendingStatus(self, handle: str) -> int:
        if self.remapped is not None:
            raise self.NVMLError("Not Supported")
        return self.pending

    def nvmlDeviceGetRemappedRows(self, handle: str) -> tuple[int, int, int, int]:
        if self.remapped is None:
            raise self.NVMLError("Not Supported")
        return self.remapped


@pytest.mark.parametrize(
    ("nvml", "healthy", "reason"),
    [
        (FakeNvml(errors=0), True, ""),
        (FakeNvml(errors=None), True, ""),
        (FakeNvml(errors=3, pending=0), True, ""),
        (FakeNvml(errors=3, pending=1), False, "3 uncorrectable memory errors"),
        (FakeNvml(errors=0, lost=True), False, "GPU is lost"),
        (FakeNvml(errors=0, remapped=(1, 0, 1, 0)), True, ""),
        (FakeNvml(errors=2, remapped=(0, 2, 0, 0)), True, ""),
        (FakeNvml(errors=2, remapped=(0, 2, 1, 0)), False, "needs a reset"),
        (FakeNvml(errors=2, remapped=(0, 2, 0, 1)), False, "no row left"),
        # Boards whose GPU shares the machine's memory have no figure, and nothing is wrong with them.
        (FakeNvml(errors=0, memory="Not Supported"), True, ""),
        (FakeNvml(errors=3, pending=1, memory="Not Supported"), False, "3 uncorrectable memory errors"),
        (FakeNvml(errors=0, memory="Unknown Error"), False, "Unknown Error"),
    ],
)
def test_a_device_that_nvml_gave_up_is_not_lent(nvml: FakeNvml, healthy: bool, reason: str) -> None:
    device = DeviceInventory(0, "000102030405060708090a0b0c0d0e0f", "", 143771)
    (judged,) = NvmlHealth(nvml).judge((device,))
    assert judged.healthy is healthy
    assert reason in judged.health_reason
    assert nvml.asked == [b"GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"]


def test_a_slice_of_a_device_is_known_by_another_prefix() -> None:
    nvml = FakeNvml(errors=None, known_as=b"MIG-")
    (judged,) = NvmlHealth(nvml).judge((DEVICE,))
    assert judged.healthy
    assert nvml.asked == [
        b"GPU-00010203-0405-0607-0809-0a0b0c0d0e0f",
        b"MIG-00010203-0405-0607-0809-0a0b0c0d0e0f",
    ]


def test_a_device_that_nvml_does_not_know_at_all_is_not_lent() -> None:
    (judged,) = NvmlHealth(FakeNvml(errors=0, known_as=b"other")).judge((DEVICE,))
    assert (judged.healthy, judged.health_reason) == (False, "NVML: Not Found")


class StuckHealth(DeviceHealth):
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked = 0
        self.closed = False

    def judge(self, devices: tuple[DeviceInventory, ...]) -> tuple[DeviceInventory, ...]:
        self.asked += 1
        self.answers.wait()
        return devices

    def close(self) -> None:
        self.closed = True


DEVICE = DeviceInventory(0, "000102030405060708090a0b0c0d0e0f", "", 143771)


async def test_devices_of_a_library_that_hangs_are_not_lent_until_it_answers() -> None:
    stuck = StuckHealth()
    watch = HealthWatch(stuck, look_seconds=0.01)
    for _ in range(MOST_LATE - 1):
        assert await watch.look((DEVICE,)) == (DEVICE,)
    (late,) = await watch.look((DEVICE,))
    assert (late.healthy, late.health_reason) == (False, NO_ANSWER)
    watch.close()
    assert (stuck.asked, stuck.closed) == (1, False)
    stuck.answers.set()
    async with asyncio.timeout(5.0 * BUSY):
        while await watch.look((DEVICE,)) != (DEVICE,):
            pass
    watch.close()
    assert stuck.closed


async def test_heartbeats_do_not_wait_for_a_library_that_hangs() -> None:
    stuck = StuckHealth()
    nothing: Any = object()
    settings = AgentSettings(node="n", endpoint="127.0.0.1:1", heartbeat_seconds=0.001)
    agent = Agent(settings, nothing, HealthWatch(stuck, look_seconds=0.001))
    agent._pool._judged = (DEVICE,)
    agent._pool.devices = (DEVICE,)
    connection = Connection()
    with pytest.raises(ConnectionLostError, match="health"):
        await agent._pool._beat(connection)
    assert connection.number == MOST_LATE
    connection.sent_at.clear()
    agent._pool._judged = await agent._pool._health.look((DEVICE,))
    with pytest.raises(ConnectionLostError, match="stopped answering"):
        await agent._pool._beat(connection)
    assert connection.number > MOST_LATE
    stuck.answers.set()
