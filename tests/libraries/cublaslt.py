"""cuBLASLt by its descriptors: what the tests of its products share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from tests.libraries.cublas import SUCCESS
from tests.libraries.machine import DATA_TYPES, Argument, Array, Machine, host, integer, out, pointer, wide

LIBRARY: Final = "libcublasLt.so.13"
SINGLE: Final = np.dtype(np.float32)
#: cublasComputeType_t.
COMPUTE_16F, COMPUTE_32F, COMPUTE_32I = 64, 68, 72
#: Attributes of a product, of cublasLtMatmulDescAttributes_t.
POINTER_MODE, TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS = 2, 3, 4, 7, 8
BIAS_STRIDE, AUXILIARY, AUXILIARY_LEADING, AUXILIARY_STRIDE = 10, 11, 12, 13
ALPHA_STRIDE, MULTIPROCESSORS, SCALE_A, SCALE_B, SCALE_D, LARGEST_D, FAST_SUMS = 14, 15, 17, 18, 20, 21, 25
AUXILIARY_TYPE, AUXILIARY_SCALE, AUXILIARY_LARGEST, BIAS_TYPE = 22, 23, 24, 26
SCALE_MODE_A, SCALE_MODE_B = 31, 32
#: Attributes of a layout, of cublasLtMatrixLayoutAttribute_t.
ORDER, LEADING, BATCH, STRIDE, PLANE_OFFSET = 1, 4, 5, 6, 7
#: Attributes of a preference, of cublasLtMatmulPreferenceAttributes_t.
REDUCTIONS: Final = 3
WORKSPACE: Final = 1
#: cublasLtEpilogue_t.
RELU, WITH_BIAS, GELU = 2, 4, 32
RELU_AUX, GELU_AUX, DRELU, DGELU = RELU | 128, GELU | 128, 8 | 128, 64 | 128
#: Together with a gradient: that of the bias, too.
BGRAD: Final = 16
BGRADA, BGRADB = 256, 512
#: How many bytes cublasLtMatmulHeuristicResult_t and the algorithm at its beginning have.
RESULT_BYTES, ALGORITHM_BYTES = 96, 64


class Shape(NamedTuple):
    """A matrix in column order, as it lies in memory."""

    dtype: np.dtype[Any]
    rows: int
    columns: int
    leading: int


@dataclass(slots=True)
class Product:
    """D = alpha A B + beta C, as descriptors say it."""

    machine: Machine
    lt: Argument
    product: Argument
    layouts: dict[str, Argument] = field(default_factory=dict)

    def set(self, attribute: int, value: Array) -> None:
        """An attribute of the product."""
        set_attribute(self.machine, "MatmulDesc", self.product, attribute, value)

    def set_layout(self, name: str, attribute: int, value: Array) -> None:
        set_attribute(self.machine, "MatrixLayout", self.layouts[name], attribute, value)

    def multiply(
        self, alpha: Argument, addresses: Mapping[str, int], beta: float = 0, algorithm: bytes | None = None
    ) -> int:
        """The status of cublasLtMatmul."""
        at = {name: (pointer(address), self.layouts[name]) for name, address in addresses.items()}
        return self.machine.call(
            LIBRARY, "cublasLtMatmul", self.lt, self.product, alpha, *at["a"], *at["b"],
            host(np.full(1, beta, SINGLE)), *at["c"], *at["d"], pointer(0) if algorithm is None else host(algorithm),
            pointer(0), wide(0), pointer(0),
        ).status  # fmt: skip

    def heuristic(self) -> int:
        """The status of the question how to compute it."""
        return self._ask(pointer(0))[0]

    def algorithm(self, reductions: int) -> bytes:
        """The answer, where sums may be added up by these schemes alone."""
        return self._preferring(REDUCTIONS, np.array(reductions, np.uint32))[:ALGORITHM_BYTES]

    def workspace_wanted(self, most: int) -> int:
        """The workspace that is to be given, where there is so much."""
        result = self._preferring(WORKSPACE, np.array(most, np.uint64))
        return int.from_bytes(result[ALGORITHM_BYTES : ALGORITHM_BYTES + 8], "little")

    def _preferring(self, attribute: int, value: Array) -> bytes:
        preference = made(self.machine, "cublasLtMatmulPreferenceCreate")
        set_attribute(self.machine, "MatmulPreference", preference, attribute, value)
        status, result = self._ask(preference)
        self.machine.call(LIBRARY, "cublasLtMatmulPreferenceDestroy", preference)
        assert status == SUCCESS
        return result

    def _ask(self, preference: Argument) -> tuple[int, bytes]:
        answer = self.machine.call(
            LIBRARY, "cublasLtMatmulAlgoGetHeuristic", self.lt, self.product, *(self.layouts[name] for name in "abcd"),
            preference, integer(1), out(RESULT_BYTES), out(4),
        )  # fmt: skip
        return answer.status, answer.outputs[0]


def set_attribute(machine: Machine, kind: str, descriptor: Argument, attribute: int, value: Array) -> None:
    passed = (descriptor, integer(attribute), host(value), wide(value.nbytes))
    assert machine.call(LIBRARY, f"cublasLt{kind}SetAttribute", *passed).status == SUCCESS


def made(machine: Machine, function: str, *arguments: Argument) -> Argument:
    answer = machine.call(LIBRARY, function, out(8), *arguments)
    assert answer.status == SUCCESS
    return pointer(answer.number())


@contextmanager
def product_of(
    machine: Machine,
    shapes: Mapping[str, Shape],
    compute: int = COMPUTE_32F,
    scalar: np.dtype[Any] = SINGLE,
) -> Iterator[Product]:
    """One without attributes. ``scalar``: the type of alpha and beta."""
    lt = made(machine, "cublasLtCreate")
    of = Product(
        machine, lt, made(machine, "cublasLtMatmulDescCreate", integer(compute), integer(DATA_TYPES[scalar]))
    )
    try:
        for name, shape in shapes.items():
            sizes = (wide(shape.rows), wide(shape.columns), wide(shape.leading))
            of.layouts[name] = made(
                machine, "cublasLtMatrixLayoutCreate", integer(DATA_TYPES[shape.dtype]), *sizes
            )
        yield of
    finally:
        for layout in of.layouts.values():
            machine.call(LIBRARY, "cublasLtMatrixLayoutDestroy", layout)
        machine.call(LIBRARY, "cublasLtMatmulDescDestroy", of.product)
        machine.call(LIBRARY, "cublasLtDestroy", lt)


def turned_shapes(
    m: int, n: int, k: int, left: np.dtype[Any], right: np.dtype[Any], result: np.dtype[Any], c: np.dtype[Any]
) -> dict[str, Shape]:
    """Of a product whose A is transposed: the terms of a sum lie together, as devices want those of fp8."""
    return {
        "a": Shape(left, k, m, k),
        "b": Shape(right, k, n, k),
        "c": Shape(c, m, n, m),
        "d": Shape(result, m, n, m),
    }
