"""The client runtime inside a process: loading it, and its C control interface.

The runtime is a ``libcuda.so.1`` that stands in for NVIDIA's. A process that starts with
:func:`gpupool.client.child_environment.environment` finds it by itself; a process that already runs calls :func:`load` before
anything asks for CUDA. Only the standard library is needed here.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
import threading
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpupool.client.child_environment import (
    CLIENT_LIBRARIES,
    COMPAT_LIBRARIES,
    JAX_UNCHECKED,
    LINKER_WARNING,
    ON_PYTHON_PATH,
    compiler_variables,
    linked_libraries,
)
from gpupool.client.errors import DeviceCallFailedError, RuntimeConflictError
from gpupool.client.native import native_directory, native_file
from gpupool.client.refused_memory import RefusedMemory

#: Packages that are linked with the runtime API, and so bound to a copy of it when they are imported.
_RUNTIME_API_USERS: Final = frozenset({"jaxlib", "tensorflow", "torch"})

_FOREIGN_DRIVER = re.compile(r"libcuda\.so(\.[0-9.]+)?", re.ASCII)
_FOREIGN_LINKER = re.compile(r"libnvJitLink\.so(\.[0-9.]+)?", re.ASCII)
_COUNTERS_BYTES: Final = 64 * 1024
_INQUIRY_BYTES: Final = 4096
_MAX_COUNTERS_BYTES: Final = 4 * 1024 * 1024
# cuda.h: the two results that name a missing lease.
_DEVICE_UNAVAILABLE: Final = 46
_TOLD_BY: Final = "GPUPOOL_REFUSALS_TOLD_BY"


_lock = threading.Lock()
_library: ctypes.CDLL | None = None
_hands_over_ptx = False


@dataclass(frozen=True, slots=True)
class WorkerCounters:
    """What the worker counted for this session; seconds and bytes, lists by device."""

    device_seconds: float
    kernels: int
    memory_used: tuple[int, ...]
    memory_peak: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What the devices of this process's session are doing.

    Attributes:
        state: empty: nothing that is known to run; ``running``, ``draining`` (the lease has ended, and it has a moment to
            finish) or ``stopped``.
        kernel: its short name; empty: a copy, a fill, or not known.
        seconds: since when it is so.
        failure: CUresult of the error that ended the session; 0: none. ``failed_kernel``: what had it, if known.
        awaits_turn: a call waits until other sessions' work leaves the device.
    """

    state: str = ""
    kernel: str = ""
    seconds: float = 0.0
    failure: int = 0
    failed_kernel: str = ""
    awaits_turn: bool = False


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of this process since it loaded the runtime.

    Attributes:
        calls: CUDA calls of the program; posts: sent without waiting; asks: waited for.
        asks_by_name: name of the call → (how often, seconds waited).
        images_sent: module images whose bytes were sent (how many, bytes); images_found: named only, because
            they lay on the node.
        copies_to_host: copies that the program waited for, by size: at most 16 bytes, 4 KiB, 1 MiB, more.
        worker: None when the worker did not answer, or there is none.
        refused_memory: the last allocation without room since the peak was reset, unless one of its size succeeded.
        state: ``attached``, ``parked``, ``none`` or ``lost``.
        failure: CUresult of the error that ended the session; 0: none.
    """

    calls: int = 0
    posts: int = 0
    asks: int = 0
    ask_seconds: float = 0.0
    bytes_to_device: int = 0
    bytes_from_device: int = 0
    asks_by_name: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    images_sent: tuple[int, int] = (0, 0)
    images_found: tuple[int, int] = (0, 0)
    copies_to_host: tuple[int, ...] = (0, 0, 0, 0)
    worker: WorkerCounters | None = None
    state: str = "none"
    software: bool = False
    failure: int = 0
    refused_memory: RefusedMemory | None = None


def load(software: bool) -> None:
    """Makes this process use the client runtime. Idempotent; call it before any use of CUDA.

    For a software GPU it also makes numba, Triton, TensorFlow and CuPy hand over PTX.

    Raises:
        RuntimeConflictError: another CUDA driver is already mapped here, so ours would lose.
        RuntimeMissingError: the native libraries are not installed.
    """
    global _library, _hands_over_ptx
    with _lock:
        if _library is None:
            foreign = foreign_driver()
            if foreign is not None:
                raise RuntimeConflictError(
                    f"This process already uses the CUDA driver {foreign}. "
                    "Restart the kernel and run %gpu or %%gpu before anything else that uses CUDA."
                )
            first = ctypes.CDLL(str(native_file("client", CLIENT_LIBRARIES[0])), ctypes.RTLD_GLOBAL)
            for name in CLIENT_LIBRARIES[1:]:
                ctypes.CDLL(str(native_file("client", name)), ctypes.RTLD_GLOBAL)
            _library = _declare(first)
            _load_runtime_api()
            # JAX imports what stands beside its own plug-ins, on any folder of the path.
            if str(ON_PYTHON_PATH) not in sys.path:
                sys.path.append(str(ON_PYTHON_PATH))
            os.environ.setdefault(JAX_UNCHECKED, "1")
        if software and not _hands_over_ptx:
            _hands_over_ptx = True
            _hand_over_ptx()


def load_runtime_api() -> None:
    """Makes PyTorch and others that this process imports later use our runtime API and math libraries. Idempotent.

    It starts nothing: the libraries look for a driver at the first call. Raises RuntimeMissingError.
    """
    with _lock:
        _load_runtime_api()


def loaded() -> bool:
    """Whether :func:`load` has succeeded in this process."""
    return _library is not None


def attach() -> None:
    """Reads the session file and takes up the lease now, instead of at the next CUDA call.

    Raises:
        DeviceCallFailedError: there is no lease, or the worker does not answer.
    """
    _check("attach", _loaded().gpupool_attach())


def drain(timeout_seconds: float = 60.0) -> None:
    """Waits until everything that was posted has been executed.

    Raises:
        DeviceCallFailedError: posted work failed (asynchronous errors surface here), or time is up.
    """
    _check("drain", _loaded().gpupool_drain(max(0, int(timeout_seconds * 1000))))


def detach() -> None:
    """Forgets the lease; device memory stays. Later CUDA calls read the session file again."""
    _check("detach", _loaded().gpupool_detach())


def wish_for_leases(on: bool) -> None:
    """Whether CUDA calls that find no GPU attached wish for one and wait, instead of failing.

    Whoever writes the session file hears them (:mod:`gpupool.client.wishes`); where nobody does, they fail.
    """
    _loaded().gpupool_wish_for_leases(int(on))


def counters(reset_peak: bool = False) -> Counters:
    """What this process did so far; zeros when the runtime is not loaded. Takes at most 2 s."""
    if _library is None:
        return Counters()
    size = _COUNTERS_BYTES
    while True:
        buffer = ctypes.create_string_buffer(size)
        needed = _library.gpupool_counters(buffer, size, int(reset_peak))
        if needed < size or size >= _MAX_COUNTERS_BYTES:
            return parse_counters(buffer.value)
        size = min(needed + 1, _MAX_COUNTERS_BYTES)


def inquire() -> Work | None:
    """What the devices of this process's session are doing, asked beside all calls; None: nobody says so in time."""
    if _library is None:
        return None
    buffer = ctypes.create_string_buffer(_INQUIRY_BYTES)
    _library.gpupool_inquire(buffer, _INQUIRY_BYTES)
    value = json.loads(buffer.value)
    if not value["answers"]:
        return None
    return Work(
        state=str(value["work"]),
        kernel=str(value["kernel"]),
        seconds=float(value["seconds"]),
        failure=int(value["failure"]),
        failed_kernel=str(value["failed_kernel"]),
        awaits_turn=bool(value["awaits_turn"]),
    )


