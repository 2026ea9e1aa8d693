"""Unmodified PyTorch on the software GPU: what it asks the math libraries for equals what it computes on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from gpupool.client.child_environment import environment, software_gpu_environment
from gpupool.client.native import native_directory

from benchmarks.roundtrips import NoPyTorchError, torch_python
from tests.libraries.conftest import WAYS, worker_variables
from tests.support.runtime_share import share_of_a_worker

pytestmark = pytest.mark.slow

PROGRAM: Final = Path(__file__).with_name("torch_program.py")
#: Relative to the largest number, by a word of the check's name.
TOLERANCES: Final = {"bfloat16": 1e-2, "float16": 2e-3, "float64": 1e-13}
OTHERWISE: Final = 1e-5
CHECKS: Final = [
    "mm float32", "mm float64", "mm float16", "mm bfloat16", "mm complex64", "mm of transposed", "linear with bias", "bmm", "mv",
    "dot", "conv2d", "conv2d with strides and groups", "conv2d dilated", "conv3d", "conv_transpose2d", "fft", "rfft",
    "rfft of a prime length", "fft2", "lu_factor float32", "lu_factor float64", "lu_factor complex64",
    "ctc_loss", "ctc_loss gradient", "LSTM",
    *(f"LSTM with a projection{how}" for how in ("", ", without biases", ", two layers", ", both directions", ", dropout")),
    *(f"{name} {dtype}" for dtype in ("float32", "float64")
      for name in ("affine_grid", "affine_grid gradient", "grid_sample", "grid_sample gradients")),
]  # fmt: skip
#: What workers do not give to libraries so far.
WITHOUT_LIBRARIES: Final = [
    *(f"attention{of} {name}" for of in ("", " gradients")
      for name in ("float16", "bfloat16 causal", "float16 of heads in groups", "float16 with a bias")),
]  # fmt: skip


def run(variables: dict[str, str], *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [torch_python(), str(PROGRAM), *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module", params=WAYS)
def errors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The error of each check, or what PyTorch said."""
    try:
        torch_python()
    except NoPyTorchError as missing:
        pytest.skip(str(missing))
    if request.param == "alone":
        return run(software_gpu_environment(native_directory(), os.environ))
    own = worker_variables(native_directory(), request.param)
    for share in share_of_a_worker(tmp_path_factory.mktemp("share"), **own):
        left_out = ["without-attention"] if request.param == "libraries" else []
        return run(environment(None, share.file, os.environ, software=True, preload=True), *left_out)
    raise AssertionError("unreachable")


@pytest.mark.parametrize("check", CHECKS)
def test_it_computes_what_the_cpu_does(errors: dict[str, Any], check: str) -> None:
    assert_as_on_the_cpu(errors, check)


@pytest.mark.parametrize("errors", [way for way in WAYS if way != "libraries"], indirect=True)
@pytest.mark.parametrize("check", WITHOUT_LIBRARIES)
def test_attention_computes_what_the_cpu_does(errors: dict[str, Any], check: str) -> None:
    assert_as_on_the_cpu(errors, check)


def assert_as_on_the_cpu(errors: dict[str, Any], check: str) -> None:
    tolerance = next((bound for word, bound in TOLERANCES.items() if word in check.split()), OTHERWISE)
    assert isinstance(errors[check], float), errors[check]
    assert errors[check] <= tolerance


def test_every_check_ran(errors: dict[str, Any]) -> None:
    assert sorted(set(errors) - set(WITHOUT_LIBRARIES)) == sorted(CHECKS)
