"""Level 1 of cuBLAS against numpy and SciPy: vectors with any increments, in both pointer modes, and nothing else touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import blas as reference  # type: ignore[import-untyped]

from tests.libraries.blas import LETTERS, assert_close, blas, flag, gathered, numbers, quickly, real, spread
from tests.libraries.cublas import (
    DEVICE,
    EXECUTION_FAILED,
    HOST,
    INVALID_VALUE,
    LIBRARY,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    SUCCESS,
)
from tests.libraries.machine import DATA_TYPES, Array, Machine, both, host, integer, out, pointer, wide

modes = st.sampled_from([HOST, DEVICE])
sizes = st.sampled_from([1, 2, 7, 100, 5000])
increments = st.sampled_from([1, 2, 3, -1, -3])
seeds = st.integers(0, 99)
REAL: Final = {"S": "S", "D": "D", "C": "Sc", "Z": "Dz"}


def changed(
    machine: Machine, name: str, mode: int, is_wide: bool, vectors: list[tuple[Array, int]], before: list[Any], after: list[Any],
) -> list[Array]:  # fmt: skip
    """The memory of vectors after a function that takes n, ``before``, vectors with increments, and ``after``."""
    with (
        blas(machine, mode, is_wide=is_wide) as run,
        machine.arrays(*(memory for memory, _ in vectors)) as addresses,
    ):
        placed = [
            item
            for address, (_, increment) in zip(addresses, vectors, strict=True)
            for item in (pointer(address), increment)
        ]
        count = len(gathered(*vectors[0]))
        assert run(name, count, *before, *placed, *after).status == SUCCESS
        return [machine.get(address, memory) for address, (memory, _) in zip(addresses, vectors, strict=True)]


@pytest.mark.parametrize("letter", LETTERS)
@quickly
@given(n=sizes, incs=st.tuples(increments, increments), mode=modes, is_wide=st.booleans(), seed=seeds)
def test_elements(
    machine: Machine, letter: str, n: int, incs: tuple[int, int], mode: int, is_wide: bool, seed: int
) -> None:
    """axpy, copy, swap and rot."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    x, y = numbers(generator, n, dtype), numbers(generator, n, dtype)
    alpha, c = dtype.type(-1.5), real(dtype).type(0.5)
    s = dtype.type(0.25 + 0.75j) if dtype.kind == "c" else dtype.type(0.75)
    for name, before, after, wanted_x, wanted_y in (
        ("axpy", [alpha], [], x, y + alpha * x),
        ("copy", [], [], x, x),
        ("swap", [], [], y, x),
        ("rot", [], [c, s], c * x + s * y, c * y - np.conj(s) * x),
    ):
        vectors = [(spread(x, incs[0]), incs[0]), (spread(y, incs[1]), incs[1])]
        found = changed(machine, f"cublas{letter}{name}_v2", mode, is_wide, vectors, before, after)
        assert_close(found[0], spread(np.asarray(wanted_x, dtype), incs[0]))
        assert_close(found[1], spread(np.asarray(wanted_y, dtype), incs[1]))


