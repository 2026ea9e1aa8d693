"""A process that uses the math libraries, as a test sees it: arrays in device memory and calls of functions."""

from __future__ import annotations

import pickle
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Argument = tuple[str, Any]

#: cudaDataType of the types that numpy, or ml_dtypes, has.
DATA_TYPES: Final = {
    np.dtype(np.float32): 0,
    np.dtype(np.float64): 1,
    np.dtype(np.float16): 2,
    np.dtype(np.int8): 3,
    np.dtype(np.complex64): 4,
    np.dtype(np.complex128): 5,
    np.dtype(np.int32): 10,
    np.dtype(ml_dtypes.bfloat16): 14,
    np.dtype(ml_dtypes.float8_e4m3fn): 28,
    np.dtype(ml_dtypes.float8_e5m2): 29,
}


#: How often this process has called each function of a library.
calls: Counter[tuple[str, str]] = Counter()


def integer(value: int) -> Argument:
    return ("i", value)


def wide(value: int) -> Argument:
    return ("l", value)


def pointer(address: int) -> Argument:
    return ("p", address)


def host(value: Array | bytes) -> Argument:
    """A pointer to these bytes in the program's own memory."""
    return ("bytes", value if isinstance(value, bytes) else np.ascontiguousarray(value).tobytes())


def out(size: int) -> Argument:
    """A pointer to so many bytes that the function fills."""
    return ("out", size)


def both(value: Array) -> Argument:
    """A pointer to these bytes, whose content comes back as the function left it."""
    return ("both", np.ascontiguousarray(value).tobytes())


class Answer(NamedTuple):
    """What a function returned, and what it filled."""

    status: int
    outputs: list[bytes]

    def number(self, index: int = 0) -> int:
        """An output as a number of its size."""
        return int.from_bytes(self.outputs[index], "little")


@dataclass(slots=True)
class Machine:
    """The process. Raises AssertionError when it has died or an action of the driver failed."""

    process: subprocess.Popen[bytes]

    def _ask(self, *request: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        pickle.dump(request, self.process.stdin)
        self.process.stdin.flush()
        try:
            value, problem = pickle.load(self.process.stdout)
        except EOFError:
            raise AssertionError(f"the program has ended with {self.process.wait()}") from None
        assert not problem, problem
        return value

    def call(self, library: str, function: str, *arguments: Argument) -> Answer:
        calls[library, function] += 1
        status, outputs = self._ask("call", library, function, arguments)
        return Answer(status, outputs)

    def driver(self, function: str, *arguments: Argument) -> Answer:
        status, outputs = self._ask("driver", function, arguments)
        return Answer(status, outputs)

    def synchronize(self) -> int:
        """The CUresult of what was submitted."""
        return self.driver("cuCtxSynchronize").status

    def put(self, array: Array) -> int:
        """The address of a copy in device memory, in the order of the array's memory."""
        return self._put([array])[0]

    def _put(self, arrays: Sequence[Array]) -> list[int]:
        return list(self._ask("put", [array.tobytes(order="A") for array in arrays]))

    def get(self, address: int, like: Array) -> Array:
        """What lies at an address, in the shape, type and order of ``like``."""
        data = self._ask("get", address, like.nbytes)
        order = "F" if like.flags.f_contiguous and not like.flags.c_contiguous else "C"
        return np.frombuffer(data, like.dtype).reshape(like.shape, order=order).copy(order=order)

    @contextmanager
    def arrays(self, *arrays: Array) -> Iterator[list[int]]:
        """Addresses of copies in device memory, which is freed afterwards."""
        addresses = self._put(arrays)
        try:
            yield addresses
        finally:
            self._ask("free", addresses)


def words(*values: int) -> bytes:
    """Addresses as they lie in an array of pointers."""
    return struct.pack(f"<{len(values)}Q", *values)
