"""Who asks too much of a share is told the numbers and the way out: below the cell, in the row, by `gpupool run`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.attaching_program import PRELUDE
from tests.support.pool_node import PoolAndNode
from tests.support.stack import CellResult, Kernel, Stack, wait_until

GIB = 1 << 30
SETUP = "import numpy as np\nfrom numba import cuda"
THREE_GIB = "big = cuda.device_array(3 << 30, np.uint8)"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with Stack() as running:
        yield running


@pytest.fixture
def kernel(stack: Stack) -> Iterator[Kernel]:
    started = stack.kernel()
    assert started.run(SETUP).status == "ok"
    yield started
    stack.api("DELETE", f"api/kernels/{started.id}")
    stack.wait_free()


def told(result: CellResult) -> dict[str, Any] | None:
    """What the cell's last result line says of memory that was lacking."""
    found = [data["application/vnd.gpupool.cell+json"] for data in result.outputs if "text/html" in data]
    record: dict[str, Any] | None = found[-1]["out_of_memory"] if found else None
    return record


def in_row(kernel: Kernel) -> dict[str, Any] | None:
    """What the kernel's row is to show; its worker may not have reported anything yet."""
    record: dict[str, Any] | None = (kernel.state()["usage"] or {}).get("out_of_memory")
    return record


def test_below_the_cell_and_in_the_row_stand_the_numbers_and_a_share_with_room(kernel: Kernel) -> None:
    failed = kernel.run(f"%%gpu 0.2\n{THREE_GIB}")
    assert failed.status == "error"
    record = told(failed)
    assert record is not None
    assert (record["asked"], record["used"], record["device"], record["way"]) == (3 * GIB, 0, 0, "cell")
    assert 0 < record["largest_free"] <= record["share"] < 2 * GIB
    larger = record["larger_share"]
    assert (larger["free"], larger["count"]) == (True, 1)
    assert larger["mib"] << 20 >= 3 * GIB
    line = f"%%gpu {larger['share']}"
    assert line in failed.text
    assert "peak memory" not in failed.text
    row = kernel.state()
    assert row["state"] == "parked"
    shown = in_row(kernel)
    assert shown is not None
    assert (shown["asked"], shown["larger_share"]) == (3 * GIB, larger)
    # And what was said is true.
    again = kernel.run(f"{line}\n{THREE_GIB}")
    assert again.status == "ok", again.text
    assert told(again) is None
    assert in_row(kernel) is None
    kernel.run("del big")


def test_a_cell_that_catches_the_error_is_told_all_the_same_and_one_that_gets_it_later_is_not(
    kernel: Kernel,
) -> None:
    caught = kernel.run(f"%%gpu 0.2\ntry:\n    {THREE_GIB}\nexcept Exception:\n    pass")
    assert caught.status == "ok"
    assert (told(caught) or {})["asked"] == 3 * GIB
    body = "\n".join(
        [
            "%%gpu 0.2",
            "kept = cuda.device_array(1 << 30, np.uint8)",
            "try:",
            "    more = cuda.device_array(1 << 30, np.uint8)",
            "except Exception:",
            "    del kept",
            "    more = cuda.device_array(1 << 30, np.uint8)",
            "del more",
        ]
    )
    probing = kernel.run(body)
    assert probing.status == "ok", probing.text
    assert told(probing) is None
    assert "gpupool:" not in probing.text


def test_under_a_hold_the_share_is_resized(stack: Stack, kernel: Kernel) -> None:
    stack.api("POST", f"gpupool/api/kernels/{kernel.id}/attach", {"share": "0.2"})
    wait_until(lambda: kernel.state()["state"] == "attached", 20, "the share")
    failed = kernel.run(THREE_GIB)
    record = told(failed)
    assert record is not None
    assert record["way"] == "resize"
    share = record["larger_share"]["share"]
    assert f"%gpu resize {share}" in failed.text
    status = kernel.run("%gpu status")
    assert f"%gpu resize {share}" in status.text
    assert told(kernel.run("1 + 1")) is None
    assert in_row(kernel) is None
    assert kernel.run(f"%gpu resize {share}").status == "ok"
    assert kernel.run(THREE_GIB).status == "ok"


def test_what_no_gpu_of_the_pool_has_is_not_promised(kernel: Kernel) -> None:
    failed = kernel.run("%%gpu 0.2\ncuda.device_array(900 << 30, np.uint8)")
    record = told(failed)
    assert record is not None
    assert record["larger_share"]["share"] is None
    assert record["larger_share"]["mib"] > 4096
    assert "No GPU of this pool has so much" in failed.text


def test_code_that_attaches_is_told_how_to_attach_more(kernel: Kernel) -> None:
    failed = kernel.run(f"import gpupool\nwith gpupool.attach(0.2):\n    {THREE_GIB}")
    record = told(failed)
    assert record is not None
    assert record["way"] == "code"
    assert f"gpupool.attach('{record['larger_share']['share']}')" in failed.text


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolAndNode]:
    with PoolAndNode(real_worker=True, gpus=1) as running:
        yield running


def test_run_names_the_option_when_the_program_has_ended(pool: PoolAndNode) -> None:
    program = f"{SETUP}\n{THREE_GIB}"
    done = pool.gpupool("run", "-p", "0.2", "--", sys.executable, "-c", program, seconds=120)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("gpupool: out of memory: 3 GiB asked"), done.stderr
    assert " -p 0." in last
    assert done.stderr.count("gpupool:") == 1
    share = last.split(" -p ")[1].split()[0]
    enough = pool.gpupool("run", "-p", share, "--", sys.executable, "-c", program, seconds=120)
    assert (enough.returncode, enough.stderr) == (0, "")


def test_run_says_nothing_of_what_was_had_later(pool: PoolAndNode) -> None:
    program = "\n".join(
        [
            SETUP,
            "kept = cuda.device_array(1 << 30, np.uint8)",
            "try:",
            "    cuda.device_array(1 << 30, np.uint8)",
            "except Exception:",
            "    del kept",
            "    cuda.device_array(1 << 30, np.uint8)",
        ]
    )
    done = pool.gpupool("run", "-p", "0.2", "--", sys.executable, "-c", program, seconds=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_with_a_share_of_its_own_is_told_too(pool: PoolAndNode) -> None:
    program = f"{PRELUDE}\n{SETUP}\nwith gpupool.attach(0.2):\n    {THREE_GIB}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=pool.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if line.startswith("gpupool: out of memory")]
    assert "gpupool.attach('0." in line
