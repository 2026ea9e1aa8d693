"""What cuBLASLt does after a product, training's part of it too, against numpy; and cuRAND's MRG32K3A.

A combination that is refused or far from numpy has its own line in the result, and the others go on.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable
from ctypes import (
    byref,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_ulonglong,
    c_void_p,
)
from functools import partial
from typing import Any

import numpy as np

from tests.gpu_check.libraries_by_hand import Refused, check, cuda, device, host
from tests.gpu_check.libraries_by_hand import library as library_of

MAJORS = {"cublasLt": (13, 12), "curand": (10,)}
M, N, K = 128, 64, 96
WORKSPACE = 32 << 20
#: cublasComputeType_t: without TF32.
COMPUTE_32F = 68
#: cudaDataType_t, and how far from numpy, as a part of the largest number.
TYPES = {"f32": (0, 1e-4), "f16": (2, 5e-3), "bf16": (14, 3e-2)}
#: Whether A and B lie transposed in memory.
LAYOUTS = {"TN": (1, 0), "NN": (0, 0), "NT": (0, 1)}
#: cublasLtEpilogue_t.
RELU, BIAS, DRELU, BGRAD, GELU, DGELU, AUX, BGRADA, BGRADB = 2, 4, 8, 16, 32, 64, 128, 256, 512
EPILOGUES = {
    "BIAS": BIAS,
    "RELU": RELU,
    "RELU_BIAS": RELU | BIAS,
    "GELU": GELU,
    "GELU_BIAS": GELU | BIAS,
    "RELU_AUX": RELU | AUX,
    "RELU_AUX_BIAS": RELU | AUX | BIAS,
    "GELU_AUX": GELU | AUX,
    "GELU_AUX_BIAS": GELU | AUX | BIAS,
    "DRELU": DRELU | AUX,
    "DRELU_BGRAD": DRELU | AUX | BGRAD,
    "DGELU": DGELU | AUX,
    "DGELU_BGRAD": DGELU | AUX | BGRAD,
    "BGRADA": BGRADA,
    "BGRADB": BGRADB,
}
#: Of cublasLtMatmulDescAttributes_t.
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS_POINTER, AUX_POINTER, AUX_LEADING = 3, 4, 7, 8, 11, 12
#: Of cublasLtMatmulPreferenceAttributes_t.
MOST_WORKSPACE = 1
MRG32K3A = 121
random = np.random.default_rng(7)


class Far(Exception):
    """A result that is not numpy's."""


class Algorithm(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


def outcome(part: Callable[[], object]) -> object:
    try:
        return part()
    except (Refused, Far) as error:
        return str(error)


def stored(numbers: Any, kind: str) -> Any:
    """As they lie in memory, in column order; those of bfloat16, which numpy has not, as their bits."""
    flat = np.asarray(numbers).ravel(order="F")
    if kind != "bf16":
        return flat.astype(np.float32 if kind == "f32" else np.float16)
    bits = flat.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(flat), 0x7FC0, rounded).astype(np.uint16)


def loaded(memory: Any, kind: str, *shape: int) -> Any:
    """The numbers of such memory."""
    if kind == "bf16":
        memory = (memory.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return memory.astype(np.float64).reshape(shape, order="F")


def drawn(kind: str, *shape: int, scale: float = 1) -> Any:
    """Numbers that the type has."""
    return loaded(stored(scale * random.standard_normal(shape), kind), kind, *shape)


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_slope(x: Any) -> Any:
    t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)


def near(what: str, found: Any, wanted: Any, tolerance: float) -> None:
    error, largest = float(np.max(np.abs(found - wanted))), float(np.max(np.abs(wanted)))
    if not error <= tolerance * largest:  # the error may be no number
        raise Far(f"far: max error {error:.2g} of {largest:.2g} in {what}")


