"""What is set aside of a share for the driver's context: asked for, measured, or a round figure."""

from __future__ import annotations

import subprocess
import sys

import pytest
from gpupool.client.errors import RuntimeMissingError
from gpupool.client.native import native_file
from gpupool.node import context_reserve
from gpupool.node.context_reserve import NVIDIA_CONTEXT_MIB, context_reserve_mib


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The program that measures; tests put one in place of the real one."""
    program: list[str] = []
    real = context_reserve._measured
    monkeypatch.setattr(
        context_reserve, "_measured", lambda _command, given: real((sys.executable, "-c", *program), given)
    )
    return program


async def test_what_is_asked_for_is_not_measured() -> None:
    assert await context_reserve_mib(0, "/no/driver", {}, software=False) == 0
    assert await context_reserve_mib(700, "/no/driver", {}, software=True) == 700


async def test_a_software_gpu_takes_nothing() -> None:
    assert await context_reserve_mib(None, "/no/driver", {}, software=True) == 0


async def test_what_is_measured_is_enough_for_the_workers_own_things_too(measuring: list[str]) -> None:
    measuring.append("print(525)")
    assert 525 < await context_reserve_mib(None, "driver", {}, software=False) < 600


async def test_it_is_measured_in_the_environment_of_workers(measuring: list[str]) -> None:
    measuring.append("import os; print(os.environ['CONTEXT'])")
    assert 300 < await context_reserve_mib(None, "driver", {"CONTEXT": "300"}, software=False) < 400


@pytest.mark.parametrize(
    "program",
    [
        "print(70_000)",
        "print(0)",
        "print('the driver is gone')",
        "raise SystemExit('no NVML')",
        "print(525); exit(1)",
    ],
)
async def test_a_figure_that_cannot_be_is_not_used(measuring: list[str], program: str) -> None:
    measuring.append(program)
    assert await context_reserve_mib(None, "driver", {}, software=False) == NVIDIA_CONTEXT_MIB


async def test_a_program_that_hangs_is_not_waited_for(
    measuring: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_reserve, "_SECONDS", 0.1)
    measuring.append("import time; time.sleep(600)")
    assert await context_reserve_mib(None, "driver", {}, software=False) == NVIDIA_CONTEXT_MIB


async def test_a_machine_without_such_a_driver_says_so() -> None:
    command = (sys.executable, "-m", "gpupool.node.context_reserve", "/no/driver")
    measured, why = await context_reserve._measured(command, {})
    assert measured is None
    assert why


#: An NVML that tells what of a device is in use, one figure after the other.
PROGRAM = """
import sys
from gpupool.node.context_reserve import _taken_mib

class Nvml:
    figures = [4 << 20, (529 << 20) + 1]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        assert uuid.startswith("GPU-") and len(uuid) == 40
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle):
        self.used = self.figures.pop(0)
        return self

print(_taken_mib(sys.argv[1], Nvml()))
"""


def test_it_is_the_difference_that_a_context_makes() -> None:
    try:
        library = native_file("softgpu", "libcuda.so.1")
    except RuntimeMissingError:
        pytest.skip("native parts not built")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(library)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "526\n", done.stderr
