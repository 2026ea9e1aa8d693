"""cuSPARSE's handles and descriptors: what they were given comes back, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from tests.libraries import cusparse
from tests.libraries.conftest import WITHOUT_LIBRARIES
from tests.libraries.cusparse import (
    INVALID_VALUE,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    SUCCESS,
    Layout,
    call,
    handle,
    placed,
)
from tests.libraries.machine import Machine, host, integer, out, pointer, wide

pytestmark = WITHOUT_LIBRARIES
DENSE = np.diag(np.arange(1, 5)).astype(np.float64)


def test_a_handle_keeps_its_stream_and_where_scalars_lie(machine: Machine) -> None:
    with handle(machine) as own:
        assert call(machine, "cusparseSetStream", own, pointer(1)).status == SUCCESS
        assert call(machine, "cusparseGetStream", own, out(8)).number() == 1
        assert call(machine, "cusparseSetPointerMode", own, integer(1)).status == SUCCESS
        assert call(machine, "cusparseGetPointerMode", own, out(4)).number() == 1
        assert call(machine, "cusparseSetPointerMode", own, integer(2)).status == INVALID_VALUE
        assert call(machine, "cusparseGetVersion", own, out(4)).number() >= 12_000
    assert call(machine, "cusparseCreate", pointer(0)).status == INVALID_VALUE
    for function in ("cusparseDestroy", "cusparseSetStream", "cusparseGetVersion"):
        assert call(machine, function, pointer(0), pointer(0)).status == NOT_INITIALIZED


@pytest.mark.parametrize("format", ["Csr", "Csc", "Coo"])
def test_a_sparse_matrix_says_what_it_was_made_of(machine: Machine, format: str) -> None:
    with placed(machine, Layout(format, np.int64, 1), DENSE) as (matrix, addresses):
        kinds = [out(4)] * (3 if format == "Coo" else 4)
        for function in (f"cusparse{format}Get", f"cusparseConst{format}Get"):
            answer = call(machine, function, matrix, *[out(8)] * 6, *kinds)
            assert answer.status == SUCCESS
            numbers = [answer.number(index) for index in range(len(answer.outputs))]
            assert numbers == [4, 4, 4, *addresses, *[3] * (len(kinds) - 2), 1, 1]
        assert (
            call(machine, "cusparseSpMatGetFormat", matrix, out(4)).number()
            == {"Csr": 1, "Csc": 2, "Coo": 3}[format]
        )
        assert call(machine, "cusparseSpMatGetIndexBase", matrix, out(4)).number() == 1
        others = [address + 8 for address in addresses]
        assert call(machine, f"cusparse{format}SetPointers", matrix, *map(pointer, others)).status == SUCCESS
        assert call(machine, "cusparseSpMatGetValues", matrix, out(8)).number() == others[2]
        assert call(machine, "cusparseSpMatSetValues", matrix, pointer(addresses[2])).status == SUCCESS
        assert call(machine, "cusparseConstSpMatGetValues", matrix, out(8)).number() == addresses[2]
        other = "Coo" if format != "Coo" else "Csr"
        assert (
            call(machine, f"cusparse{other}SetPointers", matrix, *map(pointer, others)).status
            == INVALID_VALUE
        )


def test_the_attributes_of_a_triangle(machine: Machine) -> None:
    with placed(machine, Layout(), DENSE) as (matrix, _):
        for attribute in (0, 1):
            for value in (1, 0):
                number = host(np.array(value, np.int32))
                arguments = integer(attribute), number, wide(4)
                assert call(machine, "cusparseSpMatSetAttribute", matrix, *arguments).status == SUCCESS
                answer = call(
                    machine, "cusparseSpMatGetAttribute", matrix, integer(attribute), out(4), wide(4)
                )
                assert answer.number() == value
        two = host(np.array(2, np.int32))
        assert (
            call(machine, "cusparseSpMatSetAttribute", matrix, integer(0), two, wide(4)).status
            == INVALID_VALUE
        )
        assert (
            call(machine, "cusparseSpMatSetAttribute", matrix, integer(2), two, wide(4)).status
            == INVALID_VALUE
        )
        assert (
            call(machine, "cusparseSpMatSetAttribute", matrix, integer(0), two, wide(8)).status
            == INVALID_VALUE
        )


def test_dense_matrices_and_vectors_say_what_they_were_made_of(machine: Machine) -> None:
    like = np.zeros((3, 5), np.float32, order="F")
    with machine.arrays(like) as (address,):
        with cusparse.matrix(machine, address, like) as matrix:
            answer = call(machine, "cusparseDnMatGet", matrix, *[out(8)] * 4, out(4), out(4))
            assert [answer.number(index) for index in range(6)] == [3, 5, 3, address, 0, 1]
            assert (
                call(machine, "cusparseDnMatSetStridedBatch", matrix, integer(2), wide(15)).status == SUCCESS
            )
            answer = call(machine, "cusparseDnMatGetStridedBatch", matrix, out(4), out(8))
            assert (answer.number(0), answer.number(1)) == (2, 15)
            assert (
                call(machine, "cusparseDnMatSetStridedBatch", matrix, integer(0), wide(15)).status
                == INVALID_VALUE
            )
            assert call(machine, "cusparseDnVecGetValues", matrix, out(8)).status == INVALID_VALUE
        with cusparse.vector(machine, address, like) as vector:
            answer = call(machine, "cusparseDnVecGet", vector, out(8), out(8), out(4))
            assert [answer.number(index) for index in range(3)] == [15, address, 0]


def test_descriptors_of_what_is_none_are_refused(machine: Machine) -> None:
    with machine.arrays(DENSE) as (address,):
        here = pointer(address)

        def csr(
            rows: int = 4,
            entries: int = 4,
            offsets: int = address,
            index: int = 2,
            base: int = 0,
            kind: int = 0,
        ) -> int:
            shape = wide(rows), wide(4), wide(entries)
            kinds = integer(index), integer(2), integer(base), integer(kind)
            return call(
                machine, "cusparseCreateCsr", out(8), *shape, pointer(offsets), here, here, *kinds
            ).status

        assert csr() == SUCCESS
        assert csr(rows=-1) == csr(entries=-1) == csr(offsets=0) == csr(base=2) == INVALID_VALUE
        assert csr(index=1) == csr(kind=3) == NOT_SUPPORTED

        def dense(rows: int = 3, leading: int = 3, order: int = 1, kind: int = 0) -> int:
            shape = wide(rows), wide(2), wide(leading)
            return call(
                machine, "cusparseCreateDnMat", out(8), *shape, here, integer(kind), integer(order)
            ).status

        assert dense() == dense(leading=2, order=2) == SUCCESS
        assert dense(leading=2) == dense(rows=-1) == dense(order=3) == INVALID_VALUE
        assert dense(kind=10) == NOT_SUPPORTED
    assert call(machine, "cusparseDestroySpMat", pointer(0)).status == INVALID_VALUE


def test_the_description_of_the_functions_by_type(machine: Machine) -> None:
    made = call(machine, "cusparseCreateMatDescr", out(8))
    description = pointer(made.number())
    for name, last in (("MatType", 3), ("MatFillMode", 1), ("MatDiagType", 1), ("MatIndexBase", 1)):
        assert call(machine, f"cusparseSet{name}", description, integer(last)).status == SUCCESS
        assert call(machine, f"cusparseGet{name}", description).status == last
        assert call(machine, f"cusparseSet{name}", description, integer(last + 1)).status == INVALID_VALUE
    assert call(machine, "cusparseDestroyMatDescr", description).status == SUCCESS
