"""cuBLAS, cuDNN, cuFFT, cuRAND, cuSOLVER and cuSPARSE by their C interfaces, against numpy.

Results of two libraries, or of two algorithms of one, differ by rounding. So their distance from numpy's is compared, and the
bits of cuRAND's Philox, which NVIDIA documents.
"""

from __future__ import annotations

import hashlib
import json
from ctypes import byref, c_double, c_float, c_int, c_size_t, c_ulonglong, c_void_p
from typing import Any

import numpy as np

from tests.gpu_check.libraries_by_hand import check, cuda, device, host
from tests.gpu_check.libraries_by_hand import library as library_of

MAJORS = {
    "cublas": (13, 12), "cudnn": (9,), "cufft": (12, 11), "curand": (10,), "cusolver": (12, 11), "cusparse": (12,)
}  # fmt: skip
SINGLE_PRECISION = 1e-4
random = np.random.default_rng(7)


def near(found: Any, wanted: Any) -> bool:
    return bool(np.max(np.abs(found - wanted)) <= SINGLE_PRECISION * np.max(np.abs(wanted)))


def normal(*shape: int) -> Any:
    return np.asfortranarray(random.standard_normal(shape).astype(np.float32))


def blas() -> dict[str, bool]:
    """Level 3, 2 and 1, a solution, and batched LU as PyTorch and JAX call it."""
    lib, handle = library_of("cublas", MAJORS["cublas"]), c_void_p()
    check(lib.cublasCreate_v2(byref(handle)), "cublasCreate")
    one, zero, n = c_float(1), c_float(0), 96
    a, b, c = normal(n, n), normal(n, n), normal(n, n)
    da, db, dc = device(a), device(b), device(c)
    found = {}
    check(
        lib.cublasSgemm_v2(handle, 0, 1, n, n, n, byref(one), da, n, db, n, byref(zero), dc, n), "cublasSgemm"
    )
    found["gemm"] = near(host(dc, c), a @ b.T)
    check(lib.cublasSgemv_v2(handle, 1, n, n, byref(one), da, n, db, 1, byref(zero), dc, 1), "cublasSgemv")
    found["gemv"] = near(host(dc, c)[:, 0], a.T @ b[:, 0])
    check(lib.cublasSsymm_v2(handle, 0, 1, n, n, byref(one), da, n, db, n, byref(zero), dc, n), "cublasSsymm")
    found["symm"] = near(host(dc, c), (np.triu(a) + np.triu(a, 1).T) @ b)
    check(lib.cublasSsyrk_v2(handle, 0, 0, n, n, byref(one), da, n, byref(zero), dc, n), "cublasSsyrk")
    found["syrk"] = near(np.tril(host(dc, c)), np.tril(a @ a.T))
    check(lib.cublasSgeam(handle, 1, 0, n, n, byref(one), da, n, byref(one), db, n, dc, n), "cublasSgeam")
    found["geam"] = near(host(dc, c), a.T + b)
    result = c_float()
    check(lib.cublasSdot_v2(handle, n * n, da, 1, db, 1, byref(result)), "cublasSdot")
    found["dot"] = abs(result.value - float(np.sum(a * b, dtype=np.float64))) < 1e-2
    triangle = np.asfortranarray(np.triu(a) + 30 * np.eye(n, dtype=np.float32))
    check(lib.cublasStrsm_v2(handle, 0, 1, 0, 0, n, n, byref(one), device(triangle), n, db, n), "cublasStrsm")
    found["trsm"] = near(triangle @ host(db, b), b)
    matrix = np.asfortranarray(a + 30 * np.eye(n, dtype=np.float32))
    of_matrix = device(matrix)
    matrices = device(np.array([of_matrix.value], np.uint64))
    pivots, info = np.zeros(n, np.int32), np.full(1, -1, np.int32)
    dpivots, dinfo = device(pivots), device(info)
    check(lib.cublasSgetrfBatched(handle, n, matrices, n, dpivots, dinfo, 1), "cublasSgetrfBatched")
    factors, rows = host(of_matrix, matrix), np.arange(n)
    for i, row in enumerate(host(dpivots, pivots) - 1):
        rows[[i, row]] = rows[[row, i]]
    lower = np.tril(factors, -1) + np.eye(n, dtype=np.float32)
    found["getrf"] = near(lower @ np.triu(factors), matrix[rows]) and not host(dinfo, info).any()
    check(lib.cublasDestroy_v2(handle), "cublasDestroy")
    return found


