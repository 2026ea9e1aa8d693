"""`make conformance-torch-pool`: unmodified eager training with PyTorch, while the pool does to it what makes this product.

The share is attached after `import torch`, given up and taken again with the same tensors; it is taken back for a project that is
entitled to it; its node is drained, so that the session goes on on another one; and nothing passes the network for 20 s. Each
time every loss and every parameter must be, to the last bit, those of a run that nothing disturbed (``torch_pool_program.py``).
GPUPOOL_TORCH_PYTHON is an interpreter with PyTorch for CUDA, for which a kernel pack was built (`gpupool kernel-packs build`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from gpupool.client.pool import PoolClient
from gpupool.client.projects import ProjectsClient, ProjectSettings

from benchmarks.network import NetworkProxy
from tests.conformance.torch_train import CAPABILITY
from tests.support.patience import until_late
from tests.support.two_nodes import PoolAndTwoNodes

PROGRAM: Final = Path(__file__).with_name("torch_pool_program.py")
RESULT: Final = Path(__file__).resolve().parent.parent.parent / "build" / "conformance" / "torch-pool.json"
#: For how long nothing passes the network.
CUT_SECONDS: Final = 20
#: Where the program finds the worker: a relay listens there, and passes on to the same port of 127.0.0.1.
RELAY_HOST: Final = "127.0.0.2"
#: Of everything that is waited for, on a machine that has time.
PATIENCE: Final = 120
BLOCKS: Final = (3, 8)


class Program:
    """One training under `gpupool run`, or on its own; what it says lies in files."""

    def __init__(
        self, stack: Pool, name: str, *arguments: str, run: tuple[str, ...] | None, **variables: str
    ) -> None:
        self._out, self._errors = stack.home / f"{name}.out", stack.home / f"{name}.err"
        command = [stack.python, str(PROGRAM), *arguments]
        if run is not None:
            command = stack.command("run", "-p", "1", "--wait", str(PATIENCE), *run, "--", *command)
        with self._out.open("w") as out, self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                env=stack.environment | variables,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=errors,
                text=True,
            )

    @property
    def said(self) -> str:
        return self._out.read_text() + self._errors.read_text()

    def await_text(self, text: str) -> None:
        """Until it has said so."""
        self.wait(lambda: text in self.said, f"{text!r}")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = until_late(PATIENCE)
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"waited for {what}; so far:\n{self.said}")
            time.sleep(0.1)

    def result(self) -> dict[str, Any]:
        """Tells it to end, if it waits for that."""
        self.process.communicate("end\n", timeout=4 * PATIENCE)
        if self.process.returncode != 0:
            raise AssertionError(f"it ended with {self.process.returncode}:\n{self.said}")
        return dict(json.loads(self._out.read_text().splitlines()[-1]))


class Pool(PoolAndTwoNodes):
    """Two nodes with one software GPU each; workers of node b are found at a relay."""

    def __init__(self, python: str) -> None:
        super().__init__("--notice", "6s", "--min-run", "1s", scale=1, nodes={"a": 1, "b": 1})
        self.python = python
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        packs = {name: value for name, value in os.environ.items() if name.startswith("GPUPOOL_SOFTGPU_")}
        self.environment |= packs | {"GPUPOOL_SOFTGPU_COMPUTE_CAPABILITY": CAPABILITY}

    def __enter__(self) -> Pool:
        super().__enter__()
        return self

    def start_agent(self, name: str) -> None:
        if name != "b":
            super().start_agent(name)
            return
        self.expect_hello(name)
        self._start(
            name, "node", "start", "--name", name, "--driver", "software", "--software-gpus", "1", "--memory-mib", "512",
            "--port-range", f"{self.port}-{self.port}", "--advertise-host", RELAY_HOST, "--tls", "off",
        )  # fmt: skip

    async def make_projects(self) -> None:
        async with PoolClient(self.endpoint) as pool:
            projects = ProjectsClient(pool)
            # Whatever `guest` has it has above what it deserves; `owner` deserves everything.
            await projects.set_project(ProjectSettings("guest", deserved_milli=0, min_run_seconds=0.0))
            await projects.set_project(ProjectSettings("owner", deserved_milli=2000))

    def lent(self, node: str) -> bool:
        """Whether somebody has a share there."""
        return any(device["shares"] for device in self.devices() if device["id"].startswith(f"{node}/"))

    @contextlib.contextmanager
    def program(
        self, name: str, *arguments: str, run: tuple[str, ...] | None, **variables: str
    ) -> Iterator[Program]:
        started = Program(self, name, *arguments, run=run, **variables)
        try:
            yield started
        finally:
            started.process.kill()
            started.process.wait()
            self.wait_free()


def attached_late(pool: Pool) -> dict[str, Any]:
    """PyTorch is imported first; between its blocks the program has no GPU, and is told so by an ordinary exception."""
    # A process beside the program holds its share; it needs what gpupool needs, which PyTorch's environment may lack.
    path = os.pathsep.join([pool.environment["PYTHONPATH"].rstrip(os.pathsep), sysconfig.get_path("purelib")])
    with pool.program("blocks", "blocks", *map(str, BLOCKS), run=None, PYTHONPATH=path) as program:
        found = program.result()
        if program.said.count("refused: CUDA error") != BLOCKS[0]:
            raise AssertionError(f"a call without a share was not refused:\n{program.said}")
        return found


def taken_back(pool: Pool) -> dict[str, Any]:
    """The owner of the GPU asks for it in the middle of a step, has it for a while, and gives it back."""
    with pool.program("guest", "until-told", run=("--project", "guest", "--filter", "node=a")) as program:
        program.await_text("training")
        asked = (
            "lease",
            "request",
            "-p",
            "1",
            "--project",
            "owner",
            "--filter",
            "node=a",
            "--wait",
            str(PATIENCE),
        )
        lease = pool.gpupool(*asked, seconds=PATIENCE).stdout.strip()
        program.await_text("waiting at place 1")
        pool.gpupool("lease", "release", lease)
        program.await_text("has a GPU share again")
        time.sleep(2)
        return program.result()


def moved(pool: Pool) -> dict[str, Any]:
    """Its node is drained in the middle of a step: the session goes on on the other one."""
    with pool.program("moved", "until-told", run=("--node-pool", "default")) as program:
        program.await_text("training")
        here, there = ("a", "b") if pool.lent("a") else ("b", "a")
        pool.gpupool("node", "drain", here, "--evict")
        program.await_text("has a GPU share again")
        if pool.lent(here) or not pool.lent(there):
            raise AssertionError(f"it has not gone on on node {there}:\n{program.said}")
        time.sleep(2)
        found = program.result()
        pool.gpupool("node", "drain", here, "--undo")
        return found


def network_cut(pool: Pool) -> dict[str, Any]:
    """A relay lies between the program and its worker, and passes nothing on for a while."""
    run = ("--filter", "node=b")
    with (
        NetworkProxy(f"127.0.0.1:{pool.port}", listen=f"{RELAY_HOST}:{pool.port}") as relay,
        pool.program("cut", "until-told", run=run, GPUPOOL_TRANSPORT="tcp") as program,
    ):
        program.await_text("training")
        relay.stall()
        time.sleep(CUT_SECONDS)
        relay.cut()
        relay.resume()
        time.sleep(5)
        return program.result()


SCENES: Final[dict[str, Callable[[Pool], dict[str, Any]]]] = {
    "attached after import": attached_late,
    "taken back": taken_back,
    "moved to another node": moved,
    "network cut": network_cut,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenes", nargs="*", default=list(SCENES))
    scenes = parser.parse_args().scenes
    python = os.environ.get("GPUPOOL_TORCH_PYTHON")
    if not python:
        print("skipped: GPUPOOL_TORCH_PYTHON names no Python with PyTorch for which a kernel pack was built")
        return 0
    found: dict[str, dict[str, Any]] = {}
    failed = 0
    with Pool(python) as pool:
        asyncio.run(pool.make_projects())
        for scene in scenes:
            try:
                found[scene] = SCENES[scene](pool)
            except Exception as problem:
                failed += 1
                print(f"{scene:24} FAILED  {problem}", flush=True)
        for scene, result in found.items():
            steps = str(len(result["losses"]))
            with pool.program("undisturbed", "steps", steps, run=("--filter", "node=a")) as program:
                same = program.result() == result
            failed += not same
            print(
                f"{scene:24} {'equal to the last bit' if same else 'FAILED: it computed something else'}, {steps} steps"
            )
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
