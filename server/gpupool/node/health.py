"""Whether devices can be lent: NVML's view of real ones; a software GPU is always well."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import structlog

from gpupool.engines.records import DeviceInventory

logger = structlog.get_logger(__name__)


class DeviceHealth:
    """The health that the engine itself reports; the base for those who know more."""

    def judge(self, devices: tuple[DeviceInventory, ...]) -> tuple[DeviceInventory, ...]:
        """The devices with their health of now. May take milliseconds; called in a thread."""
        return devices

    def close(self) -> None:
        """Lets go of what was opened. May be called twice."""


class NvmlHealth(DeviceHealth):
    """Asks NVIDIA's management library.

    A device that NVML lost, or whose memory has errors that only a reset cures, is not lent any more; its sessions
    are left alone.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    def judge(self, devices: tuple[DeviceInventory, ...]) -> tuple[DeviceInventory, ...]:
        return tuple(self._judge(device) for device in devices)

    def _judge(self, device: DeviceInventory) -> DeviceInventory:
        nvml = self._nvml
        total_mib = device.total_mib
        try:
            handle = device_handle(nvml, device.uuid)
            # A board whose GPU shares the memory of the machine tells no figure, and is well.
            with contextlib.suppress(nvml.NVMLError_NotSupported):
                total_mib = nvml.nvmlDeviceGetMemoryInfo(handle).total // (1024 * 1024)
        except nvml.NVMLError as error:
            return replace(device, healthy=False, health_reason=f"NVML: {error}")
        # ECC counters exist only on devices that have ECC memory.
        with contextlib.suppress(nvml.NVMLError):
            errors = nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
            pending = nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)
            if errors and pending == nvml.NVML_FEATURE_ENABLED:
                reason = f"{errors} uncorrectable memory errors of {total_mib} MiB; the device needs a reset"
                return replace(device, healthy=False, health_reason=reason)
        # From Ampere on rows are remapped in the place of pages that are retired.
        with contextlib.suppress(nvml.NVMLError):
            _, errors, pending, failed = nvml.nvmlDeviceGetRemappedRows(handle)
            if failed or (errors and pending):
                cure = "it has no row left to remap them to" if failed else "the device needs a reset"
                reason = f"{errors} uncorrectable memory errors of {total_mib} MiB; {cure}"
                return replace(device, healthy=False, health_reason=reason)
        return replace(device, healthy=True, health_reason="")

    def close(self) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()


def open_health(*, software: bool) -> DeviceHealth:
    """NVML for real devices when it is installed and answers, else the engine's word."""
    if software:
        return DeviceHealth()
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:
        logger.warning("device health is not watched: NVML does not answer", reason=str(error))
        return DeviceHealth()
    return NvmlHealth(pynvml)


def device_handle(nvml: Any, digits: str) -> Any:
    """NVML's handle of a device, or of a MIG slice; ``digits``: the 32 of a device profile.

    For a slice the driver says the id of the slice, which NVML knows with another prefix. The digits don't tell which
    of the two they are.

    Raises:
        NVMLError: NVML finds neither.
    """
    try:
        return nvml.nvmlDeviceGetHandleByUUID(nvml_uuid(digits).encode())
    except nvml.NVMLError_NotFound:
        return nvml.nvmlDeviceGetHandleByUUID(nvml_uuid(digits, "MIG").encode())


def nvml_uuid(digits: str, prefix: str = "GPU") -> str:
    """``GPU-8-4-4-4-12`` as NVML writes the 32 digits of a device profile; ``MIG``: of a slice of a device."""
    return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
