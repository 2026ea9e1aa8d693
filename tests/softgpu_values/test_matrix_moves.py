"""wmma of every type, and the matrices of bytes that ldmatrix and stmatrix move."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from tests.softgpu_values.device import LIBRARY, device
from tests.softgpu_values.forms import HEADER
from tests.softgpu_values.matrices import value

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="the native parts are not built (make build)")

#: operands, result, shape, registers of a, b and c, suffix
CASES: Final = [
    ("bf16", "f32", (16, 16, 16), (4, 4, 8), ""),
    ("bf16", "f32", (8, 32, 16), (2, 8, 8), ""),
    ("tf32", "f32", (16, 16, 8), (4, 4, 8), ""),
    ("f64", "f64", (8, 8, 4), (1, 1, 2), ".rn"),
    ("s8", "s32", (16, 16, 16), (2, 2, 8), ""),
    ("u8", "s32", (32, 8, 16), (4, 1, 8), ""),
    ("s4", "s32", (8, 8, 32), (1, 1, 2), ""),
    ("u4", "s32", (8, 8, 32), (1, 1, 2), ""),
    ("b1", "s32", (8, 8, 128), (1, 1, 2), ".xor.popc"),
    ("b1", "s32", (8, 8, 128), (1, 1, 2), ".and.popc"),
]


def pack(patterns: Any, bits: int) -> Any:
    """A matrix of patterns as it lies in memory, row after row."""
    if bits >= 8:
        return patterns.astype({8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[bits])
    each = 8 // bits
    parts = patterns.reshape(-1, each).astype(np.uint64) << (
        np.arange(each, dtype=np.uint64) * np.uint64(bits)
    )
    return np.bitwise_or.reduce(parts, axis=1).astype(np.uint8)


def drawn(t: str, shape: tuple[int, int], random: np.random.Generator) -> Any:
    if t == "f64":
        return random.normal(size=shape).view(np.uint64)
    if t in ("bf16", "tf32"):
        bits = random.normal(size=shape).astype(np.float32).view(np.uint32)
        return bits >> 16 if t == "bf16" else bits
    return random.integers(0, 1 << {"8": 8, "4": 4, "1": 1}[t[1]], shape)


@pytest.mark.parametrize(("t", "to", "shape", "counts", "extra"), CASES)
def test_wmma_of_every_type(
    t: str, to: str, shape: tuple[int, int, int], counts: tuple[int, int, int], extra: str
) -> None:
    m, n, k = shape
    gpu, random = device(), np.random.default_rng(6)
    bits = {"bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}[t]
    a, b = drawn(t, (m, k), random), drawn(t, (k, n), random)
    kind = {"f32": np.float32, "f64": np.float64, "s32": np.int32}[to]
    c = random.integers(-50, 50, (m, n)).astype(kind)
    buffers = [gpu.allocate(8192) for _ in range(4)]
    gpu.write(buffers[0], pack(a, bits))
    gpu.write(buffers[1], pack(np.ascontiguousarray(b.T), bits))  # column-major
    gpu.write(buffers[2], c)
    width = 64 if t == "f64" else 32
    name = f"m{m}n{n}k{k}"
    operation = extra if "popc" in extra else ""
    rounding = extra if extra == ".rn" else ""

    def group(letter: str, count: int) -> str:
        return "{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}"

    lists = [group("a", counts[0]), group("b", counts[1]), group("c", counts[2]), group("d", counts[2])]
    text = HEADER + ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {\n"
    text += f".reg .b{width} %a<8>, %b<8>, %c<8>, %d<8>; .reg .b64 %p<4>;\n"
    text += "".join(f"ld.param.u64 %p{i}, [p{x}];" for i, x in enumerate("abcd"))
    text += f"wmma.load.a.sync.aligned.row.{name}.global.{t} {lists[0]}, [%p0], {k};\n"
    text += f"wmma.load.b.sync.aligned.col.{name}.global.{t} {lists[1]}, [%p1], {k};\n"
    text += f"wmma.load.c.sync.aligned.row.{name}.global.{to} {lists[2]}, [%p2], {n};\n"
    text += f"wmma.mma{operation}.sync.aligned.row.col.{name}{rounding}.{to}.{t}.{t}.{to}"
    text += f" {lists[3]}, {lists[0]}, {lists[1]}, {lists[2]};\n"
    text += f"wmma.store.d.sync.aligned.col.{name}.global.{to} [%p3], {lists[3]}, {m};\nret;\n}}"
    module = gpu.load(text)
    module.launch("k", 1, 32, buffers)
    module.unload()
    got = np.empty((n, m), kind)
    gpu.read(buffers[3], got)
    if operation:
        both = (a[:, :, None] ^ b[None]) if "xor" in operation else (a[:, :, None] & b[None])
        want = both.sum(axis=1) + c
    else:
        want = value(t, a) @ value(t, b) + c
    assert np.abs(got.T - want).max() <= (0 if to == "s32" else 1e-3 if to == "f32" else 1e-12)


def test_matrices_of_bytes_come_back_when_they_are_stored() -> None:
    """ldmatrix.m16n16 and stmatrix.m16n8 pair as CUTLASS uses them: row r is given by the lane whose number has the
    bits of r in the order 0, 2, 3, 1, and the middle bytes of two registers change places between the two."""
    gpu, random = device(), np.random.default_rng(7)
    tile = random.integers(0, 256, (16, 16), dtype=np.uint8)
    text = HEADER + ".visible .entry k(.param .u64 pi, .param .u64 po, .param .u64 pf) {\n"
    text += (
        ".shared .align 16 .b8 in[256]; .shared .align 16 .b8 out[256];"
        ".reg .b32 %l, %r<20>; .reg .b64 %x<9>; .reg .pred %p; mov.u32 %l, %laneid;"
        "ld.param.u64 %x1, [pi]; ld.param.u64 %x2, [po]; ld.param.u64 %x3, [pf];"
        "mul.wide.u32 %x4, %l, 8; add.u64 %x1, %x1, %x4; add.u64 %x2, %x2, %x4; add.u64 %x3, %x3, %x4;"
        "mov.u32 %r1, in; mov.u32 %r2, out; mad.lo.u32 %r3, %l, 8, %r1; mad.lo.u32 %r4, %l, 8, %r2;"
        "ld.global.b64 %x5, [%x1]; st.shared.b64 [%r3], %x5; bar.sync 0;"
        "and.b32 %r5, %l, 1; shr.u32 %r6, %l, 2; and.b32 %r6, %r6, 3; shr.u32 %r7, %l, 1; and.b32 %r7, %r7, 1;"
        "mad.lo.u32 %r5, %r6, 2, %r5; mad.lo.u32 %r5, %r7, 8, %r5; mad.lo.u32 %r5, %r5, 16, %r1;"
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r8, %r9}, [%r5]; st.global.v2.b32 [%x3], {%r8, %r9};"
        "prmt.b32 %r10, %r8, %r9, 0x5410; prmt.b32 %r11, %r8, %r9, 0x7632;"
        "and.b32 %r12, %l, 15; mad.lo.u32 %r12, %r12, 16, %r2;"
        "stmatrix.sync.aligned.m16n8.x2.trans.shared.b8 [%r12], {%r10, %r11}; bar.sync 0;"
        "ld.shared.b64 %x6, [%r4]; st.global.b64 [%x2], %x6; ret; }"
    )
    buffers = [gpu.allocate(256) for _ in range(3)]
    gpu.write(buffers[0], tile)
    module = gpu.load(text)
    module.launch("k", 1, 32, buffers)
    module.unload()
    back, fragments = np.empty((16, 16), np.uint8), np.empty((32, 2, 4), np.uint8)
    gpu.read(buffers[1], back)
    gpu.read(buffers[2], fragments)
    assert (back == tile).all()
    given = [(lane & 1) + 2 * (lane >> 2 & 3) + 8 * (lane >> 1 & 1) for lane in range(16)]
    for lane in range(32):
        for register in range(2):
            rows = [given[4 * (lane % 4) + e] for e in range(4)]
            assert (fragments[lane, register] == tile[rows, lane // 4 + 8 * register]).all()


@pytest.mark.parametrize(("packed", "bits"), [("b4x16_p64", 4), ("b6x16_p32", 6)])
def test_packed_rows_are_unpacked_to_bytes(packed: str, bits: int) -> None:
    gpu, random = device(), np.random.default_rng(8)
    elements = random.integers(0, 1 << bits, (8, 16))
    rows = np.zeros((8, 16), np.uint8)
    for r in range(8):
        number = sum(int(e) << (bits * i) for i, e in enumerate(elements[r]))
        rows[r] = np.frombuffer(number.to_bytes(16, "little"), np.uint8)
    text = HEADER + ".visible .entry k(.param .u64 pi, .param .u64 po) {\n"
    text += (
        ".shared .align 16 .b8 in[128]; .reg .b32 %l, %r<9>; .reg .b64 %x<6>; mov.u32 %l, %laneid;"
        "ld.param.u64 %x1, [pi]; ld.param.u64 %x2, [po]; mul.wide.u32 %x3, %l, 4; add.u64 %x1, %x1, %x3;"
        "add.u64 %x2, %x2, %x3; mov.u32 %r1, in; mad.lo.u32 %r2, %l, 4, %r1; ld.global.b32 %r3, [%x1];"
        "st.shared.b32 [%r2], %r3; bar.sync 0; and.b32 %r4, %l, 7; mad.lo.u32 %r4, %r4, 16, %r1;"
        f"ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.{packed} {{%r5}}, [%r4]; st.global.b32 [%x2], %r5; ret; }}"
    )
    buffers = [gpu.allocate(128) for _ in range(2)]
    gpu.write(buffers[0], rows)
    module = gpu.load(text)
    module.launch("k", 1, 32, buffers)
    module.unload()
    got = np.empty((8, 16), np.uint8)
    gpu.read(buffers[1], got)
    assert (got == elements).all()
