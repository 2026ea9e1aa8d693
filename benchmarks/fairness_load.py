"""A session under full load, for ``gpupool bench fairness``: keeps the device busy until it is told to stop.

Run as a program: ``fairness_load.py KIND``. It prints one line when it is ready, begins when a line comes on standard
input, and ends when more comes or standard input ends. It sleeps most of the time, so that it leaves the processors to
a software GPU.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

#: Counts in registers: no memory, so that sessions meet nowhere but at the device's time.
_PTX: Final = b"""
.version 7.0
.target sm_52
.address_size 64
.visible .entry spin(.param .u32 count)
{
    .reg .u32 %r<4>;
    .reg .pred %p<2>;
    ld.param.u32 %r1, [count];
    mov.u32 %r2, 0;
    mov.u32 %r3, 1;
again:
    mad.lo.u32 %r3, %r3, 3, %r2;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra again;
    ret;
}
.visible .global .align 4 .u32 over;
.visible .entry forever()
{
    .reg .u32 %r<2>;
    .reg .pred %p<2>;
wait:
    ld.volatile.global.u32 %r1, [over];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra wait;
    ret;
}
"""
_BLOCKS: Final = 16
_KERNEL_SECONDS: Final = 0.001
#: Of a long kernel, by the short one's.
_LONG: Final = 10_000
#: Kernels between two events, and how many such batches may be on their way: the device must never wait for the load,
#: also where the processors are busy with its kernels. An event that is asked for is told by the worker, so nothing
#: waits behind the work that lies before it.
_BATCH: Final = 32
_BATCHES: Final = 32
_PAUSE_SECONDS: Final = 0.004
_STREAMS: Final = 16
_GRAPH_NODES: Final = 8
_CAPTURE_MODE_RELAXED: Final = 2
_STREAM_NON_BLOCKING: Final = 1
_EVENT_NO_TIMING: Final = 2
_NOT_READY: Final = 600


class Device:
    """The driver API, as far as the load needs it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), _PTX)
        self._function, self._forever = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(self._function), module, b"spin")
        self.call("cuModuleGetFunction", ctypes.byref(self._forever), module, b"forever")
        self._count = ctypes.c_uint32(1000)
        self._parameters = (ctypes.c_void_p * 1)(ctypes.addressof(self._count))
        self._calibrate()

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the driver; a failure ends the program with its name."""
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            sys.exit(f"{name} failed with {result}")

    def done(self, event: ctypes.c_void_p) -> bool:
        """Whether the event is known to be complete."""
        result = self._library.cuEventQuery(event)
        if result not in (0, _NOT_READY):
            sys.exit(f"cuEventQuery failed with {result}")
        return bool(result == 0)

    def stream(self) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), _STREAM_NON_BLOCKING)
        return stream

    def event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), _EVENT_NO_TIMING)
        return event

    def launch(self, stream: ctypes.c_void_p) -> None:
        self.call(
            "cuLaunchKernel", self._function, _BLOCKS, 1, 1, 32, 1, 1, 0, stream, self._parameters, None
        )

    def launch_forever(self, stream: ctypes.c_void_p) -> None:
        """A kernel that never ends."""
        self.call("cuLaunchKernel", self._forever, _BLOCKS, 1, 1, 32, 1, 1, 0, stream, None, None)

    def lengthen(self) -> None:
        """From now on a kernel takes about ten seconds of a device that it has for itself."""
        self._count.value = min(self._count.value * _LONG, 2**32 - 1)

    def graph(self, stream: ctypes.c_void_p) -> ctypes.c_void_p:
        """An executable graph of some kernels."""
        self.call("cuStreamBeginCapture_v2", stream, _CAPTURE_MODE_RELAXED)
        for _ in range(_GRAPH_NODES):
            self.launch(stream)
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuStreamEndCapture", stream, ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0))
        return executable

    def _calibrate(self) -> None:
        """Sets how far a kernel counts, so that it takes about as long as it shall."""
        stream = self.stream()
        best = float("inf")
        for _ in range(4):
            began = time.monotonic()
            self.launch(stream)
            self.call("cuStreamSynchronize", stream)
            best = min(best, time.monotonic() - began)
            if best < _KERNEL_SECONDS / 4:
                self._count.value *= 4
                best = float("inf")
        self._count.value = max(100, int(self._count.value * _KERNEL_SECONDS / best))


def _load(device: Device, kind: str) -> Callable[[], None]:
    """What is to be called again and again, for one of ``kernels graphs streams steps long endless``."""
    streams = [device.stream() for _ in range(_STREAMS if kind == "streams" else 1)]
    graph = device.graph(streams[0]) if kind == "graphs" else None

    def wait_for_each() -> None:
        device.launch(streams[0])
        device.call("cuStreamSynchronize", streams[0])

    if kind == "steps":
        return wait_for_each
    if kind == "long":
        device.lengthen()
    batch, batches = {"long": (1, 2), "endless": (1, 1)}.get(kind, (_BATCH, _BATCHES))
    launch = device.launch_forever if kind == "endless" else device.launch
    under_way: deque[ctypes.c_void_p] = deque()
    free = [device.event() for _ in range(batches)]

    def give() -> None:
        if graph is not None:
            for _ in range(_BATCH // _GRAPH_NODES):
                device.call("cuGraphLaunch", graph, streams[0])
        else:
            for number in range(batch):
                launch(streams[number % len(streams)])
        event = free.pop()
        device.call("cuEventRecord", event, streams[-1])
        device.done(event)  # the question is what makes the worker tell
        under_way.append(event)

    def step() -> None:
        while under_way and device.done(under_way[0]):
            free.append(under_way.popleft())
        if free:
            give()
        else:
            time.sleep(_PAUSE_SECONDS)

    return step


def main(kind: str) -> None:
    """Loads the device between the first line and the end of standard input."""
    step = _load(Device(), kind)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    # By descriptor: what Python has read ahead select() would not see.
    while not select.select([0], [], [], 0)[0]:
        step()
    # What is still with the device does not matter any more.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
