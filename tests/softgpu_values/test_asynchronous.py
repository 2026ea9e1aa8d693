"""Bulk copies and reductions, asynchronous stores, transaction barriers, vector atomics: kernels that use them as
libcu++ and CUTLASS do, in a cluster of one block.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.softgpu_values.device import LIBRARY, device
from tests.softgpu_values.forms import HEADER

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="the native parts are not built (make build)")

_PROLOGUE = """
.visible .entry k(.param .u64 source, .param .u64 result) {
.reg .pred %p<4>; .reg .b16 %h<9>; .reg .b32 %r<20>, %tid, %bar, %tile; .reg .b64 %in, %out, %at, %x<9>;
.reg .f32 %f<9>;
.shared .align 128 .b8 tile[1024]; .shared .align 8 .b64 bar;
ld.param.u64 %in, [source]; ld.param.u64 %out, [result];
mov.u32 %tid, %tid.x; mov.u32 %bar, bar; mov.u32 %tile, tile;
setp.eq.u32 %p1, %tid, 0;
"""
_WAIT = """
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%bar], 0;
@!%p2 bra WAIT;
bar.sync 0;
"""


def run(body: str, source: Any, result: Any, threads: int = 64) -> Any:
    """Runs the body with %in and %out pointing to copies of the arrays; returns what %out then holds."""
    gpu = device()
    addresses = [gpu.allocate(max(a.nbytes, 16)) for a in (source, result)]
    gpu.write(addresses[0], source)
    gpu.write(addresses[1], result)
    gpu.load(HEADER + _PROLOGUE + body + "\nret;\n}").launch("k", 1, threads, addresses)
    made = np.empty_like(result)
    gpu.read(addresses[1], made)
    for address in addresses:
        gpu.free(address)
    return made


def test_a_bulk_copy_into_shared_memory_completes_its_barrier() -> None:
    source = np.arange(256, dtype=np.uint32)
    body = f"""
    @%p1 mbarrier.init.shared::cta.b64 [%bar], 1;
    fence.mbarrier_init.release.cluster; bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1024;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%in], 512, [%bar];
    @%p1 add.u64 %x1, %in, 512; @%p1 add.u32 %r1, %tile, 512;
    @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%x1], 512, [%bar];
    {_WAIT}
    mad.lo.u32 %r2, %tid, 16, %tile; ld.shared.v4.u32 {{%r3, %r4, %r5, %r6}}, [%r2];
    mad.wide.u32 %at, %tid, 16, %out; st.global.v4.u32 [%at], {{%r6, %r5, %r4, %r3}};
    """
    made = run(body, source, np.zeros(256, np.uint32))
    assert (made.reshape(64, 4)[:, ::-1].reshape(-1) == source).all()


def test_a_phase_does_not_end_before_its_bytes_have_come() -> None:
    body = """
    @%p1 mbarrier.init.shared.b64 [%bar], 2; bar.sync 0;
    mbarrier.test_wait.parity.shared.b64 %p2, [%bar], 0; selp.u32 %r1, 1, 0, %p2;
    bar.sync 0;
    @%p1 mbarrier.arrive.shared.b64 %x1, [%bar];
    @%p1 mbarrier.arrive.expect_tx.shared.b64 %x2, [%bar], 16; bar.sync 0;
    mbarrier.test_wait.parity.shared.b64 %p2, [%bar], 0; selp.u32 %r2, 1, 0, %p2; bar.sync 0;
    @%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar], 8; bar.sync 0;
    mbarrier.test_wait.parity.shared.b64 %p2, [%bar], 0; selp.u32 %r3, 1, 0, %p2; bar.sync 0;
    @%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar], 8; bar.sync 0;
    mbarrier.test_wait.parity.shared.b64 %p2, [%bar], 0; selp.u32 %r4, 1, 0, %p2;
    mbarrier.test_wait.parity.shared.b64 %p2, [%bar], 1; selp.u32 %r5, 1, 0, %p2;
    mbarrier.pending_count.b64 %r6, %x1; mbarrier.pending_count.b64 %r7, %x2;
    @%p1 st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};
    @%p1 st.global.v2.u32 [%out+16], {%r5, %r6}; @%p1 st.global.u32 [%out+24], %r7;
    """
    made = run(body, np.zeros(4, np.uint32), np.zeros(7, np.uint32))
    assert made.tolist() == [0, 0, 0, 1, 0, 2, 1]


def test_bytes_may_come_before_they_are_expected_and_droppers_are_not_waited_for() -> None:
    body = f"""
    @%p1 mbarrier.init.shared.b64 [%bar], 2; bar.sync 0;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%in], 64, [%bar];
    @%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 64;
    @%p1 mbarrier.arrive.shared.b64 %x1, [%bar]; @%p1 mbarrier.arrive_drop.shared.b64 %x2, [%bar];
    {_WAIT}
    @%p1 mbarrier.arrive.shared.b64 %x1, [%bar]; bar.sync 0;
    mbarrier.test_wait.parity.shared.b64 %p2, [%bar], 1; selp.u32 %r1, 1, 0, %p2;
    mad.lo.u32 %r2, %tid, 4, %tile; ld.shared.u32 %r3, [%r2]; mad.wide.u32 %at, %tid, 4, %out;
    setp.lt.u32 %p3, %tid, 16; @!%p3 mov.u32 %r3, %r1; st.global.u32 [%at], %r3;
    """
    made = run(body, np.arange(100, 116, dtype=np.uint32), np.zeros(64, np.uint32))
    assert made[:16].tolist() == list(range(100, 116)) and (made[16:] == 1).all()


def test_a_bulk_copy_out_of_shared_memory_and_a_bulk_reduction() -> None:
    source = np.arange(64, dtype=np.uint32)
    body = """
    mad.lo.u32 %r1, %tid, 4, %tile; mad.wide.u32 %at, %tid, 4, %in; ld.global.u32 %r2, [%at]; st.shared.u32 [%r1], %r2;
    bar.sync 0; fence.proxy.async.shared::cta;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%out], [%tile], 256;
    @%p1 add.u64 %x1, %out, 256;
    @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%x1], [%tile], 256;
    @%p1 add.u64 %x1, %out, 512;
    @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [%x1], [%tile], 256;
    @%p1 mov.u16 %h1, 0xF00F; @%p1 add.u64 %x1, %out, 768;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%x1], [%tile], 256, %h1;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
    """
    made = run(body, source, np.full(256, 10, np.uint32)).reshape(4, 64)
    assert (made[0] == source).all()
    assert (made[1] == source + 10).all()
    assert (made[2] == np.maximum(source, 10)).all()
    # Bytes 0..3 and 12..15 of each 16.
    assert (made[3].reshape(16, 4)[:, [0, 3]] == source.reshape(16, 4)[:, [0, 3]]).all()
    assert (made[3].reshape(16, 4)[:, 1:3] == 10).all()


def test_reductions_of_small_floats_in_bulk() -> None:
    source = np.linspace(-4, 4, 64).astype(np.float16)
    body = """
    mad.lo.u32 %r1, %tid, 2, %tile; mad.wide.u32 %at, %tid, 2, %in; ld.global.b16 %h1, [%at]; st.shared.b16 [%r1], %h1;
    bar.sync 0;
    @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%out], [%tile], 128;
    @%p1 add.u64 %x1, %out, 128; @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f16 [%x1], [%tile], 128;
    """
    made = run(body, source, np.full(128, 1, np.float16)).reshape(2, 64)
    assert (made[0] == source + np.float16(1)).all()
    assert (made[1] == np.minimum(source, np.float16(1))).all()


def test_asynchronous_stores_and_reductions_pay_the_barrier() -> None:
    body = f"""
    @%p1 mbarrier.init.shared.b64 [%bar], 1; @%p1 st.bulk.weak.shared::cta [%tile], 1024, 0; bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 1280; bar.sync 0;
    mul.lo.u32 %r1, %tid, 8; add.u32 %r1, %r1, %tile; add.u32 %r2, %tid, 7;
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r1], {{%tid, %r2}}, [%bar];
    mad.lo.u32 %r3, %tid, 4, %tile; add.u32 %r3, %r3, 512;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r3], %tid, [%bar];
    bar.sync 0; mov.u32 %r4, 1; add.u32 %r5, %tile, 768;
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r5], %r4, [%bar];
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.max.u32 [%r5+4], %tid, [%bar];
    {_WAIT}
    ld.shared.v2.u32 {{%r6, %r7}}, [%r1]; ld.shared.u32 %r8, [%r3]; ld.shared.u32 %r9, [%r5];
    mad.wide.u32 %at, %tid, 16, %out; st.global.v4.u32 [%at], {{%r6, %r7, %r8, %r9}};
    """
    # 64 threads: 8 + 4 + 4 + 4 bytes each.
    made = run(body, np.zeros(4, np.uint32), np.zeros(256, np.uint32)).reshape(64, 4)
    threads = np.arange(64)
    assert (made == np.stack([threads, threads + 7, threads, np.full(64, 64)], axis=1)).all()


def test_vector_atomics_return_what_was_there_before() -> None:
    source = np.array([1.5, 2.5, 3.5, 4.5], np.float32)
    body = """
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%in];
    @%p1 atom.global.v4.f32.add {%f1, %f2, %f3, %f4}, [%out], {%f4, %f3, %f2, %f1};
    @%p1 st.global.v4.f32 [%out+16], {%f1, %f2, %f3, %f4};
    @%p1 red.relaxed.gpu.global.add.v2.f32 [%out+32], {%f1, %f2};
    """
    made = run(body, source, np.array([10, 20, 30, 40, 0, 0, 0, 0, 1, 2], np.float32))
    assert made[:4].tolist() == [14.5, 23.5, 32.5, 41.5]
    assert made[4:8].tolist() == [10, 20, 30, 40]
    assert made[8:].tolist() == [11, 22]


@pytest.mark.parametrize(("operation", "f"), [("add", np.add), ("min", np.minimum), ("max", np.maximum)])
def test_vector_atomics_of_halves(operation: str, f: Any) -> None:
    source = np.array([1.5, -2.5, 3.5, 0.25, 8, -9, 10, 1], np.float16)
    body = f"""
    ld.global.v4.b32 {{%r1, %r2, %r3, %r4}}, [%in];
    mov.b32 {{%h1, %h2}}, %r1; mov.b32 {{%h3, %h4}}, %r2; mov.b32 {{%h5, %h6}}, %r3; mov.b32 {{%h7, %h8}}, %r4;
    @%p1 red.global.{operation}.noftz.v8.f16 [%out], {{%h1, %h2, %h3, %h4, %h5, %h6, %h7, %h8}};
    @%p1 atom.global.{operation}.noftz.v2.f16x2 {{%r5, %r6}}, [%out+16], {{%r1, %r2}};
    """
    start = np.array([1, 1, 1, 1, -9, -9, 3, 3, 0, 1, 2, 3], np.float16)
    made = run(body, source, start)
    assert (made[:8] == f(start[:8], source)).all()
    assert (made[8:] == f(start[8:], source[:4])).all()


def copy_too_far() -> None:
    body = """
    @%p1 mbarrier.init.shared.b64 [%bar], 1; bar.sync 0; add.u32 %r1, %tile, 4096;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%in], 64, [%bar];
    """
    run(body, np.zeros(16, np.uint32), np.zeros(4, np.uint32))


def test_a_bulk_copy_beyond_shared_memory_is_a_fault() -> None:
    # In a process of its own: the context is lost with the fault.
    program = f"from {__name__} import copy_too_far; copy_too_far()"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).resolve().parents[2],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in ended.stderr