def descriptor(lib: Any, kind: str) -> c_void_p:
    made = c_void_p()
    check(getattr(lib, f"cudnnCreate{kind}Descriptor")(byref(made)), f"cudnnCreate{kind}Descriptor")
    return made


def tensor(lib: Any, shape: tuple[int, int, int, int]) -> c_void_p:
    made = descriptor(lib, "Tensor")
    check(lib.cudnnSetTensor4dDescriptor(made, 0, 0, *shape), "cudnnSetTensor4dDescriptor")
    return made


def dnn() -> dict[str, bool]:
    """A convolution, softmax, pooling and batch normalisation."""
    lib, handle = library_of("cudnn", MAJORS["cudnn"]), c_void_p()
    check(lib.cudnnCreate(byref(handle)), "cudnnCreate")
    one, zero, found = c_float(1), c_float(0), {}
    x = random.standard_normal((2, 3, 8, 8)).astype(np.float32)
    w = random.standard_normal((4, 3, 3, 3)).astype(np.float32)
    y = np.zeros((2, 4, 8, 8), np.float32)
    dx, dw, dy = device(x), device(w), device(y)
    of_x, of_y, filters, conv = (
        tensor(lib, (2, 3, 8, 8)),
        tensor(lib, (2, 4, 8, 8)),
        descriptor(lib, "Filter"),
        descriptor(lib, "Convolution"),
    )
    check(lib.cudnnSetFilter4dDescriptor(filters, 0, 0, 4, 3, 3, 3), "cudnnSetFilter4dDescriptor")
    check(
        lib.cudnnSetConvolution2dDescriptor(conv, 1, 1, 1, 1, 1, 1, 1, 0), "cudnnSetConvolution2dDescriptor"
    )
    # The algorithm that takes no workspace.
    check(
        lib.cudnnConvolutionForward(
            handle, byref(one), of_x, dx, filters, dw, conv, 0, None, c_size_t(0), byref(zero), of_y, dy
        ),
        "cudnnConvolutionForward",
    )
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    result = np.einsum("nchwij,kcij->nkhw", windows, w)
    found["convolution"] = near(host(dy, y), result)
    check(
        lib.cudnnSoftmaxForward(handle, 1, 1, byref(one), of_y, dy, byref(zero), of_y, dy),
        "cudnnSoftmaxForward",
    )
    powers = np.exp(result - result.max(1, keepdims=True))
    found["softmax"] = near(host(dy, y), powers / powers.sum(1, keepdims=True))
    pooling, pooled = descriptor(lib, "Pooling"), np.zeros((2, 3, 4, 4), np.float32)
    check(lib.cudnnSetPooling2dDescriptor(pooling, 0, 1, 2, 2, 0, 0, 2, 2), "cudnnSetPooling2dDescriptor")
    dpooled = device(pooled)
    check(
        lib.cudnnPoolingForward(
            handle, pooling, byref(one), of_x, dx, byref(zero), tensor(lib, (2, 3, 4, 4)), dpooled
        ),
        "cudnnPoolingForward",
    )
    found["pooling"] = near(host(dpooled, pooled), x.reshape(2, 3, 4, 2, 4, 2).max((3, 5)))
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    mean, variance = device(zeros), device(ones)
    normalised = device(np.zeros_like(x))
    check(
        lib.cudnnBatchNormalizationForwardTraining(
            handle, 1, byref(one), byref(zero), of_x, dx, of_x, normalised, tensor(lib, (1, 3, 1, 1)),
            device(ones), device(zeros), c_double(0.1), mean, variance, c_double(1e-5), None, None,
        ),
        "cudnnBatchNormalizationForwardTraining",
    )  # fmt: skip
    centred = x - x.mean((0, 2, 3), keepdims=True)
    found["batch normalisation"] = near(
        host(normalised, x), centred / np.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5)
    )
    response = descriptor(lib, "LRN")
    check(
        lib.cudnnSetLRNDescriptor(response, 3, c_double(0.5), c_double(0.75), c_double(2)),
        "cudnnSetLRNDescriptor",
    )
    check(
        lib.cudnnLRNCrossChannelForward(
            handle, response, 0, byref(one), of_x, dx, byref(zero), of_x, normalised
        ),
        "cudnnLRNCrossChannelForward",
    )
    squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    around = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    found["response normalisation"] = near(host(normalised, x), x / (2 + 0.5 / 3 * around) ** 0.75)
    found |= dropout(lib, handle)
    check(lib.cudnnDestroy(handle), "cudnnDestroy")
    return found


