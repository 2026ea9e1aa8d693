"""cuFFT by its plans: what the tests of its functions share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import scipy.fft

from tests.libraries.machine import Answer, Argument, Array, Machine, integer, out, pointer

LIBRARY: Final = "libcufft.so.12"
SUCCESS, INVALID_PLAN, INVALID_TYPE, INVALID_VALUE, INVALID_SIZE, NOT_SUPPORTED = 0, 1, 3, 4, 8, 16
FORWARD, INVERSE = -1, 1
ILLEGAL_ADDRESS = 700


@dataclass(frozen=True)
class Kind:
    """What a plan's type means: the numbers before and after, and how it is executed."""

    number: int
    execute: str
    before: type[Any]
    after: type[Any]
    tolerance: float

    @property
    def is_complex(self) -> bool:
        return np.dtype(self.before).kind == np.dtype(self.after).kind


KINDS: Final = {
    "C2C": Kind(0x29, "cufftExecC2C", np.complex64, np.complex64, 1e-6),
    "R2C": Kind(0x2A, "cufftExecR2C", np.float32, np.complex64, 1e-6),
    "C2R": Kind(0x2C, "cufftExecC2R", np.complex64, np.float32, 1e-6),
    "Z2Z": Kind(0x69, "cufftExecZ2Z", np.complex128, np.complex128, 1e-14),
    "D2Z": Kind(0x6A, "cufftExecD2Z", np.float64, np.complex128, 1e-14),
    "Z2D": Kind(0x6C, "cufftExecZ2D", np.complex128, np.float64, 1e-14),
}
COMPLEX: Final = ("C2C", "Z2Z")


def call(machine: Machine, function: str, *arguments: Argument) -> Answer:
    return machine.call(LIBRARY, function, *arguments)


@contextmanager
def plan(machine: Machine, function: str, *arguments: Argument) -> Iterator[Argument]:
    """A plan that a function like cufftPlan1d makes."""
    made = call(machine, function, out(4), *arguments)
    assert made.status == SUCCESS
    handle = integer(made.number())
    try:
        yield handle
    finally:
        assert call(machine, "cufftDestroy", handle).status == SUCCESS


def execute(machine: Machine, handle: Argument, kind: Kind, source: int, target: int, direction: int) -> int:
    more = [integer(direction)] if kind.is_complex else []
    return call(machine, kind.execute, handle, pointer(source), pointer(target), *more).status


def random(generator: np.random.Generator, shape: Sequence[int], dtype: type[Any]) -> Array:
    numbers = generator.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        numbers = numbers + 1j * generator.standard_normal(shape)
    return numbers.astype(dtype)


def stored_shape(shape: Sequence[int], dtype: type[Any], kind: Kind) -> tuple[int, ...]:
    """Of the numbers of one side: complex ones of real numbers are half as many, and one."""
    halved = not kind.is_complex and np.dtype(dtype).kind == "c"
    return (*shape[:-1], shape[-1] // 2 + 1) if halved else tuple(shape)


def expected(kind: Kind, source: Array, shape: Sequence[int], direction: int) -> Array:
    """The transform over the last dimensions, without a factor, computed in double precision."""
    axes = tuple(range(-len(shape), 0))
    if not kind.is_complex:
        direction = FORWARD if np.dtype(kind.after).kind == "c" else INVERSE
    exact = source.astype(np.complex128 if source.dtype.kind == "c" else np.float64)
    if kind.is_complex:
        transform = scipy.fft.fftn if direction == FORWARD else scipy.fft.ifftn
        result = transform(exact, axes=axes)
    elif direction == FORWARD:
        result = scipy.fft.rfftn(exact, axes=axes)
    else:
        result = scipy.fft.irfftn(exact, shape, axes=axes)
    return np.asarray(result * (math.prod(shape) if direction == INVERSE else 1))


def assert_close(result: Array, wanted: Array, tolerance: float, numbers: int) -> None:
    difference = np.linalg.norm((result - wanted).ravel())
    assert difference <= tolerance * max(math.log2(numbers), 1) * np.linalg.norm(wanted.ravel())


def check_basic(
    machine: Machine,
    handle: Argument,
    kind: Kind,
    shape: Sequence[int],
    batch: int,
    direction: int,
    seed: int,
) -> None:
    """A plan without an advanced layout, from one place to another."""
    source = random(
        np.random.default_rng(seed), (batch, *stored_shape(shape, kind.before, kind)), kind.before
    )
    target = np.zeros((batch, *stored_shape(shape, kind.after, kind)), kind.after)
    with machine.arrays(source, target) as (at_source, at_target):
        assert execute(machine, handle, kind, at_source, at_target, direction) == SUCCESS
        result = machine.get(at_target, target)
    assert_close(result, expected(kind, source, shape, direction), kind.tolerance, math.prod(shape))


def check_in_place(
    machine: Machine,
    handle: Argument,
    kind: Kind,
    shape: Sequence[int],
    batch: int,
    direction: int,
    seed: int,
) -> None:
    """The same in one place: rows of real numbers are as long as those of the complex ones."""
    generator = np.random.default_rng(seed)
    source = random(generator, (batch, *stored_shape(shape, kind.before, kind)), kind.before)
    if kind.is_complex:
        room = source.copy()
    else:
        room = np.zeros(
            (batch, *shape[:-1], shape[-1] // 2 + 1),
            kind.after if kind.before in (np.float32, np.float64) else kind.before,
        )
        view = room if source.dtype.kind == "c" else room.view(kind.before)
        view[..., : source.shape[-1]] = source
    with machine.arrays(room) as (address,):
        assert execute(machine, handle, kind, address, address, direction) == SUCCESS
        result = machine.get(address, room).view(kind.after)
    wanted = expected(kind, source, shape, direction)
    assert_close(result[..., : wanted.shape[-1]], wanted, kind.tolerance, math.prod(shape))
