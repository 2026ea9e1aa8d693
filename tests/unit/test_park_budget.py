"""What a node takes for the memory of its machine: the limits of containers, jobs and services count."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpupool.node.park_budget import machine_memory_mib


def machine(tmp_path: Path, groups: str, limits: dict[str, str]) -> int:
    """On a machine of 1000 GiB."""
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemFree: 5 kB\nMemTotal: {1000 << 20} kB\n")
    (proc / "self" / "cgroup").write_text(groups)
    for name, limit in limits.items():
        (cgroups / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroups / name).write_text(f"{limit}\n")
    return machine_memory_mib(proc, cgroups)


GIB = 1 << 30


@pytest.mark.parametrize(
    ("groups", "limits", "mib"),
    [
        ("0::/\n", {}, 1000 << 10),
        ("0::/\n", {"memory.max": "max"}, 1000 << 10),
        ("0::/\n", {"memory.max": str(8 * GIB)}, 8 << 10),
        # Of a job two levels down, where the step itself has none.
        (
            "0::/slurm/job_7/step_0\n",
            {"slurm/job_7/memory.max": str(4 * GIB), "slurm/job_7/step_0/memory.max": "max"},
            4 << 10,
        ),
        # Of version 1, beside a controller of another kind.
        (
            "5:cpu,cpuacct:/slurm\n4:memory:/slurm/job_7\n",
            {"memory/slurm/job_7/memory.limit_in_bytes": str(4 * GIB), "slurm/memory.max": "5"},
            4 << 10,
        ),
        # A container that sees the path of its host.
        ("0::/docker/5e\n", {"memory.max": str(2 * GIB)}, 2 << 10),
        ("nonsense\n0::/../x\n", {}, 1000 << 10),
    ],
)
def test_the_least_of_all_limits_counts(
    tmp_path: Path, groups: str, limits: dict[str, str], mib: int
) -> None:
    assert machine(tmp_path, groups, limits) == mib


def test_a_machine_that_tells_nothing_has_none(tmp_path: Path) -> None:
    assert machine_memory_mib(tmp_path, tmp_path) == 0