def dropout(lib: Any, handle: c_void_p) -> dict[str, bool]:
    """Elements are left out at random, and the gradient leaves out the same ones."""
    size, made = c_size_t(), descriptor(lib, "Dropout")
    check(lib.cudnnDropoutGetStatesSize(handle, byref(size)), "cudnnDropoutGetStatesSize")
    states = device(np.zeros(size.value, np.uint8))
    check(
        lib.cudnnSetDropoutDescriptor(made, handle, c_float(0.25), states, size, c_ulonglong(5)),
        "cudnnSetDropoutDescriptor",
    )
    x = np.ones((4, 8, 32, 32), np.float32)
    of_x = tensor(lib, (4, 8, 32, 32))
    check(lib.cudnnDropoutGetReserveSpaceSize(of_x, byref(size)), "cudnnDropoutGetReserveSpaceSize")
    reserve, dx, dy = device(np.zeros(size.value, np.uint8)), device(x), device(x)
    results = []
    for _ in range(2):
        check(lib.cudnnDropoutForward(handle, made, of_x, dx, of_x, dy, reserve, size), "cudnnDropoutForward")
        results.append(host(dy, x))
    gradient = device(x)
    check(
        lib.cudnnDropoutBackward(handle, made, of_x, dx, of_x, gradient, reserve, size),
        "cudnnDropoutBackward",
    )
    left_out = results[1] == 0
    return {
        "dropout": bool(abs(left_out.mean() - 0.25) < 0.02 and near(results[1], (1 - left_out) / 0.75)),
        "dropout goes on": bool((results[0] != results[1]).any()),
        "gradient of dropout": bool((host(gradient, x) == results[1]).all()),
    }


