"""What CUDA libraries of this process remember of a GPU session that is gone: handles, addresses, loaded kernels.

A program that goes on after its session was reset would use them by accident, and an address of before may be somebody
else's array now. numba's are forgotten here: its kernels load themselves again, and an array of before raises
:class:`GpuMemoryLostError` when it is used. Other libraries keep theirs: docs/reference/limits/notebooks.md says what
needs a new process.
Only the standard library is needed here, and numba is touched only where it is loaded.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import sys
import threading
from typing import Any, Final, NoReturn

_LOST: Final = "This array was in the memory of a GPU session that is gone (it was reset, or lost); make the array again."
#: Names under which numba's pointers give their address.
_ADDRESSES: Final = ("device_pointer", "device_ctypes_pointer", "device_pointer_value", "handle")

_lost_kinds: Final[dict[type, type]] = {}
_lock = threading.Lock()
_session = ""


class GpuMemoryLostError(RuntimeError):
    """GPU memory of a session that is gone was used."""


def look(session: str) -> bool:
    """Told which session this process has now (empty: none); whether that made it :func:`forget` another one's."""
    global _session
    with _lock:
        before, _session = _session, session
    if before in ("", session):
        return False
    forget()
    return True


def forget() -> None:
    """Makes numba forget what it has on devices. Nothing is called in the driver: it knows none of it any more."""
    driver = sys.modules.get("numba.cuda.cudadrv.driver")
    if driver is None:
        return
    arrays = sys.modules.get("numba.cuda.cudadrv.devicearray")
    code = sys.modules.get("numba.cuda.codegen")
    pointers = (driver.MemoryPointer, driver.OwnedPointer)
    for found in gc.get_objects():
        kind = type(found)  # not isinstance: that asks proxies, whose object may be gone
        if issubclass(kind, pointers):
            _lose(found)
        elif arrays is not None and issubclass(kind, arrays.DeviceNDArrayBase):
            # The address that kernels were given last.
            found.__dict__.pop("_strided_memory_view_shim", None)
        elif code is not None and issubclass(kind, code.CUDACodeLibrary):
            _unload(found)
    for device in list(driver.driver.devices.values()):
        context, device.primary_context = device.primary_context, None
        if context is not None:
            _abandon(context.deallocations)
            _abandon(context.memory_manager.deallocations)
    runtime = sys.modules.get("numba.cuda.memory_management.nrt")
    if runtime is not None:
        runtime.rtsys.close()


def _lose(pointer: Any) -> None:
    """From now on it has no address. An empty array's has none anyway."""
    with contextlib.suppress(ReferenceError):
        if not pointer.__dict__.get("is_managed", True) and not pointer.device_pointer_value:
            return
    pointer.__class__ = _lost_kind(type(pointer))


def _lost_kind(kind: type) -> type:
    if kind not in _lost_kinds:
        _lost_kinds[kind] = _make_lost_kind(kind)
    return _lost_kinds[kind]


def _make_lost_kind(kind: type) -> type:
    if getattr(kind, "gpu_memory_is_lost", False):
        return kind

    def address(pointer: object) -> NoReturn:
        raise GpuMemoryLostError(_LOST)

    def free(pointer: object) -> None:
        """There is nothing to free."""

    members: dict[str, Any] = {name: property(address) for name in _ADDRESSES}
    return type(kind.__name__, (kind,), {**members, "free": free, "gpu_memory_is_lost": True})


def _unload(library: Any) -> None:
    """Its kernel is loaded again when it is launched next. The compiled code stays; what loads it must be new."""
    library._cufunc_cache.clear()
    for key, compiled in list(library._cubin_cache.items()):
        try:
            library._cubin_cache[key] = copy.copy(compiled)
        except Exception:
            # It is linked again.
            del library._cubin_cache[key]


def _abandon(pending: Any) -> None:
    """What waits to be freed, or comes later from objects of before, is never handed to the driver."""
    pending._disable_count += 1
    pending._cons.clear()
