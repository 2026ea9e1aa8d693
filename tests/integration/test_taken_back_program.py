"""Two programs of two projects want the same GPU: one is asked to leave, waits, and goes on with the right result.

Real pool, node, worker, software GPU and `gpupool run`; the programs notice nothing.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.pool import PoolClient
from gpupool.client.projects import ProjectsClient, ProjectSettings

from tests.integration.test_waiting_calls import COUNTING
from tests.support.pool_node import PoolAndNode
from tests.support.stack import wait_until

#: A notice is 3 s, a renewal every half second.
#: What a program has sent must be taken within the notice, 6 s, also on a busy machine.
SCALE = 0.4


async def make_projects(stack: PoolAndNode) -> None:
    async with PoolClient(stack.endpoint) as pool:
        projects = ProjectsClient(pool)
        # Whatever `guest` has it has above what it deserves; `owner` deserves everything.
        await projects.set_project(ProjectSettings("guest", deserved_milli=0, min_run_seconds=0.0))
        await projects.set_project(ProjectSettings("owner", deserved_milli=1000))


@pytest.fixture(scope="module")
def stack() -> Iterator[PoolAndNode]:
    with PoolAndNode(real_worker=True, gpus=1, scale=SCALE) as running:
        asyncio.run(make_projects(running))
        yield running


class Running:
    """A program under `gpupool run`; what it and the command say lies in files."""

    def __init__(self, stack: PoolAndNode, folder: Path, name: str, *options: str) -> None:
        program = folder / f"{name}.py"
        program.write_text(COUNTING)
        self._out, self._errors = folder / f"{name}.out", folder / f"{name}.err"
        command = stack.command(
            "run", "-p", "1", *options, "--", sys.executable, "-W", "ignore", str(program)
        )
        with self._out.open("w") as out, self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                env=stack.environment | {"NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0"},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=errors,
                text=True,
            )

    @property
    def said(self) -> str:
        return self._out.read_text() + self._errors.read_text()

    def await_text(self, text: str, seconds: float = 30) -> None:
        try:
            wait_until(
                lambda: text in self.said, seconds, text, failed=lambda: self.process.poll() is not None
            )
        except (RuntimeError, TimeoutError) as error:
            raise AssertionError(f"{error}; so far:\n{self.said}") from None

    def end(self) -> None:
        """Tells the program to end; its own check of the result must hold."""
        self.process.communicate("end\n", timeout=60)
        assert self.process.returncode == 0, self.said
        assert self._out.read_text().splitlines()[-1] == "ok", self.said


def test_programs_alternate_results_are_right_and_an_interrupt_ends_the_waiting(
    stack: PoolAndNode, tmp_path: Path
) -> None:
    guest = Running(stack, tmp_path, "guest", "--project", "guest")
    owner = None
    try:
        guest.await_text("counting")
        owner = Running(stack, tmp_path, "first", "--project", "owner", "--wait", "60")
        owner.await_text("counting")
        assert "taken back in" in guest.said
        assert guest.process.poll() is None
        owner.end()
        guest.await_text("has a GPU share again")

        owner = Running(stack, tmp_path, "second", "--project", "owner", "--wait", "60")
        owner.await_text("counting")
        guest.await_text("waiting at place 1")
        guest.process.send_signal(signal.SIGINT)
        guest.process.wait(20)
        assert "KeyboardInterrupt" in guest.said
        owner.end()
    finally:
        for running in (guest, owner):
            if running is not None:
                running.process.kill()
    stack.wait_free()


def test_who_will_not_wait_again_is_told_why_and_fails(stack: PoolAndNode, tmp_path: Path) -> None:
    guest = Running(stack, tmp_path, "guest", "--project", "guest", "--wait-again", "0")
    guest.await_text("counting")
    asked = ("lease", "request", "-p", "1", "--project", "owner", "--wait", "60")
    lease = stack.gpupool(*asked).stdout.strip()
    guest.process.wait(20)
    assert guest.process.returncode == 1
    assert "a project that is entitled to it needs it" in guest.said
    assert "CUDA_ERROR_DEVICE_UNAVAILABLE" in guest.said
    stack.gpupool("lease", "release", lease)
    stack.wait_free()
