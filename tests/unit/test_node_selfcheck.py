"""What a node says of itself, what the pool makes of many, and the log that it keeps for administrators."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from gpupool.engines.mps import MpsDaemon
from gpupool.node import selfcheck
from gpupool.node.math_libraries import LIBRARIES, MathLibraries
from gpupool.node.recent_log import RecentLog, worker_log
from gpupool.node.selfcheck import NodeFacts, checks, park_memory
from gpupool.pool.nodes.reports import NodeReport, together
from gpupool.proto.gpupool.v1 import pool_pb2 as pb

ALL_THERE = MathLibraries((), {name: majors[0] for name, (_file, majors) in LIBRARIES.items()})


@pytest.fixture
def facts(tmp_path: Path) -> NodeFacts:
    return NodeFacts(tmp_path, "10.0.0.5:7460", "10.0.0.6", False, True, 4096, 0, "off", None, ALL_THERE)


def statuses(facts: NodeFacts) -> dict[str, str]:
    return {check.name: check.status for check in checks(facts, 0)}


def test_a_node_that_is_well_says_so(facts: NodeFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    free_disk(monkeypatch, 100_000)
    found = checks(facts, 0)
    assert {check.name for check in found} == {
        "disk",
        "park memory",
        "MPS",
        "device health",
        "math libraries",
        "address",
        "host memory",
    }
    assert {check.status for check in found if check.name != "park memory"} == {"ok"}


def test_a_node_whose_kernels_reach_their_worker_warns(facts: NodeFacts) -> None:
    assert statuses(replace(facts, reaches_host_memory=True))["host memory"] == "warn"


@pytest.mark.parametrize(
    ("free", "images", "status"), [(64, 0, "fail"), (1000, 0, "warn"), (9000, 20_000, "warn")]
)
def test_little_disk_is_a_warning_and_none_a_failure(
    facts: NodeFacts, monkeypatch: pytest.MonkeyPatch, free: int, images: int, status: str
) -> None:
    free_disk(monkeypatch, free)
    (disk,) = [check for check in checks(replace(facts, park_disk_mib=images), 0) if check.name == "disk"]
    assert (disk.status, bool(disk.hint)) == (status, True)
    assert str(free) in disk.detail


@pytest.mark.parametrize(
    ("budget", "parked", "available", "status"),
    [
        (4096, 0, 8000, "ok"),
        (4096, 4000, 200, "ok"),
        (4096, 0, 4000, "warn"),
        (0, 0, 1, "ok"),
        (10, 0, None, "ok"),
    ],
)
def test_what_may_still_be_parked_must_fit(
    budget: int, parked: int, available: int | None, status: str
) -> None:
    assert park_memory(budget, parked, available).status == status


def test_an_address_that_others_cannot_reach_and_a_gpu_that_nobody_watches(facts: NodeFacts) -> None:
    found = statuses(replace(facts, advertise_host="127.0.0.1", watched_by_nvml=False))
    assert (found["address"], found["device health"]) == ("warn", "warn")
    assert statuses(replace(facts, advertise_host="127.0.0.1", endpoint="unix:/x"))["address"] == "ok"


def test_math_libraries_that_are_missing_are_named(facts: NodeFacts) -> None:
    some = MathLibraries((), {"cuBLAS": 13, "cuBLASLt": 13})
    (check,) = [
        check for check in checks(replace(facts, math_libraries=some), 0) if check.name == "math libraries"
    ]
    assert check.status == "warn"
    assert check.detail.split("; missing: ") == [
        "cuBLAS 13, cuBLASLt 13",
        "cuDNN, cuFFT, cuRAND, cuSOLVER, cuSPARSE",
    ]


def test_software_gpus_need_no_math_libraries(facts: NodeFacts) -> None:
    assert statuses(replace(facts, software=True, math_libraries=MathLibraries()))["math libraries"] == "ok"


def test_a_daemon_of_mps_that_went_away_is_a_failure(facts: NodeFacts, tmp_path: Path) -> None:
    gone = replace(facts, mps_mode="auto", daemon=MpsDaemon(tmp_path / "pipes", 1))
    assert statuses(gone)["MPS"] == "fail"


def report(
    node: str, *, silence: str = "", version: str = "1", ahead: float = 0.0, **said: str
) -> NodeReport:
    found = tuple(pb.HealthCheck(name=name, status=status, detail=f"{name} is {status}", hint="do")
                  for name, status in said.items())  # fmt: skip
    return NodeReport(node, silence, version, ahead, found)


def test_many_nodes_are_a_few_lines_that_name_what_is_not_well() -> None:
    reports = [report("a", disk="ok", MPS="ok"), report("b", disk="warn"), report("c", disk="fail", MPS="ok")]
    merged = {check.name: check for check in together(reports, "1")}
    assert (merged["disk"].status, merged["disk"].detail) == ("fail", "b: disk is warn; c: disk is fail")
    assert (merged["MPS"].status, merged["MPS"].detail) == ("ok", "well on 2 nodes")
    assert (merged["versions"].status, merged["clocks"].status) == ("ok", "ok")
    assert together([], "1") == []


def test_silence_skew_and_old_versions_are_warnings_with_numbers() -> None:
    reports = [report("a", silence="node a did not answer"), report("b", version="0", ahead=-7.25)]
    merged = {check.name: check for check in together(reports, "1")}
    assert merged["node checks"].detail == "node a did not answer"
    assert "b is 7.2 s behind" in merged["clocks"].detail
    assert "b has 0" in merged["versions"].detail
    assert all(check.status == "warn" and check.hint for check in merged.values())


def test_a_hundred_bad_nodes_are_counted() -> None:
    (check,) = [
        c for c in together([report(f"n{i}", disk="warn") for i in range(100)], "1") if c.name == "disk"
    ]
    assert "and 92 more" in check.detail


def log_of(kept: int = 10) -> tuple[RecentLog, Any]:
    log = RecentLog(kept)
    logger = structlog.wrap_logger(
        None,
        processors=[log, lambda *_: (_ for _ in ()).throw(structlog.DropEvent)],
        # Whatever a test before has set for the process.
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
    )
    return log, logger


def test_the_log_keeps_the_latest_lines_and_no_secret() -> None:
    log, logger = log_of()
    for number in range(12):
        logger.info("started", session=f"s{number % 2}", number=number)
    logger.warning("odd", token="ab" * 32, given=f"gpupool_{'0' * 12}_{'1' * 64}", text="\x1b[2J")
    lines = log.latest(100)
    assert len(lines) == 10
    assert lines[-1].text == "odd token=(secret) given=(secret) text=\\x1b[2J"
    assert [line.text for line in log.latest(2, "s1")] == [
        "started session=s1 number=9",
        "started session=s1 number=11",
    ]
    assert log.latest(0) == []


def test_an_error_is_kept_with_its_exception() -> None:
    log, logger = log_of()
    try:
        raise ValueError("no such thing")
    except ValueError:
        logger.exception("failed")
    (line,) = log.latest(1)
    assert (line.level, line.text) == ("error", "failed error=ValueError('no such thing')")


def test_a_workers_own_words_are_read_from_its_folder_only(tmp_path: Path) -> None:
    (tmp_path / "s1").mkdir()
    (tmp_path / "s1" / "worker.log").write_text(
        "".join(f"line {i}\n" for i in range(20_000)) + f"key {'a' * 64}\n"
    )
    lines = worker_log(tmp_path, "s1", 2)
    assert [line.text for line in lines] == ["line 19999", "key (secret)"]
    assert worker_log(tmp_path, "../s1", 2) == []
    assert worker_log(tmp_path, "s2", 2) == []


def free_disk(monkeypatch: pytest.MonkeyPatch, mib: int) -> None:
    usage = shutil.disk_usage("/")._replace(free=mib << 20)
    monkeypatch.setattr(selfcheck.shutil, "disk_usage", lambda _path: usage)
