"""Training by the math libraries is interrupted in the middle, goes on in another worker on another device, and comes to the
same weights, to the bit: handles and descriptors are the program's, and what operations keep lies in its memory."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.worker_process import ProbedDevice, probe, software_driver
from tests.integration.test_moved_program import SOFTWARE, Home, talk
from tests.support.library_training import TRAINING, loader_path
from tests.support.worker_client import Client

#: The device still has steps to compute when the session leaves. The worker has taken them: its counters are told behind them.
PROGRAM = (
    TRAINING
    + """
for _ in range(3):
    step()
print(digest(), flush=True)
for _ in range(int(sys.stdin.readline())):
    for _ in range(4):
        step()
    cuda.gpupool_counters(None, 0, 0)
    cuda.gpupool_detach()
    print("here", flush=True)
    assert sys.stdin.readline()
    for _ in range(3):
        step()
print(digest(), flush=True)
"""
)
MOVES = ["folder", "direct", "folder"]


@pytest.fixture(scope="module")
def devices() -> list[ProbedDevice]:
    return probe(software_driver(), SOFTWARE)[1]


@pytest.fixture
def homes(tmp_path: Path, devices: list[ProbedDevice]) -> Iterator[list[Home]]:
    made = []
    for name in ("stays", "moves"):
        (tmp_path / name).mkdir()
        made.append(Home(tmp_path / name, devices, tls=False))
    yield made
    for home in made:
        for worker in home.workers:
            worker.__exit__(None, None, None)


def trained(home: Home, moves: list[str]) -> list[str]:
    """The digests of the weights, early and at the end."""
    client = Client(home.folder, home.start())
    process: subprocess.Popen[str] = client.start(PROGRAM, LD_LIBRARY_PATH=loader_path())
    assert process.stdout is not None
    early = process.stdout.readline().strip()
    talk(process, str(len(moves)))
    for how in moves:
        said = process.stdout.readline()
        assert said == "here\n", said + process.communicate()[1][-3000:]
        if how != "stay":
            home.move(client, how)
        talk(process, "go")
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, out + errors[-3000:]
    return [early, out.strip()]


def test_training_that_moves_comes_to_the_same_weights(homes: list[Home]) -> None:
    stays, moves = homes
    wanted = trained(stays, ["stay"] * len(MOVES))
    assert wanted[0] != wanted[1]
    assert trained(moves, MOVES) == wanted
    assert len(moves.workers) == 1 + len(MOVES)
