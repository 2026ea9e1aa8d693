"""Unmodified JAX and TensorFlow train on two GPUs, of one machine and of two nodes of a pool: their losses are the CPU's."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from gpupool.client.child_environment import software_gpu_environment
from gpupool.client.native import native_directory

from tests.libraries.framework_run import found_by, python_of
from tests.support.two_nodes import PoolAndTwoNodes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: By framework, the variable that names its interpreter.
INTERPRETERS: Final = {"jax": "GPUPOOL_JAX_PYTHON", "tensorflow": "GPUPOOL_TENSORFLOW_PYTHON"}


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolAndTwoNodes]:
    with PoolAndTwoNodes(scale=1.0, nodes={"a": 1, "b": 1}) as running:
        yield running


def program_of(framework: str) -> Path:
    return Path(__file__).with_name(f"{framework}_several_gpus.py")


def check(found: dict[str, Any]) -> None:
    assert found["devices"] == 2
    assert found["losses"] == pytest.approx(found["cpu"], rel=1e-5)
    assert found["losses"][-1] < found["losses"][0]


@pytest.mark.parametrize("framework", INTERPRETERS)
def test_on_one_machine(framework: str) -> None:
    python = python_of(INTERPRETERS[framework], framework)
    variables = software_gpu_environment(native_directory(), os.environ) | {"GPUPOOL_SOFTGPU_DEVICES": "2"}
    found, said = found_by(python, program_of(framework), variables, 300)
    check(found)
    assert "gpupool: nccl" not in said  # what they go on without is no news


@pytest.mark.parametrize("framework", INTERPRETERS)
def test_on_two_nodes_of_a_pool(framework: str, request: pytest.FixtureRequest) -> None:
    python = python_of(INTERPRETERS[framework], framework)
    pool: PoolAndTwoNodes = request.getfixturevalue("pool")
    command = pool.command("run", "-n", "2", "-p", "1", "--", python, str(program_of(framework)))
    done = subprocess.run(
        command, env=pool.environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]
    check(json.loads(done.stdout.splitlines()[-1]))
    pool.wait_free()