class Products:
    """Products of one type, and what follows them."""

    def __init__(self, lib: Any, handle: c_void_p, workspace: c_void_p) -> None:
        self._lib, self._handle, self._workspace = lib, handle, workspace
        self._preference = self._made("cublasLtMatmulPreferenceCreate")
        self._set("MatmulPreference", self._preference, MOST_WORKSPACE, c_uint64(WORKSPACE))

    def _made(self, function: str, *arguments: Any) -> c_void_p:
        made = c_void_p()
        check(getattr(self._lib, function)(byref(made), *arguments), function)
        return made

    def _set(self, kind: str, of: c_void_p, attribute: int, value: Any) -> None:
        function = f"cublasLt{kind}SetAttribute"
        status = getattr(self._lib, function)(of, attribute, byref(value), c_size_t(ctypes.sizeof(value)))
        check(status, f"{function} of {attribute}")

    def _layout(self, kind: str, rows: int, columns: int) -> c_void_p:
        sizes = c_uint64(rows), c_uint64(columns), c_int64(rows)
        return self._made("cublasLtMatrixLayoutCreate", TYPES[kind][0], *sizes)

    def _multiply(
        self, kind: str, turned: tuple[int, int], attributes: dict[int, Any], memory: list[c_void_p]
    ) -> None:
        """With the algorithm that the library proposes. ``memory``: of A, B and D."""
        product = self._made("cublasLtMatmulDescCreate", COMPUTE_32F, TYPES["f32"][0])
        for attribute, value in attributes.items():
            self._set("MatmulDesc", product, attribute, value)
        left = self._layout(kind, *((K, M) if turned[0] else (M, K)))
        right = self._layout(kind, *((N, K) if turned[1] else (K, N)))
        result = self._layout(kind, M, N)
        algorithm, count = Algorithm(), c_int()
        asked = "cublasLtMatmulAlgoGetHeuristic"
        status = self._lib.cublasLtMatmulAlgoGetHeuristic(
            *(self._handle, product, left, right, result, result, self._preference),
            *(1, byref(algorithm), byref(count)),
        )
        check(status, asked)
        check(algorithm.state, f"the answer of {asked}")
        if count.value != 1:
            raise Refused(f"{count.value} answers of {asked}")
        a, b, d = memory
        one, zero = c_float(1), c_float(0)
        status = self._lib.cublasLtMatmul(
            *(self._handle, product, byref(one), a, left, b, right, byref(zero), d, result, d, result),
            *(byref(algorithm), self._workspace, c_size_t(WORKSPACE), None),
        )
        check(status, "cublasLtMatmul")
        check(cuda.cuCtxSynchronize(), "cuCtxSynchronize")
        for layout in (left, right, result):
            self._lib.cublasLtMatrixLayoutDestroy(layout)
        self._lib.cublasLtMatmulDescDestroy(product)

    def result(self, epilogue: int, kind: str, turned: tuple[int, int]) -> str:
        """Whether D, and what is stored beside it, are numpy's."""
        a, b = drawn(kind, M, K, scale=K**-0.5), drawn(kind, K, N)
        bias, arguments = drawn(kind, M), drawn(kind, M, N)
        mask = random.integers(0, 2, (M, N)) == 1
        z = a @ b + (bias[:, None] if epilogue & BIAS else 0)
        d = z
        if epilogue & RELU:
            d = np.maximum(z, 0)
        elif epilogue & GELU:
            d = gelu(z)
        elif epilogue & DRELU:
            d = np.where(mask, z, 0)
        elif epilogue & DGELU:
            d = z * gelu_slope(arguments)
        sums = a.sum(1) if epilogue & BGRADA else b.sum(0) if epilogue & BGRADB else d.sum(1)

        # What is to be written holds no numbers before.
        memory = [stored(a.T if turned[0] else a, kind), stored(b.T if turned[1] else b, kind)]
        nowhere = stored(np.full((M, N), np.nan), kind)
        vector = stored(bias if epilogue & BIAS else np.full(len(sums), np.nan), kind)
        if epilogue & (RELU | DRELU):  # one bit for each row, of which the first is the lowest of a byte
            auxiliary = np.packbits(mask, axis=0, bitorder="little").ravel(order="F")
        else:
            auxiliary = stored(arguments, kind) if epilogue & DGELU else nowhere
        addresses = [device(each) for each in (*memory, nowhere, vector, auxiliary)]
        try:
            attributes: dict[int, Any] = {
                TRANSPOSE_A: c_int32(turned[0]),
                TRANSPOSE_B: c_int32(turned[1]),
                EPILOGUE: c_uint32(epilogue),
            }
            if epilogue & (BIAS | BGRAD | BGRADA | BGRADB):
                attributes[BIAS_POINTER] = addresses[3]
            if epilogue & AUX:
                attributes |= {AUX_POINTER: addresses[4], AUX_LEADING: c_int64(M)}
            self._multiply(kind, turned, attributes, addresses[:3])
            tolerance = TYPES[kind][1]
            near("D", loaded(host(addresses[2], nowhere), kind, M, N), d, tolerance)
            if epilogue & (BGRAD | BGRADA | BGRADB):
                near("the sums", loaded(host(addresses[3], vector), kind, len(sums)), sums, tolerance)
            if epilogue & AUX and epilogue & GELU:
                near("the arguments", loaded(host(addresses[4], auxiliary), kind, M, N), z, tolerance)
            elif epilogue & AUX and epilogue & RELU:
                bits = host(addresses[4], auxiliary).reshape((M // 8, N), order="F")
                wrong = (np.unpackbits(bits, axis=0, bitorder="little") == 1) != (z > 0)
                # Rounding may have changed the sign of those next to 0.
                wrong &= np.abs(z) > tolerance * np.max(np.abs(z))
                if wrong.any():
                    raise Far(f"far: {wrong.sum()} of {wrong.size} bits of the mask")
        finally:
            for address in addresses:
                cuda.cuMemFree_v2(address)
        return "ok"


def products() -> dict[str, object]:
    """Each epilogue, of each type and layout."""
    lib, handle = library_of("cublasLt", MAJORS["cublasLt"]), c_void_p()
    check(lib.cublasLtCreate(byref(handle)), "cublasLtCreate")
    of = Products(lib, handle, device(np.zeros(WORKSPACE, np.uint8)))
    found = {}
    for kind in TYPES:
        for layout, turned in LAYOUTS.items():
            for name, epilogue in EPILOGUES.items():
                found[f"{name} {kind} {layout}"] = outcome(partial(of.result, epilogue, kind, turned))
    check(lib.cublasLtDestroy(handle), "cublasLtDestroy")
    return found


def drawn_twice(lib: Any, function: str, dtype: type[Any]) -> str:
    """The hash of what two calls give."""
    generator, numbers, found = c_void_p(), np.zeros(100_000, dtype), hashlib.sha256()
    check(lib.curandCreateGenerator(byref(generator), MRG32K3A), "curandCreateGenerator")
    check(
        lib.curandSetPseudoRandomGeneratorSeed(generator, c_ulonglong(1234)),
        "curandSetPseudoRandomGeneratorSeed",
    )
    for _ in range(2):
        into = device(numbers)
        check(getattr(lib, function)(generator, into, c_size_t(numbers.size)), function)
        found.update(host(into, numbers).tobytes())
    check(lib.curandDestroyGenerator(generator), "curandDestroyGenerator")
    return found.hexdigest()


def rand() -> dict[str, object]:
    """MRG32K3A's bits and uniform numbers, of more than its 81920 subsequences."""
    lib = library_of("curand", MAJORS["curand"])
    return {
        "bits": outcome(lambda: drawn_twice(lib, "curandGenerate", np.uint32)),
        "uniform": outcome(lambda: drawn_twice(lib, "curandGenerateUniform", np.float32)),
        "uniform doubles": outcome(lambda: drawn_twice(lib, "curandGenerateUniformDouble", np.float64)),
    }


check(cuda.cuInit(0), "cuInit")
context = c_void_p()
check(cuda.cuDevicePrimaryCtxRetain(byref(context), 0), "cuDevicePrimaryCtxRetain")
check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
parts = {"products": products, "mrg32k3a": rand}
print(json.dumps({"result": {name: outcome(part) for name, part in parts.items()}}))
