"""Unmodified JAX on the software GPU, alone and on a share: what it computes equals what it computes on the CPU."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from gpupool.client.child_environment import environment, software_gpu_environment
from gpupool.client.native import native_directory

from tests.libraries.conftest import WAYS, worker_variables
from tests.libraries.framework_run import found_by, python_of
from tests.support.runtime_share import share_of_a_worker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAM: Final = Path(__file__).with_name("jax_program.py")
#: An interpreter with JAX and its CUDA plug-in.
PYTHON_VARIABLE: Final = "GPUPOOL_JAX_PYTHON"
SHARE_MIB: Final = 768
#: Relative to the largest number, by a word of the check's name.
TOLERANCES: Final = {"bfloat16": 1e-2, "float16": 2e-3}
OTHERWISE: Final = 5e-5
CHECKS: Final = [
    "matmul float32", "matmul float16", "matmul bfloat16", "matmul complex64", "matmul of batches", "einsum",
    "bias and activation",
    "convolution", "convolution with strides", "convolution dilated", "convolution of groups", "convolution of volumes",
    "max pool", "average pool", "resize",
    "exp", "sin", "tanh", "arctan", "sinh", "expm1", "round", "cbrt", "log", "sqrt", "log1p", "reciprocal", "erf", "lgamma",
    "softmax", "reductions", "cumulative sums", "sort", "where and gather", "scatter", "histogram",
    "random numbers of a seed", "permutation",
    "solve", "inverse of batches", "cholesky", "triangular solve", "determinant", "singular values",
    "eigenvalues of a symmetric matrix", "eigenvalues", "qr", "lu", "least squares", "expm", "fft", "fft of real numbers",
    "scan", "while loop", "cond", "vmap of a solve", "second derivatives", "checkpointed",
    "train a perceptron", "train a convolutional network", "train a transformer",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ran:
    """What the program found."""

    way: str
    errors: dict[str, Any]
    four_gibibytes: str


def run(way: str, python: str, variables: dict[str, str]) -> Ran:
    found, _ = found_by(python, PROGRAM, variables, 800)
    return Ran(way, found["errors"], found["four gibibytes"])


@pytest.fixture(scope="module", params=WAYS)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    python = python_of(PYTHON_VARIABLE, "JAX")
    way: str = request.param
    if way == "alone":
        return run(way, python, software_gpu_environment(native_directory(), os.environ))
    folder = tmp_path_factory.mktemp("share")
    for share in share_of_a_worker(folder, share_mib=SHARE_MIB, **worker_variables(native_directory(), way)):
        return run(way, python, environment(None, share.file, os.environ, software=True, preload=True))
    raise AssertionError("unreachable")


@pytest.mark.parametrize("check", CHECKS)
def test_it_computes_what_the_cpu_does(ran: Ran, check: str) -> None:
    tolerance = next((bound for word, bound in TOLERANCES.items() if word in check.split()), OTHERWISE)
    assert isinstance(ran.errors[check], float), ran.errors[check]
    assert ran.errors[check] <= tolerance


def test_every_check_ran(ran: Ran) -> None:
    assert sorted(ran.errors) == sorted(CHECKS)


def test_it_has_the_memory_of_its_share(ran: Ran) -> None:
    if ran.way != "alone":
        assert ran.four_gibibytes == "exhausted"
