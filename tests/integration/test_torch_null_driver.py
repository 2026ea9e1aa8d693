"""PyTorch's control flow on a share, without a GPU: through client, wire and worker to a driver that executes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.roundtrips import NoPyTorchError, torch_python
from tests.conformance.torch_eager import NOT_YET, run
from tests.support.pool_node import native_worker_is_built

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    try:
        python = torch_python()
    except NoPyTorchError as missing:
        pytest.skip(str(missing))
    found, log = run(python)
    assert found, log
    return {result["check"]: result for result in found}


@pytest.mark.parametrize(
    "check",
    [
        "a_first_tensor_takes_few_round_trips",
        "the_share_is_the_device",
        "many_operations_reach_the_device",
        "a_training_step_waits_once",
        "memory_is_real_and_in_order",
        "streams_wait_for_events",
        "pinned_memory_goes_both_ways",
        "handles_are_given_back",
        "the_caching_allocator_stays_in_the_share",
        "memory_beyond_the_share_is_an_out_of_memory_error",
        "an_illegal_launch_is_refused_and_nothing_breaks",
        "a_data_loader_forks_and_pins",
        "a_forked_child_cannot_use_the_gpu",
        "matrix_products_are_posted",
        "small_copies_are_counted",
        "a_graph_is_captured_and_replayed",
    ],
)
def test_pytorch(results: dict[str, dict[str, Any]], check: str) -> None:
    assert results[check]["ok"], results[check]["error"]


def test_every_check_ran(results: dict[str, dict[str, Any]]) -> None:
    assert len(results) == 16 + len(NOT_YET)


def test_workers_of_a_data_loader_fork_over_tcp_too(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        python = torch_python()
    except NoPyTorchError as missing:
        pytest.skip(str(missing))
    monkeypatch.setenv("GPUPOOL_TRANSPORT", "tcp")
    monkeypatch.setenv("GPUPOOL_DEBUG", "1")
    found, log = run(
        python,
        "a_data_loader_forks_and_pins",
        "a_forked_child_cannot_use_the_gpu",
        "a_training_step_waits_once",
    )
    assert [result["ok"] for result in found] == [True] * 3, (found, log)
    assert "connected by tcp" in log
