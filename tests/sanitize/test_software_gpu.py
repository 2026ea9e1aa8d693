"""The software GPU under sanitizers: kernels of both tiers, checks and faults; alone, and behind a worker.

Run by `make test-sanitize-programs`, with the program in `kernel_program.c`, built with the same sanitizers.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.lone_session import lone_session
from benchmarks.worker_process import software_driver
from tests.sanitize.reports import Reports
from tests.sanitize.sanitized_build import compile_program, needs_build

pytestmark = needs_build

HEAD = """.version 7.8
.target sm_75
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<4>; .shared .b32 tile[64];
    ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;
    mov.u32 %r2, tile; mad.lo.s32 %r2, %r1, 4, %r2;
"""
#: Word n gets the number of the thread on the block's other side; a loop that not all threads leave at once.
COMPUTES = """
    st.shared.u32 [%r2], %r1; bar.sync 0;
    xor.b32 %r3, %r1, 63; mad.lo.s32 %r4, %r3, 4, %r2; mul.lo.u32 %r5, %r1, 4; sub.u32 %r4, %r4, %r5;
    ld.shared.u32 %r6, [%r4]; ld.global.u32 %r7, [%rd2]; and.b32 %r8, %r1, 7;
AGAIN:
    sub.u32 %r8, %r8, 1; setp.lt.s32 %p1, %r8, 0; @!%p1 bra AGAIN;
    shfl.sync.bfly.b32 %r5, %r6, 1, 31, -1; shfl.sync.bfly.b32 %r6, %r5, 1, 31, -1;
    add.u32 %r7, %r7, %r6; st.global.u32 [%rd2], %r7;
"""
SUM = 63 * 64 // 2  # after one launch


@dataclass(frozen=True)
class Case:
    body: str
    settings: dict[str, str]
    launches: int
    prints: str
    says: str = ""


CASES = {
    "interpreted": Case(COMPUTES, {"JIT": "off"}, 5, f"0 {5 * SUM}"),
    "compiled": Case(COMPUTES, {"JIT": "always"}, 5, f"0 {5 * SUM}"),
    "compiled meanwhile": Case(COMPUTES, {"JIT": "on"}, 400, f"0 {400 * SUM}"),
    "all checks": Case(COMPUTES, {"CHECK": "all"}, 2, f"0 {2 * SUM}"),
    "too far": Case("st.global.u32 [%rd2+4], %r1;", {"CHECK": "memory"}, 2, "700 0", "behind the end of the 256"),
    "race": Case(
        "st.shared.u32 [%r2], %r1; ld.shared.u32 %r3, [tile]; st.global.u32 [%rd2], %r3;",
        {"CHECK": "race"}, 2, "719 0", "race in shared memory",
    ),
    "astray": Case("mov.u64 %rd3, 64; st.global.u32 [%rd3], %r1;", {"JIT": "off"}, 2, "700 0", "illegal address"),
    "astray, compiled": Case(
        "mov.u64 %rd3, 64; st.global.u32 [%rd3], %r1;", {"JIT": "always"}, 2, "700 0", "illegal address"
    ),
    "not mapped": Case(
        "add.s64 %rd3, %rd2, 16777216; st.global.u32 [%rd3], %r1;", {"JIT": "always"}, 2, "700 0", "illegal address"
    ),
    "trap": Case("setp.eq.u32 %p1, %r1, 33; @%p1 trap;", {"JIT": "always"}, 2, "719 0", "trap"),
    "no end": Case(
        "AGAIN: bra AGAIN;", {"JIT": "off", "WATCHDOG_SECONDS": "0.3"}, 1, "702 0", "has not ended after 0.3 s"
    ),
    "no end, compiled": Case(
        "AGAIN: bra AGAIN;", {"JIT": "always", "WATCHDOG_SECONDS": "0.3"}, 1, "702 0", "has not ended after 0.3 s"
    ),
    "different barriers": Case(
        "setp.gt.u32 %p1, %r1, 31; @%p1 bra OTHER; bar.sync 1; bra OUT;\nOTHER: bar.sync 2;\nOUT:",
        {"JIT": "always"}, 1, "702 0", "wait at barrier 1",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("kernel_program.c", tmp_path_factory.mktemp("program"))


def settings_of(case: Case) -> dict[str, str]:
    return {"GPUPOOL_SOFTGPU_JIT_CACHE": "off"} | {
        f"GPUPOOL_SOFTGPU_{name}": value for name, value in case.settings.items()
    }


def write_kernel(case: Case, folder: Path) -> Path:
    path = folder / "kernel.ptx"
    path.write_text(f"{HEAD}{case.body}\n    ret;\n}}\n")
    return path


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_kernel_runs_clean_alone(tmp_path: Path, program: Path, case: Case) -> None:
    """The program, its driver and the process that compiles have nothing to report.

    Without `gpupool softgpu`, whose LD_PRELOAD would come before the sanitizers' library.
    """
    reports = Reports(tmp_path)
    kernel = write_kernel(case, tmp_path)
    driver = {
        "LD_LIBRARY_PATH": str(software_driver().parent),
        "GPUPOOL_SOFTGPU_MEMORY_MIB": "256",
    }
    done = subprocess.run(
        [program, kernel, str(case.launches)],
        env=os.environ | driver | settings_of(case) | reports.environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert not reports.found(), reports.found()
    assert (done.returncode, done.stdout) == (0, f"{case.prints}\n"), done.stderr
    assert case.says in done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", ["compiled", "compiled meanwhile", "all checks", "astray, compiled", "race", "trap"]
)
def test_a_kernel_runs_clean_on_a_worker(short_folder: Path, program: Path, name: str) -> None:
    """The same kernels behind client runtime and wire."""
    case = CASES[name]
    reports = Reports(short_folder)
    kernel = write_kernel(case, short_folder)
    (short_folder / "worker").mkdir()
    settings = settings_of(case) | reports.environment()
    with lone_session(short_folder / "worker", software_driver(), 256, environment=settings) as session:
        done = subprocess.run(
            [program, kernel, str(case.launches)],
            env=session.environment(reports.environment()),
            capture_output=True,
            text=True,
            timeout=200,
        )
        session.worker.send("stop")
        assert session.worker.process is not None
        status = session.worker.process.wait(60)
        log = session.log()
    assert not reports.found(), reports.found()
    assert (done.returncode, done.stdout) == (0, f"{case.prints}\n"), done.stderr + log
    assert status == 0, log