def end_session() -> None:
    """Ends the session's worker at once, with all that is in GPU memory; calls that wait for it fail.

    Raises:
        DeviceCallFailedError: there is no session, or its worker does not answer.
    """
    _check("end_session", _loaded().gpupool_end_session())


def last_message() -> str:
    """The runtime's last sentence for people on this thread; empty if there was none."""
    if _library is None:
        return ""
    said = _library.gpupool_last_message()
    return said.decode(errors="replace") if said else ""


def tell_refusals(on: bool) -> None:
    """Whether this process tells its user itself why calls of the main thread were refused.

    Then the runtime does not write it to standard error, and :func:`take_refusal` has it.
    """
    if on:
        os.environ[_TOLD_BY] = str(os.getpid())
    else:
        os.environ.pop(_TOLD_BY, None)


def take_refusal() -> str:
    """Why a call of the main thread was last refused, once; empty: none was since."""
    if _library is None:
        return ""
    said = _library.gpupool_take_refusal()
    return said.decode(errors="replace") if said else ""


def foreign_driver(maps: str | None = None) -> str | None:
    """Path of a CUDA driver library mapped into this process that is not ours."""
    return _foreign(_FOREIGN_DRIVER, maps)


def parse_counters(raw: bytes) -> Counters:
    """The runtime's JSON as :class:`Counters`. Raises ValueError when it is not that."""
    value = json.loads(raw)
    worker = value.get("worker")
    refused = value.get("out_of_memory")
    sent, found = (value.get(name, (0, 0)) for name in ("images_sent", "images_found"))
    return Counters(
        calls=int(value["calls"]),
        posts=int(value["posts"]),
        asks=int(value["asks"]),
        ask_seconds=float(value["ask_seconds"]),
        bytes_to_device=int(value["bytes_to_device"]),
        bytes_from_device=int(value["bytes_from_device"]),
        asks_by_name={
            str(name): (int(count), float(seconds))
            for name, (count, seconds) in value.get("asks_by_name", {}).items()
        },
        images_sent=(int(sent[0]), int(sent[1])),
        images_found=(int(found[0]), int(found[1])),
        copies_to_host=tuple(int(n) for n in value.get("copies_to_host", (0, 0, 0, 0))),
        worker=None
        if worker is None
        else WorkerCounters(
            device_seconds=float(worker["device_seconds"]),
            kernels=int(worker["kernels"]),
            memory_used=tuple(int(n) for n in worker["memory_used"]),
            memory_peak=tuple(int(n) for n in worker["memory_peak"]),
        ),
        state=str(value["state"]),
        software=bool(value["software"]),
        failure=int(value["failure"]),
        refused_memory=RefusedMemory.parse(refused) if refused is not None else None,
    )


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    library.gpupool_attach.restype = ctypes.c_int
    library.gpupool_attach.argtypes = []
    library.gpupool_drain.restype = ctypes.c_int
    library.gpupool_drain.argtypes = [ctypes.c_int]
    library.gpupool_detach.restype = ctypes.c_int
    library.gpupool_detach.argtypes = []
    library.gpupool_counters.restype = ctypes.c_int
    library.gpupool_counters.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    library.gpupool_inquire.restype = ctypes.c_int
    library.gpupool_inquire.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.gpupool_end_session.restype = ctypes.c_int
    library.gpupool_end_session.argtypes = []
    library.gpupool_wish_for_leases.restype = None
    library.gpupool_wish_for_leases.argtypes = [ctypes.c_int]
    library.gpupool_last_message.restype = ctypes.c_char_p
    library.gpupool_last_message.argtypes = []
    library.gpupool_take_refusal.restype = ctypes.c_char_p
    library.gpupool_take_refusal.argtypes = []
    return library


