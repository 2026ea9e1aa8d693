"""A rank, or several ranks of one process: one JSON line in, one out. ``nccl_program.py FOLDER``.

Requests:

- ``["id"]`` → hex; ``["init", ID, RANKS, RANK]`` and ``["init_all", RANKS]`` → status
- ``["split", [[COMMUNICATOR, COLOR, KEY]...]]`` → ``[status, [whether there is one...]]``, in one group if there are several
- ``["factor", COMMUNICATOR, TYPE, HEX, ON_DEVICE]`` → ``[status, operation]``
- ``["end_factor", COMMUNICATOR, OPERATION]`` → status
- ``["run", CALLS]`` → ``[status, [hex...]]``, in one group if there are several; a call has what test_nccl's ``call`` makes
- ``["run_held", CALLS]`` → the same of calls behind work in the default stream that ends after them, or after a minute
- ``["ask", FUNCTION, COMMUNICATOR]`` → ``[status, number]``; ``["end", FUNCTION, COMMUNICATOR]`` → status
- ``["later", SECONDS, FUNCTION, COMMUNICATOR]`` calls it in a thread
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class UniqueId(ctypes.Structure):
    """What is passed by value."""

    _fields_ = (("bytes", ctypes.c_char * 128),)


class Program:
    """The driver, the library and this process's communicators."""

    def __init__(self, folder: Path) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
        self.nccl = ctypes.CDLL(str(folder / "libnccl.so.2"))
        self.communicators: list[ctypes.c_void_p] = []
        self.contexts: list[ctypes.c_void_p] = []
        self.check(self.driver.cuInit(0))

    @staticmethod
    def check(result: int) -> None:
        if result != 0:
            raise RuntimeError(f"the driver returned {result}")

    def context(self, device: int) -> None:
        """Makes the device's primary context current."""
        while len(self.contexts) <= device:
            made = ctypes.c_void_p()
            self.check(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(made), len(self.contexts)))
            self.contexts.append(made)
        self.check(self.driver.cuCtxSetCurrent(self.contexts[device]))

    def id(self) -> str:
        made = ctypes.create_string_buffer(128)
        assert self.nccl.ncclGetUniqueId(made) == 0
        return made.raw.hex()

    def init(self, unique_id: str, ranks: int, rank: int) -> int:
        self.context(0)
        made = ctypes.c_void_p()
        passed = UniqueId.from_buffer_copy(bytes.fromhex(unique_id))
        status = int(self.nccl.ncclCommInitRank(ctypes.byref(made), ranks, passed, rank))
        self.communicators.append(made)
        return status

    def init_all(self, ranks: int) -> int:
        made = (ctypes.c_void_p * ranks)()
        status = int(self.nccl.ncclCommInitAll(made, ranks, None))
        self.communicators += [ctypes.c_void_p(one) for one in made]
        return status

    def split(self, wishes: list[list[int]]) -> tuple[int, list[bool]]:
        made = [ctypes.c_void_p() for _ in wishes]
        statuses = [self.nccl.ncclGroupStart()] if len(wishes) > 1 else []
        for place, (communicator, color, key) in zip(made, wishes, strict=True):
            parent = self.communicators[communicator]
            statuses.append(self.nccl.ncclCommSplit(parent, color, key, ctypes.byref(place), None))
        if len(wishes) > 1:
            statuses.append(self.nccl.ncclGroupEnd())
        self.communicators += made
        return max(statuses), [bool(one) for one in made]

    def factor(self, communicator: int, kind: int, content: str, on_device: bool) -> tuple[int, int]:
        made, value = ctypes.c_int(-1), bytes.fromhex(content)
        place = ctypes.c_void_p(self.memory(value).value) if on_device else ctypes.create_string_buffer(value)
        of = self.communicators[communicator]
        status = self.nccl.ncclRedOpCreatePreMulSum(
            ctypes.byref(made), place, kind, 0 if on_device else 1, of
        )
        return int(status), made.value

    def end_factor(self, communicator: int, operation: int) -> int:
        return int(self.nccl.ncclRedOpDestroy(operation, self.communicators[communicator]))

    def memory(self, content: bytes) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self.check(self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(len(content), 1))))
        self.check(self.driver.cuMemcpyHtoD_v2(address, content, ctypes.c_size_t(len(content))))
        return address

    def run_held(self, calls: list[dict[str, Any]]) -> tuple[int, list[str]]:
        over = threading.Event()
        held = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: over.wait(60) and None)
        return self.run(calls, lambda: self.driver.cuLaunchHostFunc(None, held, None), over.set)

    def run(
        self,
        calls: list[dict[str, Any]],
        before: Callable[[], int] = lambda: 0,
        after: Callable[[], None] = lambda: None,
    ) -> tuple[int, list[str]]:
        buffers: list[list[tuple[ctypes.c_uint64, int]]] = []
        statuses = []
        for call in calls:
            self.context(call["device"])
            send, room = call["send"], call["room"]
            own = []
            if send is not None:
                own.append((self.memory(bytes.fromhex(send)), len(send) // 2))
            if room is not None:
                own.append((self.memory(bytes(room)), room))
            buffers.append(own)
        self.check(before())
        if len(calls) > 1:
            statuses.append(self.nccl.ncclGroupStart())
        for call, own in zip(calls, buffers, strict=True):
            self.context(call["device"])
            count, *others = call["numbers"]
            numbers = [ctypes.c_size_t(count), *map(ctypes.c_int, others)]
            pointers = [ctypes.c_void_p(address.value) for address, _ in own]
            if call["in_place"]:
                pointers *= 2
            function = getattr(self.nccl, call["name"])
            statuses.append(function(*pointers, *numbers, self.communicators[call["of"]], None))
        if len(calls) > 1:
            statuses.append(self.nccl.ncclGroupEnd())
        after()
        results = []
        for call, own in zip(calls, buffers, strict=True):
            self.context(call["device"])
            address, size = own[-1]
            content = ctypes.create_string_buffer(max(size, 1))
            self.check(self.driver.cuMemcpyDtoH_v2(content, address, ctypes.c_size_t(size)))
            results.append(content.raw[:size].hex())
            for one, _ in own:
                self.check(self.driver.cuMemFree_v2(one))
        return max(statuses), results

    def ask(self, function: str, communicator: int) -> tuple[int, int]:
        value = ctypes.c_int(-1)
        status = getattr(self.nccl, function)(self.communicators[communicator], ctypes.byref(value))
        return int(status), value.value

    def end(self, function: str, communicator: int) -> int:
        return int(getattr(self.nccl, function)(self.communicators[communicator]))

    def later(self, seconds: float, function: str, communicator: int) -> None:
        def wait_and_call() -> None:
            time.sleep(seconds)
            self.end(function, communicator)

        threading.Thread(target=wait_and_call, daemon=True).start()


def main() -> None:
    program = Program(Path(sys.argv[1]))
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        try:
            answer: dict[str, Any] = {"value": getattr(program, what)(*arguments)}
        except Exception as error:
            answer = {"error": repr(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
