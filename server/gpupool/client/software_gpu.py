"""The software GPU by itself: what a program is told, and what the driver in an installation says of itself."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpupool.client.child_environment import software_gpu_environment
from gpupool.client.errors import GpupoolError
from gpupool.client.native import native_directory, native_file

#: Settings of the driver, by name of the variable (src/softgpu/driver/described/settings.h).
DEVICES: Final = "GPUPOOL_SOFTGPU_DEVICES"
MEMORY_MIB: Final = "GPUPOOL_SOFTGPU_MEMORY_MIB"
THREADS: Final = "GPUPOOL_SOFTGPU_THREADS"
COMPUTE_CAPABILITY: Final = "GPUPOOL_SOFTGPU_COMPUTE_CAPABILITY"
CHECK: Final = "GPUPOOL_SOFTGPU_CHECK"

LEAST_MEMORY_MIB: Final = 16
MOST_MEMORY_MIB: Final = 4 * 1024 * 1024
MOST_DEVICES: Final = 16
MOST_THREADS: Final = 256

# cuda.h: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
_CAPABILITY_MAJOR: Final = 75
_CAPABILITY_MINOR: Final = 76


class DriverFailedError(GpupoolError):
    """The software GPU's own driver library does not work here."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What ``gpupool softgpu`` can be told; None: as the environment says, else the driver's default."""

    memory_mib: int | None = None
    devices: int | None = None
    threads: int | None = None
    compute_capability: str | None = None
    checks: tuple[str, ...] = ()

    def variables(self) -> dict[str, str]:
        """The same as the driver reads it."""
        said = {
            MEMORY_MIB: self.memory_mib,
            DEVICES: self.devices,
            THREADS: self.threads,
            COMPUTE_CAPABILITY: self.compute_capability,
            CHECK: ",".join(self.checks) or None,
        }
        return {name: str(value) for name, value in said.items() if value is not None}


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """``cuda``: as ``13.0``; ``compute_capability``: as ``12.0``; ``library``: where it lies."""

    cuda: str
    compute_capability: str
    library: Path


def program_environment(settings: Settings, base: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a program that uses the software GPU by itself.

    Raises:
        RuntimeMissingError: the native libraries are not installed.
    """
    native_file("softgpu", "libcuda.so.1")
    return software_gpu_environment(native_directory(), base) | settings.variables()


def devices(environment: Mapping[str, str]) -> int:
    """How many devices the driver has with this environment; what it takes for no number counts as not said."""
    said = environment.get(DEVICES, "")
    return int(said) if said.isascii() and said.isdigit() and int(said) <= MOST_DEVICES else 1


def driver_facts() -> DriverFacts:
    """Asks the driver, which this process loads for it.

    Raises:
        RuntimeMissingError: the native libraries are not installed.
        DriverFailedError: the library cannot be loaded, or refuses.
    """
    path = native_file("softgpu", "libcuda.so.1")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise DriverFailedError(f"The software GPU cannot be loaded: {error}.") from None
    version, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    for result in (
        library.cuInit(0),
        library.cuDriverGetVersion(ctypes.byref(version)),
        library.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, 0),
        library.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, 0),
    ):
        if result != 0:
            raise DriverFailedError(f"The software GPU at {path} answers with CUDA error {result}.")
    cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return DriverFacts(cuda, f"{major.value}.{minor.value}", path)