def _loaded() -> Any:
    if _library is None:
        raise DeviceCallFailedError(
            "load", _DEVICE_UNAVAILABLE, "The GPU client runtime is not loaded in this process."
        )
    return _library


def _check(action: str, result: int) -> None:
    if result != 0:
        raise DeviceCallFailedError(action, result, last_message())


def _load_runtime_api() -> None:
    ours = native_directory()
    mapped = {path for path in _mapped(Path("/proc/self/maps").read_text()) if "libcudart.so" in path.name}
    if any(ours in path.parents or ours in path.resolve().parents for path in mapped):
        return
    late = sorted(_RUNTIME_API_USERS & sys.modules.keys())
    if mapped and late:
        warnings.warn(
            f"{late[0]} was imported before the GPU was attached, and uses {min(mapped)}, which does not see the GPU. "
            f"Restart the kernel and attach the GPU before {late[0]} is imported.",
            RuntimeWarning,
            stacklevel=4,
        )
    # Global: their symbols are found before those of a copy that a package brings.
    for path in linked_libraries(ours):
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


def _hand_over_ptx() -> None:
    """For a software GPU: compilers in this process give PTX to the driver."""
    variables = compiler_variables(os.environ)
    os.environ["PATH"] = variables.pop("PATH")
    for name, value in variables.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", message=re.escape(LINKER_WARNING), category=RuntimeWarning)
    linker = _foreign(_FOREIGN_LINKER, None)
    if linker is not None:
        warnings.warn(
            f"{linker} was loaded before the GPU was attached, so numba makes machine code, which a software "
            "GPU cannot run. Restart the kernel and attach the GPU before the first CUDA kernel is compiled.",
            RuntimeWarning,
            stacklevel=3,
        )
        return
    for name in COMPAT_LIBRARIES:
        ctypes.CDLL(str(native_file("compat", name)), ctypes.RTLD_GLOBAL)


def _foreign(name: re.Pattern[str], maps: str | None) -> str | None:
    ours = native_directory()
    for path in _mapped(Path("/proc/self/maps").read_text() if maps is None else maps):
        if name.fullmatch(path.name) and ours not in path.parents and ours not in path.resolve().parents:
            return str(path)
    return None


def _mapped(maps: str) -> Iterable[Path]:
    seen = set()
    for line in maps.splitlines():
        # address perms offset dev inode path; the path may hold spaces.
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/") and fields[5] not in seen:
            seen.add(fields[5])
            yield Path(fields[5].removesuffix(" (deleted)"))