def fft() -> dict[str, bool]:
    """One and two dimensions, complex and real; one line that is long."""
    lib, found = library_of("cufft", MAJORS["cufft"]), {}
    for name, shape in (("1d", (1000,)), ("2d", (32, 48)), ("long", (1 << 17,))):
        plan = c_int()
        sizes = (c_int * len(shape))(*shape)
        check(
            lib.cufftPlanMany(byref(plan), len(shape), sizes, None, 1, 0, None, 1, 0, 0x29, 1),
            "cufftPlanMany",
        )
        x = (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(np.complex64)
        dx, dy = device(x), device(np.zeros_like(x))
        check(lib.cufftExecC2C(plan, dx, dy, -1), "cufftExecC2C")
        found[name] = near(host(dy, x), np.fft.fftn(x))
        check(lib.cufftDestroy(plan), "cufftDestroy")
    plan, real = c_int(), random.standard_normal((6, 256)).astype(np.float32)
    check(lib.cufftPlan1d(byref(plan), 256, 0x2A, 6), "cufftPlan1d")
    half = device(np.zeros((6, 129), np.complex64))
    check(lib.cufftExecR2C(plan, device(real), half), "cufftExecR2C")
    found["real"] = near(host(half, np.zeros((6, 129), np.complex64)), np.fft.rfft(real))
    return found


def rand() -> dict[str, object]:
    """The bits of a documented generator, from two calls."""
    lib, generator = library_of("curand", MAJORS["curand"]), c_void_p()
    check(lib.curandCreateGenerator(byref(generator), 161), "curandCreateGenerator")
    check(
        lib.curandSetPseudoRandomGeneratorSeed(generator, c_ulonglong(1234)),
        "curandSetPseudoRandomGeneratorSeed",
    )
    bits, found = np.zeros(1 << 16, np.uint32), hashlib.sha256()
    for _ in range(2):
        into = device(bits)
        check(lib.curandGenerate(generator, into, c_size_t(bits.size)), "curandGenerate")
        found.update(host(into, bits).tobytes())
    numbers = np.zeros(1 << 16, np.float32)
    into = device(numbers)
    check(
        lib.curandGenerateNormal(generator, into, c_size_t(numbers.size), c_float(2), c_float(3)),
        "curandGenerateNormal",
    )
    drawn = host(into, numbers)
    return {
        "philox": found.hexdigest(),
        "normal": bool(abs(drawn.mean() - 2) < 0.1 and abs(drawn.std() - 3) < 0.1),
    }


def solver() -> dict[str, bool]:
    """A factor, and eigenvalues with their vectors, of one symmetric matrix."""
    lib, handle, size = library_of("cusolver", MAJORS["cusolver"]), c_void_p(), c_int()
    check(lib.cusolverDnCreate(byref(handle)), "cusolverDnCreate")
    order, info, found = 96, np.zeros(1, np.int32), {}
    half = random.standard_normal((order, order))
    full = half @ half.T + order * np.eye(order)
    a, told = device(full), device(info)
    check(
        lib.cusolverDnDpotrf_bufferSize(handle, 0, order, a, order, byref(size)),
        "cusolverDnDpotrf_bufferSize",
    )
    work = device(np.zeros(size.value))
    check(lib.cusolverDnDpotrf(handle, 0, order, a, order, work, size, told), "cusolverDnDpotrf")
    factor = np.tril(host(a, full).T)
    found["cholesky"] = not host(told, info).any() and near(factor @ factor.T, full)
    a, w = device(full), device(np.zeros(order))
    check(
        lib.cusolverDnDsyevd_bufferSize(handle, 1, 0, order, a, order, w, byref(size)),
        "cusolverDnDsyevd_bufferSize",
    )
    work = device(np.zeros(size.value))
    check(lib.cusolverDnDsyevd(handle, 1, 0, order, a, order, w, work, size, told), "cusolverDnDsyevd")
    values, vectors = host(w, np.zeros(order)), host(a, full).T
    found["eigenvalues"] = not host(told, info).any() and near(vectors * values @ vectors.T, full)
    check(lib.cusolverDnDestroy(handle), "cusolverDnDestroy")
    return found


def sparse() -> dict[str, bool]:
    """Tridiagonal systems."""
    lib, handle, size = library_of("cusparse", MAJORS["cusparse"]), c_void_p(), c_size_t()
    check(lib.cusparseCreate(byref(handle)), "cusparseCreate")
    order, columns = 200, 3
    below, main, above = (random.standard_normal(order) for _ in range(3))
    main += 6
    below[0] = above[-1] = 0
    full = np.diag(main) + np.diag(below[1:], -1) + np.diag(above[:-1], 1)
    sides = np.asfortranarray(random.standard_normal((order, columns)))
    db, diagonals = device(sides), [device(each) for each in (below, main, above)]
    check(
        lib.cusparseDgtsv2_bufferSizeExt(handle, order, columns, *diagonals, db, order, byref(size)),
        "cusparseDgtsv2_bufferSizeExt",
    )
    work = device(np.zeros(max(size.value, 1), np.uint8))
    check(lib.cusparseDgtsv2(handle, order, columns, *diagonals, db, order, work), "cusparseDgtsv2")
    found = {"tridiagonal": near(full @ host(db, sides), sides)}
    check(lib.cusparseDestroy(handle), "cusparseDestroy")
    return found


check(cuda.cuInit(0), "cuInit")
context = c_void_p()
check(cuda.cuDevicePrimaryCtxRetain(byref(context), 0), "cuDevicePrimaryCtxRetain")
check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
parts = {"blas": blas, "dnn": dnn, "fft": fft, "rand": rand, "solver": solver, "sparse": sparse}
print(json.dumps({"result": {name: part() for name, part in parts.items()}}))
