"""Opcodes whose effect is no value to compare, with the test that covers them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.softgpu_values.forms import expand

_CONTROL: Final = "src/softgpu/exec/test/control_flow_test.cpp"
_TOGETHER: Final = "src/softgpu/exec/test/threads_together_test.cpp"
_ENDS: Final = "src/softgpu/exec/test/launch_end_test.cpp"

#: Pattern (as in forms.expand) -> where it is tested, or why there is nothing to test.
ELSEWHERE: Final[dict[str, str]] = {
    "exit": f"ends threads: every kernel with a guard, {_CONTROL}",
    "trap": f"a fault: {_ENDS}",
    "brkpt": f"a fault: {_ENDS}",
    "bar.warp.sync": f"a barrier: {_TOGETHER}",
    "nanosleep.u32": "yields to other warps: spin loops in " + _TOGETHER,
    "pmevent{,.mask}": "a hint to profilers, no effect",
    "griddepcontrol.{launch_dependents,wait}": "kernels of a stream run one after the other: no effect",
    "setmaxnreg.{inc,dec}.sync.aligned.u32": "a hint about registers, no effect",
    "membar.{cta,gl,sys,proxy.alias}": "order of memory, which the host keeps stronger: atomics in "
    + _TOGETHER,
    "fence{.sc,.acq_rel,.acquire,.release,}{.cta,.cluster,.gpu,.sys}": "as membar",
    "fence.proxy.{alias,async,async.global,async.shared::cta,async.shared::cluster}": "one proxy only: as membar",
    "fence.mbarrier_init.release.cluster": "a cluster is one block: as membar",
    "fence.proxy.alias.{acquire,release}.sys": "one proxy only: as membar",
    "fence.acquire.sync_restrict::shared::cluster.cluster": "a cluster is one block: as membar",
    "fence.release.sync_restrict::shared::cta.cluster": "a cluster is one block: as membar",
    "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster": "a cluster is one block: as membar",
    "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster": "a cluster is one block: as membar",
    "movmatrix.sync.aligned.m8n8.trans.b16": "test_matrices.py",
}


def elsewhere() -> Iterator[tuple[str, str]]:
    """Every opcode of the patterns, with the reason."""
    for pattern, reason in ELSEWHERE.items():
        for name in expand(pattern):
            yield name, reason