@quickly
@given(n=sizes, inc=st.integers(1, 3), mode=modes, seed=seeds)
def test_scaling(machine: Machine, n: int, inc: int, mode: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    for name, dtype, alpha in (
        ("S", np.complex64, None),
        ("C", np.complex64, np.complex64(1 - 2j)),
        ("Cs", np.complex64, np.float32(0.5)),
        ("Zd", np.complex128, np.float64(-2)),
        ("D", np.float64, np.float64(3)),
    ):
        kind = np.dtype(np.float32 if alpha is None else dtype)
        factor = np.float32(2) if alpha is None else alpha
        x = numbers(generator, n, kind)
        (found,) = changed(
            machine, f"cublas{name}scal_v2", mode, False, [(spread(x, inc), inc)], [factor], []
        )
        assert_close(found, spread((factor * x).astype(kind), inc))


def result(
    machine: Machine, name: str, mode: int, is_wide: bool, arguments: list[Any], dtype: np.dtype[Any]
) -> Any:
    """The number that a function answers, of host or of device memory."""
    place = np.full(3, 77, dtype)
    with blas(machine, mode, is_wide=is_wide) as run, machine.arrays(place) as (at,):
        target = out(dtype.itemsize) if mode == HOST else pointer(at + dtype.itemsize)
        answer = run(name, *arguments, target)
        assert answer.status == SUCCESS
        left, value, right = machine.get(at, place)
    assert left == right == 77
    return np.frombuffer(answer.outputs[0], dtype)[0] if mode == HOST else value


@pytest.mark.parametrize("letter", LETTERS)
@quickly
@given(n=sizes, incs=st.tuples(increments, increments), mode=modes, is_wide=st.booleans(), seed=seeds)
def test_numbers_of_vectors(
    machine: Machine, letter: str, n: int, incs: tuple[int, int], mode: int, is_wide: bool, seed: int
) -> None:
    """dot, dotu, dotc, nrm2, asum, iamax and iamin."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    x, y = numbers(generator, n, dtype), numbers(generator, n, dtype)
    sizes_of_x = np.abs(x.real) + np.abs(x.imag)
    with machine.arrays(spread(x, incs[0]), spread(y, incs[1]), spread(x, abs(incs[0]))) as (
        at_x,
        at_y,
        at_straight,
    ):
        pair = [n, pointer(at_x), incs[0], pointer(at_y), incs[1]]
        alone = [n, pointer(at_straight), abs(incs[0])]
        dots = {"dot": x @ y} if dtype.kind == "f" else {"dotu": x @ y, "dotc": np.vdot(x, y)}
        for name, wanted in dots.items():
            found = result(machine, f"cublas{letter}{name}_v2", mode, is_wide, pair, dtype)
            assert_close(np.array(found), np.array(wanted), np.sqrt(n))
        for name, wanted in (("nrm2", np.linalg.norm(x)), ("asum", sizes_of_x.sum())):
            found = result(machine, f"cublas{REAL[letter]}{name}_v2", mode, is_wide, alone, real(dtype))
            assert_close(np.array(found), np.array(wanted, real(dtype)), 1)
        index = np.dtype(np.int64 if is_wide else np.int32)
        for name, wanted in (("amax", np.argmax(sizes_of_x)), ("amin", np.argmin(sizes_of_x))):
            assert (
                result(machine, f"cublasI{letter.lower()}{name}_v2", mode, is_wide, alone, index)
                == wanted + 1
            )


def test_a_long_vector_is_summed_in_one_order(machine: Machine) -> None:
    generator = np.random.default_rng(1)
    x = generator.standard_normal(400_000).astype(np.float32)
    with machine.arrays(x) as (at,):
        first, second = (
            result(
                machine,
                "cublasSdot_v2",
                HOST,
                False,
                [len(x), pointer(at), 1, pointer(at), 1],
                np.dtype(np.float32),
            )
            for _ in range(2)
        )
        with blas(machine) as run:
            assert (
                run("cublasSaxpy_v2", len(x), np.float32(1), pointer(at), 1, pointer(at), 1).status == SUCCESS
            )
        np.testing.assert_array_equal(machine.get(at, x), 2 * x)
    assert first == second == np.float32(np.dot(x.astype(np.float64), x.astype(np.float64)))


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_the_norm_of_numbers_whose_squares_are_none(machine: Machine, size: float) -> None:
    x = np.array([3, 4]) * size
    with machine.arrays(x) as (at,):
        found = result(machine, "cublasDnrm2_v2", HOST, False, [2, pointer(at), 1], np.dtype(np.float64))
    assert found == pytest.approx(5 * size, rel=1e-14)


@pytest.mark.parametrize("mode", [HOST, DEVICE])
def test_nothing_has_the_sum_zero_and_no_largest(machine: Machine, mode: int) -> None:
    single = np.dtype(np.float32)
    assert result(machine, "cublasSdot_v2", mode, False, [0, pointer(0), 1, pointer(0), 1], single) == 0
    assert result(machine, "cublasSnrm2_v2", mode, False, [0, pointer(0), 1], single) == 0
    assert result(machine, "cublasSasum_v2", mode, False, [4, pointer(0), -1], single) == 0
    assert result(machine, "cublasIsamax_v2", mode, False, [4, pointer(0), 0], np.dtype(np.int32)) == 0


def test_the_first_of_equals_is_the_largest(machine: Machine) -> None:
    x = np.array([1, -5, 5, 0, 0], np.float32)
    with machine.arrays(x) as (at,):
        arguments = [5, pointer(at), 1]
        assert result(machine, "cublasIsamax_v2", HOST, False, arguments, np.dtype(np.int32)) == 2
        assert result(machine, "cublasIsamin_v2", HOST, False, arguments, np.dtype(np.int32)) == 4


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("mode", [HOST, DEVICE])
def test_vectors_of_named_types(machine: Machine, dtype: type, mode: int) -> None:
    """AxpyEx, ScalEx, DotEx, DotcEx, Nrm2Ex, AsumEx, CopyEx, SwapEx, IamaxEx and RotEx."""
    kind = np.dtype(dtype)
    generator = np.random.default_rng(3)
    base = numbers(generator, 33, np.dtype(np.complex64 if kind.kind == "c" else np.float32))
    x, y = base.astype(kind), base[::-1].astype(kind)
    narrow = kind in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
    compute = np.dtype(np.float32) if narrow else kind
    of, in_ = integer(DATA_TYPES[kind]), integer(DATA_TYPES[compute])
    alpha = np.array(2, compute)

    def close(found: Array, wanted: Array) -> None:
        np.testing.assert_allclose(
            found.astype(compute), wanted.astype(compute), rtol=1e-2 if narrow else 1e-5
        )

    wide_x: Array = x.astype(compute)
    wide_y: Array = y.astype(compute)
    with blas(machine, mode) as run, machine.arrays(x, y) as (at_x, at_y):
        first, second = [pointer(at_x), of, 1], [pointer(at_y), of, 1]
        assert run("cublasAxpyEx", 33, alpha, in_, *first, *second, in_).status == SUCCESS
        close(machine.get(at_y, y), (wide_y + 2 * wide_x).astype(kind))
        assert run("cublasScalEx", 33, alpha, in_, *first, in_).status == SUCCESS
        close(machine.get(at_x, x), 2 * wide_x)
        assert run("cublasCopyEx", 33, *first, *second).status == SUCCESS
        close(machine.get(at_y, y), 2 * wide_x)
        assert run("cublasScalEx", 33, alpha, in_, *second, in_).status == SUCCESS
        assert run("cublasSwapEx", 33, *first, *second).status == SUCCESS
        close(machine.get(at_x, x), 4 * wide_x)
        if kind.kind == "f" and not narrow:
            half = np.array(0.5, compute)
            assert run("cublasRotEx", 33, *first, *second, half, half, in_, in_).status == SUCCESS
            close(machine.get(at_x, x), 3 * wide_x)
    with machine.arrays(x, y) as (at_x, at_y):
        pair = [33, pointer(at_x), of, 1, pointer(at_y), of, 1]
        ending = {"DotEx": wide_x @ wide_y, "DotcEx": np.vdot(wide_x, wide_y)}
        place = np.full(1, 0, kind)
        for name, wanted in ending.items():
            with blas(machine, DEVICE) as run, machine.arrays(place) as (at,):
                assert run(f"cublas{name}", *pair, pointer(at), of, in_).status == SUCCESS
                close(machine.get(at, place), np.array([wanted]))
        small = real(compute)
        sizes_of_x = np.abs(wide_x.real) + np.abs(wide_x.imag)
        for name, wanted in (("Nrm2Ex", np.linalg.norm(wide_x)), ("AsumEx", sizes_of_x.sum())):
            with blas(machine, HOST) as run:
                answer = run(
                    f"cublas{name}", 33, pointer(at_x), of, 1, out(small.itemsize), integer(DATA_TYPES[small]),
                    integer(DATA_TYPES[small]),
                )  # fmt: skip
            assert answer.status == SUCCESS
            close(np.frombuffer(answer.outputs[0], small), np.array([wanted], small))
        with blas(machine, HOST) as run:
            answer = run("cublasIamaxEx", 33, pointer(at_x), of, 1, out(4))
        assert answer.number() == np.argmax(sizes_of_x) + 1


@pytest.mark.parametrize("mode", [HOST, DEVICE])
@pytest.mark.parametrize(("a", "b"), [(3.0, 4.0), (-4.0, 3.0), (0.0, 2.0), (0.0, 0.0), (1.0, 0.0)])
def test_a_rotation_is_made(machine: Machine, mode: int, a: float, b: float) -> None:
    """rotg: c and s of SciPy; a is what (a, b) is turned to."""
    for letter, dtype in LETTERS.items():
        first, second = dtype.type(a), dtype.type(b)
        if dtype.kind == "c":
            first, second = dtype.type(a + 1j), dtype.type(b - 2j)
        place, cosine = np.array([first, second, 7, 7], dtype), np.array([7], real(dtype))
        with blas(machine, mode) as run, machine.arrays(place, cosine) as (at, at_c):
            if mode == HOST:
                parts = [both(place[:1]), both(place[1:2]), both(cosine), both(place[3:])]
                answer = run(f"cublas{letter}rotg_v2", *parts)
                r, s = (np.frombuffer(answer.outputs[index], dtype)[0] for index in (0, 3))
                c = np.frombuffer(answer.outputs[2], cosine.dtype)[0]
            else:
                places = [
                    pointer(at),
                    pointer(at + dtype.itemsize),
                    pointer(at_c),
                    pointer(at + 3 * dtype.itemsize),
                ]
                answer = run(f"cublas{letter}rotg_v2", *places)
                r, _, _, s = machine.get(at, place)
                (c,) = machine.get(at_c, cosine)
            assert answer.status == SUCCESS
        wanted_c, wanted_s = getattr(reference, f"{letter.lower()}rotg")(first, second)
        assert_close(np.array([c, s]), np.array([wanted_c, wanted_s], dtype))
        assert_close(np.array([r]), np.array([c * first + s * second], dtype))


@pytest.mark.parametrize(
    "numbers_of", [(1.0, 2.0, 3.0, 4.0), (2.0, 1.0, 5.0, 0.5), (1.0, 1.0, 1.0, 0.0), (-1.0, 1.0, 1.0, 1.0),
                   (1e10, 1.0, 1.0, 1e-3), (1.0, 1e-9, 1.0, 3e4), (1.0, -2.0, 1.0, 3.0)],
)  # fmt: skip
def test_a_modified_rotation_is_made_and_used(machine: Machine, numbers_of: tuple[float, ...]) -> None:
    """rotmg and rotm in device memory, against SciPy."""
    wanted = np.asarray(reference.drotmg(*numbers_of))
    place = np.array([*numbers_of, 9, 9, 9, 9, 9])
    x, y = np.arange(5.0), np.arange(5.0)[::-1].copy()
    with blas(machine, DEVICE) as run, machine.arrays(place, x, y) as (at, at_x, at_y):
        assert run("cublasDrotmg_v2", *(pointer(at + 8 * i) for i in range(5))).status == SUCCESS
        found = machine.get(at, place)[4:]
        kind = int(found[0])
        assert kind == int(wanted[0])
        # The numbers that a kind leaves out are not written.
        set_there = {-2: [], -1: [1, 2, 3, 4], 0: [2, 3], 1: [1, 4]}[kind]
        np.testing.assert_allclose(found[set_there], wanted[set_there], rtol=1e-13)
        np.testing.assert_array_equal(found[[i for i in range(1, 5) if i not in set_there]], 9)
        arguments = [5, pointer(at_x), 1, pointer(at_y), 1]
        assert run("cublasDrotm_v2", *arguments, pointer(at + 32)).status == SUCCESS
        turned = [machine.get(at_x, x), machine.get(at_y, y)]
    for one, other in zip(turned, reference.drotm(x, y, found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)
    with blas(machine, HOST) as run, machine.arrays(x, y) as (at_x, at_y):
        arguments = [5, pointer(at_x), 1, pointer(at_y), 1]
        assert run("cublasDrotm_v2", *arguments, found).status == SUCCESS
        np.testing.assert_array_equal(machine.get(at_x, x), turned[0])


def test_wrong_arguments(machine: Machine) -> None:
    single = np.float32(1)
    with blas(machine) as run:
        assert run("cublasSaxpy_v2", 4, pointer(0), pointer(0), 1, pointer(0), 1).status == INVALID_VALUE
        assert run("cublasSnrm2_v2", 4, pointer(0), 1, pointer(0)).status == INVALID_VALUE
        assert run("cublasSaxpy_v2", 0, single, pointer(0), 1, pointer(0), 1).status == SUCCESS
        assert run("cublasSscal_v2", 4, single, pointer(0), -1).status == SUCCESS
        integers = integer(DATA_TYPES[np.dtype(np.int8)])
        assert (
            run("cublasScalEx", 4, single, integer(0), pointer(0), integers, 1, integer(0)).status
            == NOT_SUPPORTED
        )
        half = flag(DATA_TYPES[np.dtype(np.float16)])
        assert (
            run(
                "cublasDotEx", 4, pointer(0), half, 1, pointer(0), flag(0), 1, out(4), flag(0), flag(0)
            ).status
            == NOT_SUPPORTED
        )
    no_handle = machine.call(
        LIBRARY, "cublasSscal_v2", pointer(0), integer(1), host(single.reshape(1)), pointer(0), integer(1)
    )
    assert no_handle.status == NOT_INITIALIZED
    assert machine.synchronize() == 0


@contextmanager
def captured(machine: Machine) -> Iterator[int]:
    """A stream whose submissions become a graph."""
    stream = machine.driver("cuStreamCreate", out(8), integer(1)).number()
    assert machine.driver("cuStreamBeginCapture_v2", pointer(stream), integer(0)).status == 0
    try:
        yield stream
    finally:
        machine.driver("cuStreamDestroy_v2", pointer(stream))


def test_results_in_device_memory_are_captured(machine: Machine) -> None:
    """A graph of a dot product and of what is made with it."""
    x, place = np.arange(4, dtype=np.float32), np.zeros(1, np.float32)
    with blas(machine, DEVICE) as run, machine.arrays(x, place) as (at_x, at), captured(machine) as stream:
        assert machine.call(LIBRARY, "cublasSetStream_v2", run.cublas, pointer(stream)).status == SUCCESS
        vector = [pointer(at_x), 1]
        assert run("cublasSdot_v2", 4, *vector, *vector, pointer(at)).status == SUCCESS
        assert run("cublasSscal_v2", 4, pointer(at), *vector).status == SUCCESS
        graph = machine.driver("cuStreamEndCapture", pointer(stream), out(8)).number()
        np.testing.assert_array_equal(machine.get(at_x, x), x)
        made = machine.driver("cuGraphInstantiateWithFlags", out(8), pointer(graph), wide(0)).number()
        assert machine.driver("cuGraphLaunch", pointer(made), pointer(stream)).status == 0
        assert machine.driver("cuStreamSynchronize", pointer(stream)).status == 0
        np.testing.assert_array_equal(machine.get(at_x, x), 14 * x)
        machine.driver("cuGraphExecDestroy", pointer(made))
        machine.driver("cuGraphDestroy", pointer(graph))


def test_a_result_in_host_memory_cannot_be_captured(machine: Machine) -> None:
    """It would have to be waited for; afterwards the handle is as it was."""
    x = np.ones(4, np.float32)
    with blas(machine, HOST) as run, machine.arrays(x) as (at,), captured(machine) as stream:
        assert machine.call(LIBRARY, "cublasSetStream_v2", run.cublas, pointer(stream)).status == SUCCESS
        assert run("cublasSasum_v2", 4, pointer(at), 1, out(4)).status == EXECUTION_FAILED
        machine.driver("cuStreamEndCapture", pointer(stream), out(8))
        answer = run("cublasSasum_v2", 4, pointer(at), 1, out(4))
    assert (answer.status, answer.outputs[0]) == (SUCCESS, np.float32(4).tobytes())
