"""Parts of the node agent that need no pool: profiles, drivers, instructions, NVML health, endpoints."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpupool.client.endpoint import read_token, resolve_endpoint
from gpupool.client.errors import GpupoolError
from gpupool.engines.records import DeviceInventory, EngineError
from gpupool.node.address import pool_host, reaches_only_here
from gpupool.node.agent import Agent, AgentError, AgentSettings
from gpupool.node.connection import Connection, ConnectionLostError
from gpupool.node.driver import (
    OLDEST_DRIVER,
    Driver,
    NoDeviceError,
    SoftwareGpuSettings,
    choose_driver,
    find_nvidia_driver,
    probe,
)
from gpupool.node.health import DeviceHealth, NvmlHealth
from gpupool.node.health_watch import MOST_LATE, NO_ANSWER, HealthWatch
from gpupool.node.messages import BadInstructionError, device_grants
from gpupool.node.profile import ProfileError, parse_profile
from gpupool.node.service import NodeOptions, check_compute_modes, check_host_access, run_node
from gpupool.proto import pool_pb2
from hypothesis import given
from hypothesis import strategies as st

from tests.support.patience import BUSY

PROFILE = """driver_version 13000
device 0
name NVIDIA H200
uuid 000102030405060708090a0b0c0d0e0f
software 0
total_mib 143771
pci 0000:17:00.0
attribute 75 9
attribute 16 132
later something new
end
"""
WORKER = (str(Path(__file__).parents[1] / "support" / "scripted_worker.py"),)


def test_a_profile_is_read_and_written_the_same() -> None:
    profile = parse_profile(PROFILE)
    (device,) = profile.devices
    assert (device.name, device.total_mib, device.attributes[16]) == ("NVIDIA H200", 143771, 132)
    assert parse_profile(device.encode(profile.driver_version)) == profile


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("end\n", ""),
        ("uuid 000102030405060708090a0b0c0d0e0f", "uuid nonsense"),
        ("total_mib 143771", "total_mib -1"),
        ("total_mib 143771", "total_mib 99999999999999"),
        ("name NVIDIA H200", ""),
        ("attribute 75 9", "attribute 75 nine"),
        ("attribute 75 9", "attribute 75 9999999999999"),
        ("device 0", "device 99999"),
    ],
)
def test_a_malformed_profile_is_refused(old: str, new: str) -> None:
    with pytest.raises(ProfileError):
        parse_profile(PROFILE.replace(old, new))


def test_a_profile_has_bounds() -> None:
    with pytest.raises(ProfileError, match="at most 64 devices"):
        parse_profile(PROFILE * 65)
    with pytest.raises(ProfileError, match="characters"):
        parse_profile("x" * 2_000_000)


@given(st.text(max_size=300))
def test_any_text_is_a_profile_or_an_error(text: str) -> None:
    for candidate in (text, PROFILE + text, PROFILE.replace("end", text)):
        try:
            parse_profile(candidate)
        except ProfileError:
            continue


async def test_a_probe_tells_devices_and_why_there_are_none(tmp_path: Path) -> None:
    driver = await probe(
        "/dev/null", WORKER, {"GPUPOOL_SOFTGPU_DEVICES": "3", "GPUPOOL_SOFTGPU_MEMORY_MIB": "1024"}
    )
    assert [device.total_mib for device in driver.inventory()] == [1024] * 3
    assert driver.software
    with pytest.raises(NoDeviceError, match="no device: the scripted driver has no device"):
        await probe("/dev/null", WORKER, {"GPUPOOL_SOFTGPU_DEVICES": "0"})
    with pytest.raises(EngineError, match="There is no driver at /none"):
        await probe("/none", WORKER, {})
    with pytest.raises(EngineError, match="cannot be run"):
        await probe("/dev/null", (str(tmp_path / "none"),), {})
    with pytest.raises(EngineError, match="cannot be used"):
        await probe("/dev/null", ("/bin/false",), {})
    with pytest.raises(EngineError, match="no device"):
        await probe("/dev/null", ("/bin/true",), {})


@pytest.mark.parametrize(("version", "works"), [(12040, True), (12030, False)])
async def test_a_driver_must_have_what_workers_call(tmp_path: Path, version: int, works: bool) -> None:
    worker = tmp_path / "worker"
    profile = PROFILE.replace("driver_version 13000", f"driver_version {version}")
    worker.write_text(f"#!/bin/sh\ncat <<'END'\n{profile}END\n")
    worker.chmod(0o700)
    if works:
        driver = await probe("/dev/null", (str(worker),), {})
        assert not driver.software
    else:
        with pytest.raises(EngineError, match=f"driver {OLDEST_DRIVER}"):
            await probe("/dev/null", (str(worker),), {})


@pytest.mark.parametrize("software", [False, True])
def test_a_node_whose_kernels_reach_their_worker_must_be_told_to_start(software: bool) -> None:
    text = PROFILE.replace("software 0", f"software {int(software)}")
    plain = Driver("/none", software, {}, parse_profile(text))
    reaching = Driver("/none", software, {}, parse_profile(text.replace("attribute 75 9", "attribute 88 1")))
    check_host_access(plain, allowed=False)
    check_host_access(reaching, allowed=True)
    assert not plain.reaches_host_memory
    assert reaching.reaches_host_memory is not software
    if not software:
        with pytest.raises(AgentError, match="--allow-host-access"):
            check_host_access(reaching, allowed=False)


@pytest.mark.parametrize(
    ("mode", "has_mps", "name"),
    [
        (0, False, ""),
        (0, True, ""),
        (3, True, ""),  # all sessions reach it through MPS's one process
        (3, False, "exclusive process"),
        (2, False, "prohibited"),
        (2, True, "prohibited"),
        (1, False, "exclusive thread"),
        (1, True, "exclusive thread"),
    ],
)
def test_a_device_that_lets_no_second_process_in_is_refused(mode: int, has_mps: bool, name: str) -> None:
    text = PROFILE.replace("attribute 75 9", f"attribute 20 {mode}")
    driver = Driver("/none", False, {}, parse_profile(text))
    if not name:
        check_compute_modes(driver, has_mps=has_mps)
        return
    with pytest.raises(AgentError, match=rf"\(NVIDIA H200\) is in compute mode {mode} \({name}\)") as caught:
        check_compute_modes(driver, has_mps=has_mps)
    assert "`nvidia-smi -i GPU-00010203-0405-0607-0809-0a0b0c0d0e0f -c DEFAULT`" in str(caught.value)
    assert ("--mps require" in str(caught.value)) is (mode == 3)


@pytest.mark.parametrize("choice", ["nvidia", "/dev/null"])
async def test_a_node_asks_the_driver_as_its_workers_do_and_refuses_an_exclusive_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path / "home"))
    # Somebody's daemon, which would let the probe wait for ever.
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "somebody"))
    monkeypatch.setattr("gpupool.node.driver.find_nvidia_driver", lambda: "/dev/null")
    worker = tmp_path / "worker"
    profile = PROFILE.replace("attribute 75 9", "attribute 20 3")
    worker.write_text(
        f'#!/bin/sh\necho "$CUDA_MPS_PIPE_DIRECTORY" >{tmp_path}/told\ncat <<END\n{profile}END\n'
    )
    worker.chmod(0o700)
    options = NodeOptions(AgentSettings(node="n"), driver=choice, worker_command=(str(worker),))
    with pytest.raises(AgentError, match="compute mode 3"):
        await run_node(options)
    told = Path((tmp_path / "told").read_text().strip())
    assert told.is_relative_to(tmp_path / "home")
    assert not told.exists()


async def test_a_driver_named_by_its_path_gets_the_software_settings() -> None:
    driver = await choose_driver("/dev/null", WORKER, SoftwareGpuSettings(devices=4, memory_mib=2048))
    assert len(driver.profile.devices) == 4
    assert driver.environment == {"GPUPOOL_SOFTGPU_DEVICES": "4", "GPUPOOL_SOFTGPU_MEMORY_MIB": "2048"}


async def test_auto_takes_nvidias_driver_when_it_has_a_device_and_else_the_software_gpus_that_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPOOL_NATIVE_DIR", str(tmp_path))
    (tmp_path / "softgpu").mkdir()
    software = tmp_path / "softgpu" / "libcuda.so.1"
    software.touch()
    nvidia = tmp_path.parent / "nvidia.so"
    nvidia.touch()
    monkeypatch.setattr("gpupool.node.driver.find_nvidia_driver", lambda: str(nvidia))
    settings = SoftwareGpuSettings(2, 512)
    for asked in (settings, None):
        assert (await choose_driver("auto", WORKER, asked)).path == str(nvidia)
    monkeypatch.setenv("GPUPOOL_SOFTGPU_DEVICES", "0")  # as a driver without a device answers
    with pytest.raises(
        EngineError, match=r"no NVIDIA GPU to lend.*nvidia\.so has no device.*--software-gpus 1"
    ):
        await choose_driver("auto", WORKER, None)
    chosen = await choose_driver("auto", WORKER, settings)
    assert chosen.path == str(software)
    assert chosen.environment["CUDA_VISIBLE_DEVICES"] == "0,1"  # whatever this machine hides of real ones
    with pytest.raises(NoDeviceError):
        await choose_driver("nvidia", WORKER, settings)
    monkeypatch.setattr("gpupool.node.driver.find_nvidia_driver", lambda: None)
    with pytest.raises(EngineError, match=r"No NVIDIA driver .* is installed.*--software-gpus 1"):
        await choose_driver("auto", WORKER, None)
    with pytest.raises(EngineError, match="No NVIDIA driver"):
        await choose_driver("nvidia", WORKER, settings)


def share(device: str, milli: int = 100, mib: int = 100) -> Any:
    return pool_pb2.DeviceShare(device_id=device, share=pool_pb2.Share(milli=milli, mib=mib))


def test_instructions_name_devices_of_this_node() -> None:
    grants = device_grants("node/1", [share("node/1/0"), share("node/1/11", 1000, 7936)])
    assert [(g.ordinal, g.milli, g.mib) for g in grants] == [(0, 100, 100), (11, 1000, 7936)]


@pytest.mark.parametrize(
    "wrong",
    [share("other/0"), share("n"), share("n/"), share("n/-1"), share("n/x"), share("n/٣"), share("n/99999"),
     share("n/0", 0), share("n/0", 1001), share("n/0", 100, 0)],
)  # fmt: skip
def test_instructions_that_make_no_sense_here_are_refused(wrong: Any) -> None:
    with pytest.raises(BadInstructionError):
        device_grants("n", [wrong])


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
    agent._judged = (DEVICE,)
    agent._devices = (DEVICE,)
    connection = Connection()
    with pytest.raises(ConnectionLostError, match="health"):
        await agent._beat(connection)
    assert connection.number == MOST_LATE
    connection.sent_at.clear()
    agent._judged = await agent._health.look((DEVICE,))
    with pytest.raises(ConnectionLostError, match="stopped answering"):
        await agent._beat(connection)
    assert connection.number > MOST_LATE
    stuck.answers.set()


def test_the_endpoint_is_what_is_named_then_the_environment_then_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path))
    monkeypatch.delenv("GPUPOOL_ENDPOINT", raising=False)
    assert resolve_endpoint() == f"unix:{tmp_path}/pool.sock"
    monkeypatch.setenv("GPUPOOL_ENDPOINT", "pool:7460")
    assert resolve_endpoint() == "pool:7460"
    assert resolve_endpoint("other:1") == "other:1"


Spoil = Callable[[Path], object]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.chmod(0o644), "open to others"),
        (lambda path: path.write_text(""), "holds no token"),
        (lambda path: path.write_text("two words"), "holds no token"),
        (lambda path: path.write_bytes(b"\xff" * 10), "holds no token"),
        (lambda path: path.write_text("x" * 5000), "holds no token"),
        (lambda path: path.unlink(), "cannot be read"),
    ],
)
def test_a_token_file_that_is_none_is_refused_without_showing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Spoil, says: str
) -> None:
    path = tmp_path / "token"
    path.write_text("gpupool_1_secret\n")
    path.chmod(0o600)
    assert read_token(path) == "gpupool_1_secret"
    monkeypatch.setenv("GPUPOOL_TOKEN_FILE", str(path))
    assert read_token() == "gpupool_1_secret"
    spoil(path)
    with pytest.raises(GpupoolError, match=says) as caught:
        read_token()
    assert "secret" not in str(caught.value)
    assert "xxxx" not in str(caught.value)


def test_our_own_library_is_never_taken_for_nvidias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = tmp_path / "native" / "client", tmp_path / "lib"
    for folder in (ours, theirs):
        folder.mkdir(parents=True)
        (folder / "libcuda.so.1").touch()
    (tmp_path / "link").symlink_to(ours)
    monkeypatch.setenv("GPUPOOL_NATIVE_DIR", str(tmp_path / "native"))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{ours}:{tmp_path}/link::{theirs}")
    assert find_nvidia_driver() == f"{theirs}/libcuda.so.1"


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [
        ("unix:/run/pool.sock", None),
        ("127.0.0.1:7460", None),
        ("127.0.0.5:7460", None),
        ("localhost:7460", None),
        ("[::1]:7460", None),
        ("10.0.0.5:7460", "10.0.0.5"),
        ("[2001:db8::1]:7460", "[2001:db8::1]"),
        ("pool.example.org:7460", "pool.example.org"),
        ("dns:///pool.example.org:7460", "pool.example.org"),
        ("ipv4:127.0.0.1:7460", None),
    ],
)
def test_a_pool_elsewhere_is_known_by_its_endpoint(endpoint: str, host: str | None) -> None:
    assert pool_host(endpoint) == host


@pytest.mark.parametrize(
    ("host", "only_here"),
    [("127.0.0.1", True), ("0.0.0.0", True), ("::1", True), ("localhost", True), ("10.0.0.6", False),
     ("gpu1.example.org", False)],
)  # fmt: skip
def test_addresses_that_other_machines_cannot_dial(host: str, only_here: bool) -> None:
    assert reaches_only_here(host) is only_here
