"""How NVIDIA's cuBLAS and cuBLASLt are asked for products: with all that the program has said of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from gpupool.client.child_environment import environment

from tests.libraries.conftest import machine_of
from tests.libraries.cublas import SUCCESS, call, handle
from tests.libraries.cublaslt import (
    AUXILIARY,
    AUXILIARY_LARGEST,
    AUXILIARY_LEADING,
    AUXILIARY_SCALE,
    AUXILIARY_STRIDE,
    AUXILIARY_TYPE,
    BGRADB,
    BIAS,
    COMPUTE_32F,
    COMPUTE_32I,
    EPILOGUE,
    FAST_SUMS,
    GELU_AUX,
    MULTIPROCESSORS,
    REDUCTIONS,
    RELU,
    RELU_AUX,
    SCALE_A,
    SCALE_B,
    SINGLE,
    TRANSPOSE_A,
    WITH_BIAS,
    Product,
    product_of,
    turned_shapes,
)
from tests.libraries.machine import DATA_TYPES, Machine, host, integer, pointer, wide
from tests.support.runtime_share import share_of_a_worker

SIZE: Final = 16
HALF, BYTE = np.dtype(np.float16), np.dtype(np.int8)
E4M3: Final = np.dtype(ml_dtypes.float8_e4m3fn)
#: Attributes of a preference, of cublasLtMatmulPreferenceAttributes_t.
ALIGNMENT_A, ALIGNMENT_B, ALIGNMENT_C, ALIGNMENT_D = 5, 6, 7, 8
#: cublasMath_t.
PEDANTIC, BY_TF32, WHOLE_SUMS = 2, 3, 16
#: cublasComputeType_t.
COMPUTE_32F_PEDANTIC, COMPUTE_32F_FAST_TF32 = 69, 77


@dataclass(slots=True)
class Recorded:
    """A program on a share whose worker gives products to the stand-in, which writes them into a file."""

    machine: Machine
    file: Path

    def lines(self) -> list[tuple[str, int, int]]:
        """What it was told since the last question: of what, which attribute, its value."""
        assert self.machine.synchronize() == SUCCESS
        lines = [line.split() for line in self.file.read_text().splitlines()] if self.file.exists() else []
        self.file.unlink(missing_ok=True)
        return [(what, int(attribute), int(value)) for what, attribute, value in lines]

    def told(self, what: str) -> dict[int, int]:
        """The attributes of one kind, of the last product."""
        return {attribute: value for kind, attribute, value in self.lines() if kind == what}


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    libraries, file = tmp_path / "libraries", tmp_path / "products"
    libraries.mkdir()
    source = Path(__file__).with_name("recording_cublas.c")
    for name in ("libcublas.so.13", "libcublasLt.so.13"):
        subprocess.run(["cc", "-shared", "-fPIC", "-o", libraries / name, source], check=True)
    shares = share_of_a_worker(tmp_path, GPUPOOL_MATH_LIBRARIES=str(libraries), RECORDED_PRODUCTS=str(file))
    try:
        share = next(shares)
        for machine in machine_of(environment(None, share.file, {}, software=True)):
            yield Recorded(machine, file)
    finally:
        next(shares, None)


@contextmanager
def product(
    machine: Machine, dtype: np.dtype[Any], result: np.dtype[Any] | None = None, compute: int = COMPUTE_32F
) -> Iterator[Product]:
    """Of square matrices, the first of which is transposed."""
    of_d = dtype if result is None else result
    shapes = turned_shapes(SIZE, SIZE, SIZE, dtype, dtype, of_d, of_d)
    with product_of(machine, shapes, compute) as run:
        run.set(TRANSPOSE_A, np.array(1, np.int32))
        yield run


def multiply(run: Product, *offsets: int, in_place: bool = False, algorithm: bytes | None = None) -> None:
    """The matrices lie so many bytes behind what memory begins with."""
    memory = [np.zeros(SIZE * SIZE * 8 + 256, np.uint8)] * 4
    with run.machine.arrays(*memory) as addresses:
        at = [address + offset for address, offset in zip(addresses, offsets or (0,) * 4, strict=True)]
        if in_place:
            at[2] = at[3]
        one = host(np.ones(1, SINGLE))
        assert run.multiply(one, dict(zip("abcd", at, strict=True)), algorithm=algorithm) == SUCCESS
        assert run.machine.synchronize() == SUCCESS


def test_the_library_hears_how_the_matrices_lie(recorded: Recorded) -> None:
    with product(recorded.machine, SINGLE) as run:
        multiply(run, 4, 0, 16, 24)
    told = recorded.told("preference")
    assert [told[which] for which in (ALIGNMENT_A, ALIGNMENT_B, ALIGNMENT_C, ALIGNMENT_D)] == [4, 256, 16, 8]
    assert REDUCTIONS not in told


@pytest.mark.parametrize("offset", [16, 4])
def test_a_bias_counts_where_d_is_written_and_lies_where_it_can_be_read(
    recorded: Recorded, offset: int
) -> None:
    bias = np.zeros(2 * SIZE, SINGLE)
    with product(recorded.machine, SINGLE) as run, recorded.machine.arrays(bias) as (address,):
        run.set(EPILOGUE, np.array(WITH_BIAS, np.uint32))
        run.set(BIAS, np.array(address + offset, np.uint64))
        multiply(run)
        lines = recorded.lines()
    (at,) = (value for what, attribute, value in lines if (what, attribute) == ("product", BIAS))
    (alignment,) = (
        value for what, attribute, value in lines if (what, attribute) == ("preference", ALIGNMENT_D)
    )
    assert at % 16 == 0
    assert (at == address + offset) == (offset == 16)
    assert alignment == min(at & -at, 256)


@pytest.mark.parametrize("offset", [16, 4])
def test_the_gradient_of_a_bias_is_made_where_it_can_be_written(recorded: Recorded, offset: int) -> None:
    memory = np.zeros(64, SINGLE)
    with product(recorded.machine, SINGLE) as run, recorded.machine.arrays(memory) as (address,):
        run.set(EPILOGUE, np.array(BGRADB, np.uint32))
        run.set(BIAS, np.array(address + offset, np.uint64))
        multiply(run)
        told = recorded.told("product")
    assert told[EPILOGUE] == BGRADB
    assert told[BIAS] % 16 == 0
    assert (told[BIAS] == address + offset) == (offset == 16)


@pytest.mark.parametrize("epilogue", [RELU_AUX, GELU_AUX])
def test_the_library_hears_of_an_auxiliary_matrix_wherever_it_lies(recorded: Recorded, epilogue: int) -> None:
    auxiliary = np.zeros(128 * SIZE + 256, SINGLE)
    wanted = [("question", 8), ("multiply", 1), ("multiply", 3)]
    with product(recorded.machine, SINGLE) as run, recorded.machine.arrays(auxiliary) as (address,):
        run.set(EPILOGUE, np.array(epilogue, np.uint32))
        run.set(AUXILIARY_LEADING, np.array(128, np.int64))
        run.set(AUXILIARY_STRIDE, np.array(128 * SIZE, np.int64))
        # Elsewhere, the same algorithm computes it. One that takes fewer bytes at once is asked for.
        for offset, asked in ((0, wanted), (256, wanted[2:]), (8, wanted)):
            run.set(AUXILIARY, np.array(address + offset, np.uint64))
            multiply(run)
            lines = recorded.lines()
            told = {attribute: value for what, attribute, value in lines if what == "product"}
            assert told[AUXILIARY] == address + offset
            assert (told[AUXILIARY_LEADING], told[AUXILIARY_STRIDE]) == (128, 128 * SIZE)
            assert AUXILIARY_TYPE not in told
            assert [(what, value) for what, _, value in lines if what in {"question", "multiply"}] == asked
            alignment = {attribute: value for what, attribute, value in lines if what == "preference"}
            assert alignment[ALIGNMENT_D] == (offset if offset == 8 else 256)


@pytest.mark.parametrize(("dtype", "is_told"), [(HALF, True), (E4M3, False)])
def test_a_type_of_arguments_that_is_not_that_of_d_is_passed_on(
    recorded: Recorded, dtype: np.dtype[Any], is_told: bool
) -> None:
    """A scale and the largest one are those of arguments of fp8."""
    machine, shapes = recorded.machine, turned_shapes(SIZE, SIZE, SIZE, E4M3, E4M3, E4M3, HALF)
    with product_of(machine, shapes) as run, machine.arrays(np.zeros(1024, SINGLE)) as (address,):
        places = {AUXILIARY: address}
        if dtype == E4M3:
            places |= {AUXILIARY_SCALE: address + 2048, AUXILIARY_LARGEST: address + 2052}
        run.set(TRANSPOSE_A, np.array(1, np.int32))
        run.set(EPILOGUE, np.array(GELU_AUX, np.uint32))
        run.set(AUXILIARY_LEADING, np.array(SIZE, np.int64))
        run.set(AUXILIARY_TYPE, np.array(DATA_TYPES[dtype], np.int32))
        for attribute, place in places.items():
            run.set(attribute, np.array(place, np.uint64))
        multiply(run)
        told = recorded.told("product")
    assert {attribute: told[attribute] for attribute in places} == places
    assert (told.get(AUXILIARY_TYPE) == DATA_TYPES[dtype]) == is_told
    assert (AUXILIARY_SCALE in told) == (AUXILIARY_LARGEST in told) == (dtype == E4M3)


def test_the_next_algorithm_computes_what_the_first_refuses_and_is_kept(recorded: Recorded) -> None:
    scales = np.ones(2 * 64, SINGLE)
    with product(recorded.machine, E4M3, SINGLE) as run, recorded.machine.arrays(scales) as (at,):
        for offset in (0, 256):  # factors elsewhere change nothing
            run.set(SCALE_A, np.array(at + offset, np.uint64))
            run.set(SCALE_B, np.array(at + offset, np.uint64))
            multiply(run)
        lines = recorded.lines()
    asked = [(what, value) for what, _, value in lines if what in {"question", "multiply"}]
    assert asked == [("question", 8), ("multiply", 1), ("multiply", 3), ("multiply", 3)]


def test_settings_of_a_product_are_passed_on(recorded: Recorded) -> None:
    with product(recorded.machine, E4M3, SINGLE) as run:
        multiply(run)
        told = recorded.told("product")
        assert FAST_SUMS not in told and MULTIPROCESSORS not in told
        run.set(FAST_SUMS, np.array(1, np.int8))
        run.set(MULTIPROCESSORS, np.array(7, np.int32))
        multiply(run)
        told = recorded.told("product")
    assert (told[FAST_SUMS], told[MULTIPROCESSORS]) == (1, 7)


def test_the_schemes_by_which_sums_are_added_up_come_with_the_algorithm(recorded: Recorded) -> None:
    with product(recorded.machine, HALF) as run:
        multiply(run, algorithm=run.algorithm(3))
        assert recorded.told("preference")[REDUCTIONS] == 3
        # cuBLAS has a setting for this mask, and none for others.
        multiply(run, in_place=True, algorithm=run.algorithm(3))
        assert recorded.lines() == [("math", 0, WHOLE_SUMS), ("gemm", 0, COMPUTE_32F), ("math", 0, 0)]
        multiply(run, in_place=True, algorithm=run.algorithm(1))
        assert recorded.told("preference")[REDUCTIONS] == 1
        multiply(run, in_place=True, algorithm=run.algorithm(7))
        assert recorded.lines() == [("gemm", 0, COMPUTE_32F)]


def test_a_product_is_to_be_given_what_a_library_may_want(recorded: Recorded) -> None:
    """XLA gives nothing where the answer says nothing."""
    with product(recorded.machine, HALF) as run:
        assert [run.workspace_wanted(most) for most in (0, 1 << 20, 1 << 32)] == [0, 1 << 20, 32 << 20]


@pytest.mark.parametrize(
    ("mode", "dtype", "compute"),
    [
        (0, HALF, COMPUTE_32F),
        (WHOLE_SUMS, HALF, COMPUTE_32F),
        (PEDANTIC, HALF, COMPUTE_32F_PEDANTIC),
        (PEDANTIC | WHOLE_SUMS, HALF, COMPUTE_32F_PEDANTIC),
        (BY_TF32, SINGLE, COMPUTE_32F_FAST_TF32),
        (BY_TF32, HALF, COMPUTE_32F),  # halves have no such products
    ],
)
def test_the_math_mode_of_a_handle_is_that_of_its_products_alone(
    recorded: Recorded, mode: int, dtype: np.dtype[Any], compute: int
) -> None:
    machine, wanted = recorded.machine, [("gemm", 0, compute)]
    if mode & WHOLE_SUMS:
        wanted = [("math", 0, WHOLE_SUMS), *wanted, ("math", 0, 0)]
    kind, one = integer(DATA_TYPES[dtype]), host(np.ones(1, SINGLE))
    with handle(machine) as cublas, machine.arrays(np.zeros(SIZE * SIZE, dtype)) as (at,):
        assert call(machine, "cublasSetMathMode", cublas, integer(mode)).status == SUCCESS
        for _ in range(2):
            status = call(
                machine, "cublasGemmEx", cublas, integer(0), integer(0), integer(SIZE), integer(SIZE), integer(SIZE), one,
                pointer(at), kind, integer(SIZE), pointer(at), kind, integer(SIZE), one, pointer(at), kind, integer(SIZE),
                integer(COMPUTE_32F), integer(-1),
            ).status  # fmt: skip
            assert status == SUCCESS
        assert recorded.lines() == wanted * 2


def test_a_handle_may_leave_multiprocessors_to_others(recorded: Recorded) -> None:
    machine, one = recorded.machine, host(np.ones(1, SINGLE))
    with handle(machine) as cublas, machine.arrays(np.zeros(SIZE * SIZE, SINGLE)) as (at,):
        assert call(machine, "cublasSetSmCountTarget", cublas, integer(5)).status == SUCCESS
        status = call(
            machine, "cublasSgemm_v2_64", cublas, integer(0), integer(0), wide(SIZE), wide(SIZE), wide(SIZE), one,
            pointer(at), wide(SIZE), pointer(at), wide(SIZE), one, pointer(at), wide(SIZE),
        ).status  # fmt: skip
        assert status == SUCCESS
        assert recorded.lines() == [
            ("multiprocessors", 0, 5),
            ("gemm", 0, COMPUTE_32F),
            ("multiprocessors", 0, 0),
        ]


@pytest.mark.parametrize(
    ("dtype", "result", "compute"), [(E4M3, SINGLE, COMPUTE_32F), (BYTE, BYTE, COMPUTE_32I)]
)
def test_what_cublas_has_no_product_of_is_left_to_cublaslt(
    recorded: Recorded, dtype: np.dtype[Any], result: np.dtype[Any], compute: int
) -> None:
    with product(recorded.machine, dtype, result, compute) as run:
        multiply(run, in_place=True)
    lines = recorded.lines()
    assert ("multiply", 0, 3) in lines
    assert not [line for line in lines if line[0] == "gemm"]


def test_what_only_cublaslt_can_do_is_left_to_it(recorded: Recorded) -> None:
    with product(recorded.machine, SINGLE) as run:
        multiply(run, in_place=True)
        assert recorded.lines() == [("gemm", 0, COMPUTE_32F)]
        run.set(EPILOGUE, np.array(RELU, np.uint32))
        multiply(run, in_place=True)
        assert recorded.told("product")[EPILOGUE] == RELU
