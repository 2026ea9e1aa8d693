"""A training loop of the math libraries alone, as the text of a program: for tests that move it, or kill it.

Each step draws its input by cuRAND, mixes it by a sparse matrix (cuSPARSE), and goes forward and backward through two layers
(cuBLAS) with an activation, dropout and a softmax (cuDNN). Its numbers depend on every operation, on the random numbers' place
in their sequences and on dropout's states in device memory: one operation that is lost, or executed twice, changes the digest.
"""

from __future__ import annotations

from typing import Final

from gpupool.client.native import native_directory

#: `failed` says, and ends, when a function of a library or of the driver does not succeed.
TRAINING: Final = """
import ctypes, hashlib, sys
import numpy as np

cuda, blas, dnn, random, sparse = (
    ctypes.CDLL(name)
    for name in ("libcuda.so.1", "libcublas.so.13", "libcudnn.so.9", "libcurand.so.10", "libcusparse.so.12")
)
P, size, wide = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64

def failed(name, status):
    print(f"{name} returned {status}", file=sys.stderr, flush=True)
    sys.exit(3)

def call(library, name, *arguments):
    status = getattr(library, name)(*arguments)
    if status != 0:
        failed(name, status)

def made(library, name, *more):
    handle = P()
    call(library, name, ctypes.byref(handle), *more)
    return handle

def f(value):
    return ctypes.byref(ctypes.c_float(value))

call(cuda, "cuInit", 0)
call(cuda, "cuCtxSetCurrent", made(cuda, "cuDevicePrimaryCtxRetain", 0))

def memory(array):
    address = P()
    call(cuda, "cuMemAlloc_v2", ctypes.byref(address), size(array.nbytes))
    call(cuda, "cuMemcpyHtoD_v2", address, P(array.ctypes.data), size(array.nbytes))
    return address

def read(address, like):
    out = np.empty_like(like)
    call(cuda, "cuMemcpyDtoH_v2", P(out.ctypes.data), address, size(out.nbytes))
    return out

ROWS, INPUT, HIDDEN, CLASSES = 64, 32, 48, 8
generator = np.random.default_rng(3)
def some(*shape):
    return (generator.standard_normal(shape) / 4).astype(np.float32)
def none(*shape):
    return memory(np.zeros(shape, np.float32))

first_like, second_like = some(INPUT, HIDDEN), some(HIDDEN, CLASSES)
first, second = memory(first_like), memory(second_like)
targets = memory(np.eye(CLASSES, dtype=np.float32)[generator.integers(0, CLASSES, ROWS)])
drawn, x, dx = none(ROWS, INPUT), none(ROWS, INPUT), none(ROWS, INPUT)
h, a, kept, dkept, da, dh = (none(ROWS, HIDDEN) for _ in range(6))
z, p = none(ROWS, CLASSES), none(ROWS, CLASSES)

blas_handle, dnn_handle = made(blas, "cublasCreate_v2"), made(dnn, "cudnnCreate")
sparse_handle = made(sparse, "cusparseCreate")
numbers = made(random, "curandCreateGenerator", 161)
call(random, "curandSetPseudoRandomGeneratorSeed", numbers, ctypes.c_ulonglong(11))

def tensor(columns):
    descriptor = made(dnn, "cudnnCreateTensorDescriptor")
    call(dnn, "cudnnSetTensor4dDescriptor", descriptor, 0, 0, ROWS, columns, 1, 1)
    return descriptor
hidden, classes = tensor(HIDDEN), tensor(CLASSES)
relu = made(dnn, "cudnnCreateActivationDescriptor")
call(dnn, "cudnnSetActivationDescriptor", relu, 1, 0, ctypes.c_double(0))
dropout, bytes_ = made(dnn, "cudnnCreateDropoutDescriptor"), size()
call(dnn, "cudnnDropoutGetStatesSize", dnn_handle, ctypes.byref(bytes_))
states = memory(np.zeros(bytes_.value, np.uint8))
call(dnn, "cudnnSetDropoutDescriptor", dropout, dnn_handle, ctypes.c_float(0.25), states, bytes_, ctypes.c_ulonglong(5))
call(dnn, "cudnnDropoutGetReserveSpaceSize", hidden, ctypes.byref(bytes_))
reserve = memory(np.zeros(bytes_.value, np.uint8))

# Each row is mixed with the next one.
offsets = memory(np.arange(0, 2 * ROWS + 1, 2, dtype=np.int32))
columns = memory(np.sort(np.stack([np.arange(ROWS), (np.arange(ROWS) + 1) % ROWS], 1).astype(np.int32), 1))
mixing = made(sparse, "cusparseCreateCsr", wide(ROWS), wide(ROWS), wide(2 * ROWS), offsets, columns,
              memory(np.full(2 * ROWS, 0.5, np.float32)), 2, 2, 0, 0)
from_, into = (made(sparse, "cusparseCreateDnMat", wide(ROWS), wide(INPUT), wide(INPUT), m, 0, 2) for m in (drawn, x))

def times(ta, tb, m, n, k, alpha, left, lda, right, ldb, beta, out, ldc):
    call(blas, "cublasSgemm_v2", blas_handle, ta, tb, m, n, k, f(alpha), left, lda, right, ldb, f(beta), out, ldc)

def step():
    call(random, "curandGenerateNormal", numbers, drawn, size(ROWS * INPUT), ctypes.c_float(0), ctypes.c_float(1))
    call(sparse, "cusparseSpMM", sparse_handle, 0, 0, f(1), mixing, from_, f(0), into, 0, 0, None)
    times(0, 0, HIDDEN, ROWS, INPUT, 1, first, HIDDEN, x, INPUT, 0, h, HIDDEN)
    call(dnn, "cudnnActivationForward", dnn_handle, relu, f(1), hidden, h, f(0), hidden, a)
    call(dnn, "cudnnDropoutForward", dnn_handle, dropout, hidden, a, hidden, kept, reserve, bytes_)
    times(0, 0, CLASSES, ROWS, HIDDEN, 1, second, CLASSES, kept, HIDDEN, 0, z, CLASSES)
    call(dnn, "cudnnSoftmaxForward", dnn_handle, 1, 0, f(1), classes, z, f(0), classes, p)
    call(blas, "cublasSaxpy_v2", blas_handle, ROWS * CLASSES, f(-1), targets, 1, p, 1)
    times(1, 0, HIDDEN, ROWS, CLASSES, 1, second, CLASSES, p, CLASSES, 0, dkept, HIDDEN)
    times(0, 1, CLASSES, HIDDEN, ROWS, -0.01, p, CLASSES, kept, HIDDEN, 1, second, CLASSES)
    call(dnn, "cudnnDropoutBackward", dnn_handle, dropout, hidden, dkept, hidden, da, reserve, bytes_)
    call(dnn, "cudnnActivationBackward", dnn_handle, relu, f(1), hidden, a, hidden, da, hidden, h, f(0), hidden, dh)
    times(0, 1, HIDDEN, INPUT, ROWS, -0.01, dh, HIDDEN, x, INPUT, 1, first, HIDDEN)

def digest():
    weights = [read(first, first_like), read(second, second_like)]
    assert all(np.isfinite(each).all() for each in weights)
    assert not np.array_equal(weights[0], first_like)
    return hashlib.sha256(b"".join(each.tobytes() for each in weights)).hexdigest()
"""

#: Trains until something fails, or for ever. Says what busy_client.py says; without threads it takes two steps and leaves.
BUSY_TRAINING: Final = (
    TRAINING
    + """
cuda.gpupool_last_message.restype = ctypes.c_char_p

def failed(name, status):
    print(f"error {status} {(cuda.gpupool_last_message() or b'').decode()} ({name})", flush=True)
    sys.exit(0)

step()
step()
digest()
if sys.argv[2:] == ["0"]:
    sys.exit(0)
print("busy", flush=True)
while True:
    for _ in range(7):
        step()
    call(cuda, "cuCtxSynchronize")
"""
)


def loader_path() -> str:
    """The client runtime's folder and the math libraries', for LD_LIBRARY_PATH."""
    native = native_directory()
    return f"{native / 'client'}:{native / 'libraries'}"
