"""Every matrix product of cuBLAS, against numpy: types, transposes, leading dimensions, batches, scalars, wrong arguments."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries.cublas import (
    DEVICE,
    HOST,
    INVALID_VALUE,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    OPERATIONS,
    SUCCESS,
    call,
    handle,
    random,
)
from tests.libraries.machine import (
    DATA_TYPES,
    Argument,
    Array,
    Machine,
    host,
    integer,
    out,
    pointer,
    wide,
    words,
)

LETTERS: Final = {
    "S": np.dtype(np.float32),
    "D": np.dtype(np.float64),
    "C": np.dtype(np.complex64),
    "Z": np.dtype(np.complex128),
    "H": np.dtype(np.float16),
}
#: Errors of rounding relative to the sum of the products' sizes.
TOLERANCES: Final = {
    np.dtype(np.float64): 1e-13,
    np.dtype(np.complex128): 1e-13,
    np.dtype(np.float32): 1e-5,
    np.dtype(np.complex64): 1e-5,
    np.dtype(np.float16): 2e-3,
    np.dtype(ml_dtypes.bfloat16): 1e-2,
    np.dtype(np.int32): 0,
}
COMPUTE_16F, COMPUTE_32F, COMPUTE_64F, COMPUTE_32I = 64, 68, 70, 72
#: What is multiplied, by what, into what; and what computes it.
TYPES: Final = [
    ((np.float16, np.float16, np.float16), COMPUTE_32F),
    ((np.float16, np.float16, np.float16), COMPUTE_16F),
    ((np.float16, np.float16, np.float32), COMPUTE_32F),
    ((ml_dtypes.bfloat16, ml_dtypes.bfloat16, ml_dtypes.bfloat16), COMPUTE_32F),
    ((ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32), COMPUTE_32F),
    ((np.float32, np.float32, np.float32), COMPUTE_32F),
    ((np.float64, np.float64, np.float64), COMPUTE_64F),
    ((np.complex64, np.complex64, np.complex64), COMPUTE_32F),
    ((np.complex128, np.complex128, np.complex128), COMPUTE_64F),
    ((np.int8, np.int8, np.int32), COMPUTE_32I),
    ((np.int8, np.int8, np.float32), COMPUTE_32F),
]

sizes = st.sampled_from([1, 2, 3, 7, 16, 33, 130, 260])
shapes = st.tuples(sizes, sizes, sizes)
transposes = st.tuples(st.integers(0, 2), st.integers(0, 2))
quickly = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def stored(transpose: int, rows: int, columns: int) -> tuple[int, int]:
    """The shape in memory of a matrix whose operation has `rows` x `columns`."""
    return (rows, columns) if transpose == 0 else (columns, rows)


def exact(array: Array) -> Array:
    kind = "c" if array.dtype.kind == "c" else "f"
    return array.astype(np.complex128 if kind == "c" else np.float64)


def expected(
    a: Array, b: Array, c: Array, transpose: tuple[int, int], alpha: complex, beta: complex
) -> Array:
    left, right = OPERATIONS[transpose[0]](exact(a)), OPERATIONS[transpose[1]](exact(b))
    return alpha * (left @ right) + (beta * exact(c) if beta != 0 else 0)


def assert_close(result: Array, wanted: Array, scale: float) -> None:
    tolerance = TOLERANCES[result.dtype]
    np.testing.assert_allclose(exact(result), wanted, rtol=tolerance, atol=tolerance * scale)


def scalar_of(of_c: np.dtype[Any], compute: int) -> type:
    """The type of alpha and beta."""
    if of_c.kind == "c":
        return of_c.type
    return {COMPUTE_16F: np.float16, COMPUTE_64F: np.float64, COMPUTE_32I: np.int32}.get(compute, np.float32)


@pytest.mark.parametrize("letter", LETTERS)
@quickly
@given(
    shape=shapes,
    transpose=transposes,
    more=st.integers(0, 3),
    beta=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 99),
)
def test_a_product(
    machine: Machine,
    letter: str,
    shape: tuple[int, int, int],
    transpose: tuple[int, int],
    more: int,
    beta: float,
    seed: int,
) -> None:
    """``more``: rows of the matrices in memory that the product does not see."""
    (m, n, k), dtype = shape, LETTERS[letter]
    generator = np.random.default_rng(seed)
    a, b, c = (
        random(generator, (rows + more, columns), dtype)
        for rows, columns in (stored(transpose[0], m, k), stored(transpose[1], k, n), (m, n))
    )
    alpha = 1.5
    name = f"cublas{letter}gemm" + ("" if letter == "H" else "_v2")
    with handle(machine) as cublas, machine.arrays(a, b, c) as (at_a, at_b, at_c):
        status = call(
            machine, name, cublas, integer(transpose[0]), integer(transpose[1]), integer(m), integer(n), integer(k),
            host(np.array(alpha, dtype)), pointer(at_a), integer(a.shape[0]), pointer(at_b), integer(b.shape[0]),
            host(np.array(beta, dtype)), pointer(at_c), integer(c.shape[0]),
        ).status  # fmt: skip
        result = machine.get(at_c, c)
    assert status == SUCCESS
    inner = [array[: array.shape[0] - more] for array in (a, b, c)]
    assert_close(result[:m], expected(*inner, transpose, alpha, beta), np.sqrt(k) + 1)
    np.testing.assert_array_equal(result[m:], c[m:])


@pytest.mark.parametrize(("types", "compute"), TYPES)
@quickly
@given(shape=shapes, transpose=transposes, batch=st.integers(1, 4), seed=st.integers(0, 99))
def test_a_strided_batch_of_any_types(
    machine: Machine, types: tuple[type, type, type], compute: int, shape: tuple[int, int, int],
    transpose: tuple[int, int], batch: int, seed: int,
) -> None:  # fmt: skip
    m, n, k = shape
    of_a, of_b, of_c = (np.dtype(kind) for kind in types)
    generator = np.random.default_rng(seed)
    a, b, c = (
        [random(generator, size, dtype) for _ in range(batch)]
        for size, dtype in (
            (stored(transpose[0], m, k), of_a),
            (stored(transpose[1], k, n), of_b),
            ((m, n), of_c),
        )
    )
    scalar = scalar_of(of_c, compute)
    together = [np.concatenate([array.ravel(order="F") for array in arrays]) for arrays in (a, b, c)]
    with handle(machine) as cublas, machine.arrays(*together) as (at_a, at_b, at_c):
        status = call(
            machine, "cublasGemmStridedBatchedEx", cublas, integer(transpose[0]), integer(transpose[1]), integer(m), integer(n),
            integer(k), host(np.array(2, scalar)), pointer(at_a), integer(DATA_TYPES[of_a]), integer(a[0].shape[0]),
            wide(a[0].size), pointer(at_b), integer(DATA_TYPES[of_b]), integer(b[0].shape[0]), wide(b[0].size),
            host(np.array(1, scalar)), pointer(at_c), integer(DATA_TYPES[of_c]), integer(m), wide(m * n), integer(batch),
            integer(compute), integer(-1),
        ).status  # fmt: skip
        result = machine.get(at_c, together[2])
    assert status == SUCCESS
    for index in range(batch):
        part = result[index * m * n : (index + 1) * m * n].reshape((m, n), order="F")
        assert_close(part, expected(a[index], b[index], c[index], transpose, 2, 1), np.sqrt(k) + 1)


@pytest.mark.parametrize("transpose", [(0, 0), (1, 1)])
@pytest.mark.parametrize(("types", "compute"), TYPES)
def test_a_product_by_zero_reads_neither_factor_and_one_without_beta_no_result(
    machine: Machine, types: tuple[type, type, type], compute: int, transpose: tuple[int, int]
) -> None:
    """What counts for nothing may be NaN, and it may be nowhere."""
    m, n, k = 5, 4, 3
    of_a, of_b, of_c = (np.dtype(kind) for kind in types)
    generator = np.random.default_rng(3)
    a = random(generator, stored(transpose[0], m, k), of_a)
    b = random(generator, stored(transpose[1], k, n), of_b)
    c = random(generator, (m, n), of_c)
    nothing = np.zeros_like(c)
    if of_a.kind != "i":
        a[:], b[:] = np.nan, np.nan
    unread = c.copy(order="F") if of_c.kind == "i" else np.full_like(c, np.nan)
    scalar = scalar_of(of_c, compute)

    def multiply(cublas: Argument, at_a: int, at_b: int, at_c: int, beta: int) -> int:
        return call(
            machine, "cublasGemmEx", cublas, integer(transpose[0]), integer(transpose[1]), integer(m), integer(n), integer(k),
            host(np.array(0, scalar)), pointer(at_a), integer(DATA_TYPES[of_a]), integer(a.shape[0]), pointer(at_b),
            integer(DATA_TYPES[of_b]), integer(b.shape[0]), host(np.array(beta, scalar)), pointer(at_c),
            integer(DATA_TYPES[of_c]), integer(m), integer(compute), integer(-1),
        ).status  # fmt: skip

    with (
        handle(machine) as cublas,
        machine.arrays(a, b, c, unread, c) as (at_a, at_b, at_c, at_unread, at_last),
    ):
        statuses = [
            multiply(cublas, at_a, at_b, at_c, 1),
            multiply(cublas, at_a, at_b, at_unread, 0),
            multiply(cublas, 0, 0, at_last, 1),
        ]
        assert (statuses, machine.synchronize()) == ([SUCCESS] * 3, 0)
        kept, cleared, last = (machine.get(at, c) for at in (at_c, at_unread, at_last))
    np.testing.assert_array_equal(kept, c)
    np.testing.assert_array_equal(cleared, nothing)
    np.testing.assert_array_equal(last, c)


def test_a_batch_by_zero_reads_no_addresses_of_factors(machine: Machine) -> None:
    c = random(np.random.default_rng(4), (3, 3), np.dtype(np.float32))
    with handle(machine) as cublas, machine.arrays(c) as (at_c,):
        with machine.arrays(np.frombuffer(words(at_c), np.uint64)) as (addresses,):
            status = call(
                machine, "cublasSgemmBatched_64", cublas, integer(0), integer(0), wide(3), wide(3), wide(3),
                host(np.zeros(1, np.float32)), pointer(0), wide(3), pointer(0), wide(3), host(np.full(1, 2, np.float32)),
                pointer(addresses), wide(3), wide(1),
            ).status  # fmt: skip
            assert (status, machine.synchronize()) == (SUCCESS, 0)
        np.testing.assert_array_equal(machine.get(at_c, c), 2 * c)


@quickly
@given(shape=shapes, batch=st.integers(1, 5), seed=st.integers(0, 99))
def test_a_batch_of_pointers_with_scalars_in_device_memory(
    machine: Machine, shape: tuple[int, int, int], batch: int, seed: int
) -> None:
    m, n, k = shape
    generator = np.random.default_rng(seed)
    single = np.dtype(np.float32)
    a, b, c = ([random(generator, size, single) for _ in range(batch)] for size in ((m, k), (k, n), (m, n)))
    scalars = np.array([0.25, -1], single)
    with handle(machine, DEVICE) as cublas, machine.arrays(*a, *b, *c, scalars) as addresses:
        of_a, of_b, of_c = (addresses[n * batch : (n + 1) * batch] for n in range(3))
        lists = [np.frombuffer(words(*part), np.uint64) for part in (of_a, of_b, of_c)]
        with machine.arrays(*lists) as (at_a, at_b, at_c):
            status = call(
                machine, "cublasSgemmBatched_64", cublas, integer(0), integer(0), wide(m), wide(n), wide(k),
                pointer(addresses[-1]), pointer(at_a), wide(m), pointer(at_b), wide(k), pointer(addresses[-1] + 4),
                pointer(at_c), wide(m), wide(batch),
            ).status  # fmt: skip
            results = [machine.get(address, like) for address, like in zip(of_c, c, strict=True)]
    assert status == SUCCESS
    for index, result in enumerate(results):
        assert_close(result, expected(a[index], b[index], c[index], (0, 0), 0.25, -1), np.sqrt(k) + 1)


def gemm(machine: Machine, cublas: tuple[str, int], **changed: int) -> int:
    """The status of cublasSgemm of 4 x 4 matrices that are not there, with some arguments changed."""
    of = {"ta": 0, "tb": 0, "m": 4, "n": 4, "k": 4, "lda": 4, "ldb": 4, "ldc": 4} | changed
    scalar = host(np.float32(1).reshape(1))
    return call(
        machine, "cublasSgemm_v2", cublas, integer(of["ta"]), integer(of["tb"]), integer(of["m"]), integer(of["n"]),
        integer(of["k"]), scalar if "alpha" not in changed else pointer(0), pointer(0), integer(of["lda"]), pointer(0),
        integer(of["ldb"]), scalar if "beta" not in changed else pointer(0), pointer(0), integer(of["ldc"]),
    ).status  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [{"m": -1}, {"n": -1}, {"k": -1}, {"lda": 3}, {"ldb": 3}, {"ldc": 3}, {"ta": 3}, {"tb": -1}, {"ta": 1, "lda": 3},
     {"alpha": 0}, {"beta": 0}],
)  # fmt: skip
def test_a_wrong_argument_is_refused_before_anything_is_submitted(
    machine: Machine, wrong: dict[str, int]
) -> None:
    with handle(machine) as cublas:
        assert gemm(machine, cublas, **wrong) == INVALID_VALUE
    assert machine.synchronize() == 0


def test_no_handle_is_no_handle(machine: Machine) -> None:
    assert gemm(machine, pointer(0)) == NOT_INITIALIZED


def test_a_math_mode_is_one_that_there_is(machine: Machine) -> None:
    with handle(machine) as cublas:
        for mode in (0, 1, 2, 3, 4, 8, 16, 16 | 3):
            assert call(machine, "cublasSetMathMode", cublas, integer(mode)).status == SUCCESS
        for mode in (5, 6, 7, 9, 15, 32, 16 | 5, 1 << 20, -1):
            assert call(machine, "cublasSetMathMode", cublas, integer(mode)).status == INVALID_VALUE, mode
        answer = call(machine, "cublasGetMathMode", cublas, out(4))
        assert (answer.status, answer.number()) == (SUCCESS, 16 | 3)


def test_a_workspace_begins_where_256_bytes_begin(machine: Machine) -> None:
    with handle(machine) as cublas, machine.arrays(np.zeros(4096, np.int8)) as (at,):
        for offset, status in ((0, SUCCESS), (256, SUCCESS), (1, INVALID_VALUE), (128, INVALID_VALUE)):
            passed = (pointer(at + offset), wide(1024))
            assert call(machine, "cublasSetWorkspace_v2", cublas, *passed).status == status, offset
        assert call(machine, "cublasSetWorkspace_v2", cublas, pointer(0), wide(0)).status == SUCCESS


def test_an_empty_product_touches_nothing(machine: Machine) -> None:
    with handle(machine) as cublas:
        assert gemm(machine, cublas, m=0) == SUCCESS
        assert gemm(machine, cublas, n=0) == SUCCESS
    assert machine.synchronize() == 0


def test_types_that_no_product_has_are_not_supported(machine: Machine) -> None:
    with handle(machine, HOST) as cublas:
        scalar = host(np.float32(1).reshape(1))
        status = call(
            machine, "cublasGemmEx", cublas, integer(0), integer(0), integer(4), integer(4), integer(4), scalar, pointer(0),
            integer(0), integer(4), pointer(0), integer(2), integer(4), scalar, pointer(0), integer(0), integer(4),
            integer(COMPUTE_32F), integer(-1),
        ).status  # fmt: skip
    assert status == NOT_SUPPORTED
