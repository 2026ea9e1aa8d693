"""cuDNN by its handles and descriptors: what the tests of its functions share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import ml_dtypes
import numpy as np

from tests.libraries.machine import Answer, Argument, Array, Machine, host, integer, out, pointer

LIBRARY: Final = "libcudnn.so.9"
SUCCESS, BAD_PARAM, NOT_SUPPORTED = 0, 2000, 3000
#: cudnnDataType_t of the types that numpy, or ml_dtypes, has.
DATA_TYPES: Final = {
    np.dtype(np.float32): 0,
    np.dtype(np.float64): 1,
    np.dtype(np.float16): 2,
    np.dtype(np.int8): 3,
    np.dtype(np.int32): 4,
    np.dtype(np.uint8): 6,
    np.dtype(ml_dtypes.bfloat16): 9,
}
REAL_TYPES: Final = [
    np.dtype(np.float32),
    np.dtype(np.float64),
    np.dtype(np.float16),
    np.dtype(ml_dtypes.bfloat16),
]
#: Errors of rounding relative to the size of what was added up.
TOLERANCES: Final = {
    np.dtype(np.float64): 1e-12,
    np.dtype(np.float32): 1e-5,
    np.dtype(np.float16): 2e-3,
    np.dtype(ml_dtypes.bfloat16): 1.6e-2,
}
NCHW, NHWC = 0, 1


def call(machine: Machine, function: str, *arguments: Argument) -> Answer:
    return machine.call(LIBRARY, function, *arguments)


def done(machine: Machine, function: str, *arguments: Argument) -> Answer:
    """The answer of a call that must succeed."""
    answer = call(machine, function, *arguments)
    assert answer.status == SUCCESS, f"{function} returned {answer.status}"
    return answer


def integers(values: Sequence[int]) -> Argument:
    return host(np.array(values, np.int32))


def factor(value: float, dtype: np.dtype[np.generic]) -> Argument:
    """alpha or beta: a double for doubles, a float for all others."""
    return host(np.array([value], np.float64 if dtype == np.float64 else np.float32))


@contextmanager
def handle(machine: Machine) -> Iterator[Argument]:
    made = pointer(done(machine, "cudnnCreate", out(8)).number())
    try:
        yield made
    finally:
        done(machine, "cudnnDestroy", made)


@contextmanager
def descriptor(machine: Machine, kind: str) -> Iterator[Argument]:
    made = pointer(done(machine, f"cudnnCreate{kind}Descriptor", out(8)).number())
    try:
        yield made
    finally:
        done(machine, f"cudnnDestroy{kind}Descriptor", made)


@dataclass(slots=True)
class Placed:
    """An array in device memory with its descriptor."""

    array: Array
    format: int
    address: int
    descriptor: Argument
    machine: Machine

    @property
    def data(self) -> Argument:
        return pointer(self.address)

    def result(self) -> Array:
        """What lies there now."""
        return from_format(self.machine.get(self.address, to_format(self.array, self.format)), self.format)


def to_format(array: Array, form: int) -> Array:
    """The array's memory in a format, as an array in C order."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1) if form == NHWC else array)


def from_format(memory: Array, form: int) -> Array:
    return np.moveaxis(memory, -1, 1) if form == NHWC else memory


def strides_of(array: Array, form: int) -> list[int]:
    memory = to_format(array, form)
    return [step // array.itemsize for step in from_format(memory, form).strides]


@contextmanager
def placed(machine: Machine, array: Array, form: int = NCHW, kind: str = "Tensor") -> Iterator[Placed]:
    """An array, copied to device memory, and a descriptor of it: of a Tensor or of a Filter."""
    dims = integer(array.ndim)
    with ExitStack() as stack:
        made = stack.enter_context(descriptor(machine, kind))
        [address] = stack.enter_context(machine.arrays(to_format(array, form)))
        data_type = integer(DATA_TYPES[array.dtype])
        if kind == "Filter":
            done(
                machine,
                "cudnnSetFilterNdDescriptor",
                made,
                data_type,
                integer(form),
                dims,
                integers(array.shape),
            )
        else:
            strides = integers(strides_of(array, form))
            done(machine, "cudnnSetTensorNdDescriptor", made, data_type, dims, integers(array.shape), strides)
        yield Placed(array, form, address, made, machine)


def random(generator: np.random.Generator, shape: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
    if dtype.kind in "iu":
        return generator.integers(0, 9, shape).astype(dtype)
    return np.asarray(generator.standard_normal(shape)).astype(dtype)


def exact(array: Array) -> Array:
    return array.astype(np.float64)


def assert_close(result: Array, wanted: Array, scale: float = 1) -> None:
    tolerance = TOLERANCES[result.dtype]
    np.testing.assert_allclose(exact(result), wanted, rtol=tolerance, atol=tolerance * scale)
