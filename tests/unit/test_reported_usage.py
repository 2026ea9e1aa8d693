"""What a node says of a worker, on its way through the pool: bounded, and the same at the other end."""

from __future__ import annotations

import pytest
from gpupool.client import convert as client
from gpupool.model.state import Usage
from gpupool.pool.nodes import reported
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.shares import MAXIMUM_MIB

SECONDS = ("device_seconds", "ask_seconds", "idle_seconds", "work_seconds", "busy")
COUNTS = ("kernels", "calls", "posts", "asks", "bytes_to_device", "bytes_from_device")


def test_what_runs_reaches_the_holder_as_it_was_said() -> None:
    said = pb.Usage(work="stopped", kernel="forever", work_seconds=14.5, failure=700, failed_kernel="bad")
    seen = client.usage(reported.usage(reported.usage_record(said)))
    assert (seen.work, seen.kernel, seen.work_seconds) == ("stopped", "forever", 14.5)
    assert (seen.failure, seen.failed_kernel) == (700, "bad")


@pytest.mark.parametrize(
    "said",
    [
        pb.Usage(work="dancing"),
        pb.Usage(kernel="a b"),
        pb.Usage(kernel="\x1b[2J"),
        pb.Usage(failed_kernel="x" * 81),
        pb.Usage(work_seconds=float("nan")),
        pb.Usage(work_seconds=-1.0),
        *(pb.Usage(**{field: value}) for field in SECONDS for value in (float("inf"), float("nan"), 1e12)),
        *(pb.Usage(**{field: (1 << 63) - 1}) for field in COUNTS),
        pb.Usage(failure=-5),
    ],
)
def test_what_cannot_be_reads_as_nothing(said: pb.Usage) -> None:
    assert reported.usage_record(said) == Usage()


def test_memory_that_no_device_has_reads_as_none_and_keeps_its_place() -> None:
    most = MAXIMUM_MIB << 20
    record = reported.usage_record(
        pb.Usage(memory_used=[1, most, most + 1, -1], memory_peak=[(1 << 63) - 1, 5])
    )
    assert record.memory_used == (1, most, 0, 0)
    assert record.memory_peak == (0, 5)
