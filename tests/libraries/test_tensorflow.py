"""Unmodified TensorFlow on the software GPU, alone and on a share: what it computes equals what it computes on the CPU."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from gpupool.client.child_environment import environment, software_gpu_environment
from gpupool.client.native import native_directory

from tests.libraries.framework_run import found_by, python_of
from tests.support.runtime_share import share_of_a_worker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PROGRAM: Final = Path(__file__).with_name("tensorflow_program.py")
#: An interpreter with TensorFlow.
PYTHON_VARIABLE: Final = "GPUPOOL_TENSORFLOW_PYTHON"
SHARE_MIB: Final = 768
#: With a worker that gives operations to libraries it has not been tried.
WAYS: Final = ["alone", "pool"]
#: Relative to the largest number, by a word of the check's name.
TOLERANCES: Final = {"bfloat16": 1e-2, "float16": 2e-3, "float64": 1e-13, "fit": 1e-4}
OTHERWISE: Final = 2e-5
CHECKS: Final = [
    "matmul float32", "matmul float64", "matmul float16", "matmul bfloat16", "matmul complex64", "matmul transposed",
    "matmul of batches", "einsum", "bias and activation",
    "conv2d", "conv2d with strides", "conv2d without padding", "conv2d dilated", "conv2d padded by hand",
    "conv2d of groups", "depthwise", "conv2d_transpose", "conv3d", "max pool", "average pool", "pool of volumes",
    "batch norm in training", "batch norm of known statistics", "response normalisation", "resize",
    "exp", "log1p", "sin", "tanh", "sigmoid", "erf", "lgamma", "rsqrt", "acos", "softplus", "round",
    "softmax", "cross entropy", "reductions", "cumulative sums", "sort", "where", "embeddings", "segments", "dropout",
    "random numbers of a seed",
    "solve", "solve batches", "cholesky", "triangular solve", "inverse", "determinant", "singular values",
    "singular vectors", "eigenvalues", "qr", "fft", "fft2d", "sparse product",
    "sparse product of sparse matrices",
    "tridiagonal solve with pivoting", "tridiagonal solve without pivoting",
    "LSTM", "GRU", "tf.function", "XLA element by element", "XLA matmul", "XLA conv2d",
    "fit MLP", "fit CNN", "fit CNN with XLA",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ran:
    """What the program found, and what TensorFlow wrote beside it."""

    way: str
    errors: dict[str, Any]
    gibibyte: str
    log: str


def run(way: str, python: str, variables: dict[str, str]) -> Ran:
    found, log = found_by(python, PROGRAM, variables, 1700)
    return Ran(way, found["errors"], found["gibibyte"], log)


@pytest.fixture(scope="module", params=WAYS)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    python = python_of(PYTHON_VARIABLE, "TensorFlow")
    way: str = request.param
    if way == "alone":
        return run(way, python, software_gpu_environment(native_directory(), os.environ))
    for share in share_of_a_worker(tmp_path_factory.mktemp("share"), share_mib=SHARE_MIB):
        return run(way, python, environment(None, share.file, os.environ, software=True, preload=True))
    raise AssertionError("unreachable")


@pytest.mark.parametrize("check", CHECKS)
def test_it_computes_what_the_cpu_does(ran: Ran, check: str) -> None:
    tolerance = next((bound for word, bound in TOLERANCES.items() if word in check.split()), OTHERWISE)
    assert isinstance(ran.errors[check], float), ran.errors[check]
    assert ran.errors[check] <= tolerance


def test_every_check_ran(ran: Ran) -> None:
    assert sorted(ran.errors) == sorted(CHECKS)


def test_it_has_the_memory_of_its_device_or_share(ran: Ran) -> None:
    assert ran.gibibyte == ("room" if ran.way == "alone" else "exhausted")


def test_it_registers_the_device_without_a_complaint(ran: Ran) -> None:
    """TensorFlow's own lines of errors begin with an E and the time; the last that are told belong to the gibibyte."""
    before = ran.log.partition("Created device")[0]
    assert "Created device" in ran.log
    assert not [line for line in before.splitlines() if line.startswith("E0")], before
