"""cuRAND's generators for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from tests.libraries.machine import Argument, Array, Machine, integer, out, pointer, wide

LIBRARY: Final = "libcurand.so.10"
DEFAULT, XORWOW, MRG32K3A, PHILOX = 100, 101, 121, 161
SOBOL32, SOBOL64 = 201, 203
#: curandOrdering_t.
BY_DEFAULT, SEEDED, LEGACY = 101, 102, 103
SUCCESS, NOT_INITIALIZED, TYPE_ERROR, OUT_OF_RANGE, LENGTH_NOT_MULTIPLE = 0, 101, 103, 104, 105


@contextmanager
def generator(
    machine: Machine, seed: int = 0, offset: int = 0, kind: int = PHILOX, ordering: int = BY_DEFAULT
) -> Iterator[Argument]:
    """On the device."""
    made = machine.call(LIBRARY, "curandCreateGenerator", out(8), integer(kind))
    assert made.status == SUCCESS
    argument = pointer(made.number())
    try:
        for function, value in (
            ("curandSetPseudoRandomGeneratorSeed", seed),
            ("curandSetGeneratorOffset", offset),
        ):
            assert machine.call(LIBRARY, function, argument, wide(signed(value))).status == SUCCESS
        ordered = machine.call(LIBRARY, "curandSetGeneratorOrdering", argument, integer(ordering))
        assert ordered.status == SUCCESS
        yield argument
    finally:
        assert machine.call(LIBRARY, "curandDestroyGenerator", argument).status == SUCCESS


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def numbers(
    machine: Machine, of: Argument, function: str, count: int, dtype: type[Any], *more: Argument
) -> Array:
    """What a function fills an array with."""
    like = np.zeros(count, dtype)
    with machine.arrays(like) as (address,):
        assert machine.call(LIBRARY, function, of, pointer(address), wide(count), *more).status == SUCCESS
        return machine.get(address, like)
