"""What is set aside of a share for the driver's context: asked for, measured, or a round figure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


#: Says one figure after the other, of those in a file.
ONE_AFTER_THE_OTHER = """
import os, pathlib
file = pathlib.Path(os.environ['FIGURES'])
first, *rest = file.read_text().split()
file.write_text(' '.join(rest))
print(first)
"""


@pytest.mark.parametrize(
    ("figures", "least"),
    [
        ("900 480 700", 480),
        ("480 900 900", 480),
        ("70000 none 480", 480),  # what is no figure does not count
        ("480 none 70000", 480),
    ],
)
async def test_what_others_take_at_the_same_time_is_not_taken_from_every_share(
    measuring: list[str], tmp_path: Path, figures: str, least: int
) -> None:
    (tmp_path / "figures").write_text(figures)
    measuring.append(ONE_AFTER_THE_OTHER)
    found = await context_reserve_mib(None, "driver", {"FIGURES": str(tmp_path / "figures")}, software=False)
    assert found == least + context_reserve._MORE_MIB
    assert (tmp_path / "figures").read_text() == ""


async def test_a_node_does_not_measure_for_long(
    measuring: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_reserve, "_ALL_SECONDS", 0.0)
    (tmp_path / "figures").write_text("900 480 480")
    measuring.append(ONE_AFTER_THE_OTHER)
    found = await context_reserve_mib(None, "driver", {"FIGURES": str(tmp_path / "figures")}, software=False)
    assert found == 900 + context_reserve._MORE_MIB


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
    NVMLError_NotFound = KeyError
    figures = [4 << 20, (529 << 20) + 1]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        assert uuid.startswith(b"GPU-") and len(uuid) == 40
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
