"""What a node says of a worker, on its way through the pool: bounded, and the same at the other end."""

from __future__ import annotations

import pytest
from gpupool.client import convert as client
from gpupool.model.state import Usage
from gpupool.pool.nodes import reported
from gpupool.proto.gpupool.v1 import pool_pb2 as pb


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
        pb.Usage(failure=-5),
    ],
)
def test_what_cannot_be_reads_as_nothing(said: pb.Usage) -> None:
    assert reported.usage_record(said) == Usage()
