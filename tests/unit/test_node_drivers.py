"""Device profiles, the drivers that a node asks for them, and which of them it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpupool.engines.records import EngineError
from gpupool.node.agent_settings import AgentError, AgentSettings
from gpupool.node.driver import (
    OLDEST_DRIVER,
    Driver,
    NoDeviceError,
    SoftwareGpuSettings,
    choose_driver,
    find_nvidia_driver,
    probe,
)
from gpupool.node.profile import ProfileError, parse_profile
from gpupool.node.service import NodeOptions, check_compute_modes, check_host_access, run_node
from hypothesis import given
from hypothesis import strategies as st

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


def test_our_own_library_is_never_taken_for_nvidias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = tmp_path / "native" / "client", tmp_path / "lib"
    for folder in (ours, theirs):
        folder.mkdir(parents=True)
        (folder / "libcuda.so.1").touch()
    (tmp_path / "link").symlink_to(ours)
    monkeypatch.setenv("GPUPOOL_NATIVE_DIR", str(tmp_path / "native"))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{ours}:{tmp_path}/link::{theirs}")
    assert find_nvidia_driver() == f"{theirs}/libcuda.so.1"
