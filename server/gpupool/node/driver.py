"""Which CUDA driver this node's workers open: NVIDIA's, or the software GPU.

NVIDIA's is named by an absolute path: by its bare name the loader might find the client
runtime of this very project, which stands under the same name.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from gpupool.client.native import native_directory
from gpupool.engines.records import DeviceInventory, EngineError
from gpupool.node.profile import MAX_BYTES, Profile, ProfileError, parse_profile

#: Exit status of a probe when the driver works and has no device.
NO_DEVICE: Final = 3
PROBE_SECONDS: Final = 60.0
#: What workers call came with CUDA 12.4, as the driver says its version, and with this driver of NVIDIA.
OLDEST_CUDA: Final = 12040
OLDEST_DRIVER: Final = "550"
#: CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: 0 where every process may use the device.
COMPUTE_MODE: Final = 20
#: CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS.
_PAGEABLE_MEMORY_ACCESS: Final = 88

_USUAL_FOLDERS: Final = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
)
_LDCONFIG_LINE = re.compile(r"\s*libcuda\.so\.1 \([^)]*\) => (/\S+)")

_SOFTWARE_INSTEAD: Final = (
    "To lend software GPUs, which compute on this machine's CPU: gpupool node start --software-gpus 1"
)

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SoftwareGpuSettings:
    """What the software GPU is made of; the environment of its workers."""

    devices: int = 1
    memory_mib: int = 8192

    def environment(self) -> dict[str, str]:
        return {
            "GPUPOOL_SOFTGPU_DEVICES": str(self.devices),
            "GPUPOOL_SOFTGPU_MEMORY_MIB": str(self.memory_mib),
        }


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver that answered a probe."""

    path: str
    software: bool
    environment: Mapping[str, str]
    profile: Profile

    @property
    def reaches_host_memory(self) -> bool:
        """Whether kernels can use all memory of the process that launches them: a worker's, with what it knows and does."""
        return any(
            device.attributes.get(_PAGEABLE_MEMORY_ACCESS, 0) and not device.software
            for device in self.profile.devices
        )

    def inventory(self, version: str = "") -> tuple[DeviceInventory, ...]:
        """Its devices; ``version``: what :mod:`gpupool.node.driver_version` found."""
        return tuple(
            DeviceInventory(
                ordinal=device.ordinal,
                uuid=device.uuid,
                profile=device.encode(self.profile.driver_version),
                total_mib=device.total_mib,
                driver=version,
            )
            for device in self.profile.devices
        )


class NoDeviceError(EngineError):
    """The driver works, and has no device."""


async def choose_driver(
    choice: str,
    worker_command: Sequence[str],
    software: SoftwareGpuSettings | None,
    of_mps: Mapping[str, str] | None = None,
) -> Driver:
    """The driver for ``auto``, ``software``, ``nvidia`` or a path.

    ``auto`` takes NVIDIA's when it is installed and has a device, else the software GPU if that was asked for: a node that
    stands in for a broken driver in silence would answer, a hundred times too slowly, to everybody who meant a GPU.

    Args:
        choice: which.
        worker_command: what opens it.
        software: of software GPUs; None: none were asked for.
        of_mps: what workers are told of MPS. A probe that is not told looks for a daemon where everybody does, and one of
            another user there never answers it.

    Raises:
        EngineError: there is no such driver, it does not work, or it has no device.
    """
    if choice == "software":
        return await _software(worker_command, software or SoftwareGpuSettings())
    if choice in ("auto", "nvidia"):
        try:
            driver = await _nvidia(worker_command, of_mps)
        except EngineError as error:
            if choice == "nvidia":
                raise
            if software is None:
                raise EngineError(f"There is no NVIDIA GPU to lend. {error} {_SOFTWARE_INSTEAD}") from error
            logger.warning("lending software GPUs, because there is no NVIDIA GPU", found=str(error))
            return await _software(worker_command, software)
        if software is not None:
            logger.warning(
                "lending NVIDIA GPUs and no software GPUs: --driver software lends software GPUs in any case"
            )
        return driver
    path = str(await asyncio.to_thread(Path(choice).resolve))
    return await probe(path, worker_command, (software or SoftwareGpuSettings()).environment(), of_mps)


async def _nvidia(worker_command: Sequence[str], of_mps: Mapping[str, str] | None) -> Driver:
    path = await asyncio.to_thread(find_nvidia_driver)
    if path is None:
        raise EngineError("No NVIDIA driver (libcuda.so.1) is installed on this machine.")
    return await probe(path, worker_command, {}, of_mps)


async def _software(worker_command: Sequence[str], settings: SoftwareGpuSettings) -> Driver:
    path = native_directory() / "softgpu" / "libcuda.so.1"
    # Whoever hides a real GPU from this machine's programs does not mean these.
    all_of_them = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(settings.devices)))}
    return await probe(str(path), worker_command, settings.environment() | all_of_them)


async def probe(
    path: str,
    worker_command: Sequence[str],
    environment: Mapping[str, str],
    of_mps: Mapping[str, str] | None = None,
) -> Driver:
    """Asks a driver for its devices, in a process of its own (a driver may crash or hang).

    ``environment``: the driver's settings, which are its workers' too. ``of_mps``: what those are told of MPS.
    """
    if not await asyncio.to_thread(os.path.exists, path):
        raise EngineError(f"There is no driver at {path}.")
    try:
        process = await asyncio.create_subprocess_exec(
            *worker_command,
            "--probe",
            "--driver",
            path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment, **(of_mps or {})},
            limit=MAX_BYTES,
        )
    except OSError as error:
        raise EngineError(f"The worker {worker_command[0]} cannot be run: {error.strerror}.") from error
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        raise EngineError(f"The driver {path} did not answer within {PROBE_SECONDS:g} s.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = errors.decode(errors="replace").strip().splitlines()
    if process.returncode == NO_DEVICE:
        raise NoDeviceError(f"The driver {path} has no device{f': {said[-1]}' if said else ''}.")
    if process.returncode != 0:
        detail = said[-1] if said else f"status {process.returncode}"
        raise EngineError(f"The driver {path} cannot be used: {detail}.")
    try:
        profile = parse_profile(output.decode())
    except (ProfileError, UnicodeDecodeError) as error:
        raise EngineError(f"The driver {path} gave no device profile: {error}.") from error
    if not profile.devices:
        raise NoDeviceError(f"The driver {path} has no device.")
    software = all(d.software for d in profile.devices)
    if not software and profile.driver_version < OLDEST_CUDA:
        raise EngineError(
            f"The driver {path} is too old: a node needs NVIDIA's driver {OLDEST_DRIVER} or a newer one."
        )
    return Driver(path, software, dict(environment), profile)


def find_nvidia_driver() -> str | None:
    """Absolute path of an installed ``libcuda.so.1`` that is not part of this project."""
    ours = native_directory()
    for candidate in _candidates():
        path = Path(candidate)
        if path.exists() and ours not in path.resolve().parents:
            return str(path)
    return None


def _candidates() -> list[str]:
    # In the order in which the loader would look.
    found = [
        f"{folder}/libcuda.so.1" for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder
    ]
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if Path(program).exists():
            listing = subprocess.run([program, "-p"], capture_output=True, text=True, timeout=10, check=False)
            found += [m[1] for line in listing.stdout.splitlines() if (m := _LDCONFIG_LINE.match(line))]
            break
    return found + [f"{folder}/libcuda.so.1" for folder in _USUAL_FOLDERS]
