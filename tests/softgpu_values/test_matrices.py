"""Products of matrices and what moves them, against numpy. Every mma.sync that the engine knows is tried."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.softgpu_values.device import LIBRARY, Device, device
from tests.softgpu_values.forms import HEADER
from tests.softgpu_values.matrices import (
    WIDTH,
    Product,
    encode_calm,
    expected,
    fragment,
    parse,
    place_a,
    place_b,
    place_c,
)

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="the native parts are not built (make build)")


def names() -> list[str]:
    return [name for name in device().opcodes() if name.startswith("mma.")] if LIBRARY.exists() else []


class Warp:
    """One warp's registers, in a buffer as [register][lane]."""

    def __init__(self, gpu: Device, size: int = 1 << 16) -> None:
        self._gpu, self._size = gpu, size
        self.address = gpu.allocate(size)

    def put(self, registers: Any, word: int) -> None:
        self._gpu.write(self.address, registers.astype(np.uint64 if word == 64 else np.uint32))

    def get(self, count: int, word: int) -> Any:
        made = np.empty((count, 32), np.uint64 if word == 64 else np.uint32)
        self._gpu.read(self.address, made)
        return made


def kernel(
    body: str, loads: list[tuple[str, int, int]], stores: list[tuple[str, int, int]], extra: str = ""
) -> str:
    """loads and stores: (letter, registers, bits); register i of letter a is %a<i>."""
    letters = loads + [s for s in stores if s[0] not in {x[0] for x in loads}]
    lines = [
        HEADER + extra + ".visible .entry k(" + ", ".join(f".param .u64 p{x[0]}" for x in letters) + ") {"
    ]
    lines.append(".reg .b32 %lane; .reg .b64 %at, %off; mov.u32 %lane, %laneid;")
    for letter, count, bits in letters:
        lines.append(f".reg .b{bits} %{letter}<{count}>;")
    for letter, count, bits in loads:
        lines.append(
            f"ld.param.u64 %at, [p{letter}]; mul.wide.u32 %off, %lane, {bits // 8}; add.u64 %at, %at, %off;"
        )
        lines += [f"ld.global.b{bits} %{letter}{i}, [%at+{i * 4 * bits}];" for i in range(count)]
    lines.append(body)
    for letter, count, bits in stores:
        lines.append(
            f"ld.param.u64 %at, [p{letter}]; mul.wide.u32 %off, %lane, {bits // 8}; add.u64 %at, %at, %off;"
        )
        lines += [f"st.global.b{bits} [%at+{i * 4 * bits}], %{letter}{i};" for i in range(count)]
    return "\n".join([*lines, "ret;\n}"])


def group(letter: str, count: int) -> str:
    return "{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}"


def run_product(gpu: Device, warps: dict[str, Warp], p: Product, seed: int) -> str:
    """Tries one opcode; what is wrong in words, or nothing."""
    random = np.random.default_rng(seed)
    a, b = encode_calm(p.a, random, (p.m, p.k)), encode_calm(p.b, random, (p.k, p.n))
    word = 64 if p.d == "f64" else 32
    c_width = WIDTH[p.d]
    per_lane_c = p.m * p.n // 32
    if p.d == "s32":
        edge = 2**31 - 5 if p.saturates else 1000
        c = random.integers(-edge, edge, (p.m, p.n)).astype(np.float64)
        c_bits = c.astype(np.int64).astype(np.uint32).astype(np.uint64)
    elif p.d == "f16":
        c = random.normal(size=(p.m, p.n)).astype(np.float16)
        c_bits = c.view(np.uint16).astype(np.uint64)
    elif p.d == "f32":
        c = random.normal(size=(p.m, p.n)).astype(np.float32)
        c_bits = c.view(np.uint32).astype(np.uint64)
    else:
        c = random.normal(size=(p.m, p.n))
        c_bits = c.view(np.uint64)
    width_a, width_b = p.width(p.a), p.width(p.b)
    frag_a = fragment(p, a, p.a, lambda i, lane: place_a(p, i, lane), p.m * p.k // 32, width_a)
    frag_b = fragment(p, b, p.b, lambda i, lane: place_b(p, i, lane), p.k * p.n // 32, width_b)
    frag_c = fragment(p, c_bits, p.d, place_c, per_lane_c, c_width)
    loads = [("a", len(frag_a), word), ("b", len(frag_b), word), ("c", len(frag_c), word)]
    tail, scale_a, scale_b = "", np.ones((p.m, 1)), np.ones((1, p.n))
    if p.scales:
        byte = 0 if p.scales != 1 else 2
        thread_a, thread_b = 1, 2
        patterns_a, patterns_b = random.integers(120, 134, (p.m, 4)), random.integers(120, 134, (p.n, 4))
        if p.scale_type == "ue4m3":
            patterns_a, patterns_b = patterns_a - 80, patterns_b - 80
        table = np.ldexp(1.0, np.arange(256) - 127)
        if p.scale_type == "ue4m3":
            from tests.softgpu_values.small_forms import E4M3

            table = np.concatenate([E4M3.values(), E4M3.values()])
        scale_a = table[patterns_a[:, byte : byte + p.scales]]
        scale_b = table[patterns_b[:, byte : byte + p.scales]].T
        words = np.zeros((2, 32), np.uint64)
        for lane in range(32):
            # Rows of A: lanes 2 * thread and 2 * thread + 1 of each quad; columns of B: lane `thread`.
            row = lane // 4 + 8 * (lane % 2)
            use_a, use_b = lane % 4 // 2 == thread_a, lane % 4 == thread_b
            words[0, lane] = (
                sum(int(v) << (8 * i) for i, v in enumerate(patterns_a[row])) if use_a else 0x55555555
            )
            words[1, lane] = (
                sum(int(v) << (8 * i) for i, v in enumerate(patterns_b[lane // 4])) if use_b else 0x33333333
            )
        warps["s"].put(words, 32)
        loads.append(("s", 2, 32))
        tail = f", %s0, {{{byte}, {thread_a}}}, %s1, {{{byte}, {thread_b}}}"
    count_d = len(frag_c)
    body = f"{p.opcode} {group('d', count_d)}, {group('a', len(frag_a))}, {group('b', len(frag_b))}, {group('c', count_d)}{tail};"
    module = gpu.load(kernel(body, loads, [("d", count_d, word)]))
    for letter, frag in (("a", frag_a), ("b", frag_b), ("c", frag_c)):
        warps[letter].put(frag, word)
    order = ["a", "b", "c", *(["s"] if p.scales else []), "d"]
    module.launch("k", 1, 32, [warps[x].address for x in order])
    got_words = warps["d"].get(count_d, word)
    module.unload()
    want = expected(p, a, b, c.astype(np.float64), scale_a, scale_b)
    got = np.empty((p.m, p.n))
    each = word // c_width
    for lane in range(32):
        for i in range(per_lane_c):
            bits = int(got_words[i // each, lane]) >> (i % each * c_width) & ((1 << c_width) - 1)
            got[place_c(i, lane)] = number(p.d, bits)
    size = np.abs(want).max() + p.k * 4
    allowed = {"s32": 0.0, "f64": 1e-13 * size, "f32": 1e-5 * size, "f16": 2e-3 * size}[p.d]
    worst = np.abs(got - want).max()
    return "" if worst <= allowed else f"{p.opcode}: off by {worst} ({got.flat[0]} for {want.flat[0]})"


def number(t: str, bits: int) -> float:
    if t == "s32":
        return float(np.int32(np.uint32(bits)))
    raw = {"f16": np.uint16, "f32": np.uint32, "f64": np.uint64}[t](bits)
    return float(raw.view({"f16": np.float16, "f32": np.float32, "f64": np.float64}[t]))


def test_every_product_is_numpys() -> None:
    gpu = device()
    warps = {letter: Warp(gpu) for letter in "abcds"}
    wrong = [text for i, name in enumerate(names()) if (text := run_product(gpu, warps, parse(name), i))]
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize("types", ["f32.f32", "f16.f16", "f32.f16"])
@pytest.mark.parametrize("shape", [(16, 16, 16), (8, 32, 16), (32, 8, 16)])
@pytest.mark.parametrize("layouts", [("row", "col"), ("col", "row")])
def test_wmma_loads_multiplies_and_stores(
    types: str, shape: tuple[int, int, int], layouts: tuple[str, str]
) -> None:
    m, n, k = shape
    d_type, c_type = types.split(".")
    gpu, random = device(), np.random.default_rng(3)
    a, b = random.normal(size=(m, k)).astype(np.float16), random.normal(size=(k, n)).astype(np.float16)
    c = random.normal(size=(m, n)).astype(np.float16 if c_type == "f16" else np.float32)
    s = f"m{m}n{n}k{k}"
    count = {"f16": 4, "f32": 8}
    c_regs, d_regs = count[c_type], count[d_type]
    stride = {"a": k if layouts[0] == "row" else m, "b": n if layouts[1] == "row" else k}
    text = HEADER + ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {\n"
    text += f".reg .b32 %a<8>, %b<8>, %c<{c_regs}>, %d<{d_regs}>; .reg .b64 %pa, %pb, %pc, %pd;\n"
    text += "".join(f"ld.param.u64 %p{x}, [p{x}];" for x in "abcd")
    text += f"wmma.load.a.sync.aligned.{layouts[0]}.{s}.global.f16 {group('a', 8)}, [%pa], {stride['a']};\n"
    text += f"wmma.load.b.sync.aligned.{layouts[1]}.{s}.global.f16 {group('b', 8)}, [%pb], {stride['b']};\n"
    text += f"wmma.load.c.sync.aligned.row.{s}.global.{c_type} {group('c', c_regs)}, [%pc], {n};\n"
    operands = ", ".join([group("d", d_regs), group("a", 8), group("b", 8), group("c", c_regs)])
    text += f"wmma.mma.sync.aligned.{layouts[0]}.{layouts[1]}.{s}.{types} {operands};\n"
    text += f"wmma.store.d.sync.aligned.row.{s}.global.{d_type} [%pd], {group('d', d_regs)}, {n};\nret;\n}}"
    buffers = [gpu.allocate(4096) for _ in range(4)]
    gpu.write(buffers[0], a if layouts[0] == "row" else np.ascontiguousarray(a.T))
    gpu.write(buffers[1], b if layouts[1] == "row" else np.ascontiguousarray(b.T))
    gpu.write(buffers[2], c)
    gpu.load(text).launch("k", 1, 32, buffers)
    got = np.empty((m, n), np.float16 if d_type == "f16" else np.float32)
    gpu.read(buffers[3], got)
    want = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    assert np.abs(got - want).max() <= (0.03 if d_type == "f16" else 1e-4)


@pytest.mark.parametrize("space", [".shared", ".shared::cta", ""])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_ldmatrix_and_stmatrix_are_each_others_inverse_and_transposed_by_trans(
    trans: str, space: str
) -> None:
    """Without a space the address is a generic one."""
    gpu, random = device(), np.random.default_rng(4)
    matrices = random.integers(0, 1 << 16, (4, 8, 8), dtype=np.uint16)
    at = "%row" if space else "%any"
    generic = "cvt.u64.u32 %any, %row; cvta.shared.u64 %any, %any;"
    body = (
        "cvta.to.global.u64 %at, %at; .reg .b32 %row, %r<8>; .reg .b64 %any; mul.lo.u32 %row, %lane, 16;"
        f" st.shared.v4.b32 [%row], {{%w0, %w1, %w2, %w3}}; bar.sync 0; {generic}"
        f" ldmatrix.sync.aligned.m8n8.x4{trans}{space}.b16 {{%f0, %f1, %f2, %f3}}, [{at}];"
        f" add.u32 %row, %row, 512; {generic}"
        f" stmatrix.sync.aligned.m8n8.x4{trans}{space}.b16 [{at}], {{%f0, %f1, %f2, %f3}}; bar.sync 0;"
        " ld.shared.v4.b32 {%g0, %g1, %g2, %g3}, [%row];"
    )
    text = (
        kernel(body, [("w", 4, 32)], [("f", 4, 32), ("g", 4, 32)])
        .replace(".reg .b32 %lane", ".shared .align 16 .b8 tile[1024]; .reg .b32 %lane")
        .replace("mul.lo.u32 %row, %lane, 16;", "mov.u32 %row, tile; mad.lo.u32 %row, %lane, 16, %row;")
    )
    warps = {x: Warp(gpu) for x in "wfg"}
    rows = matrices.reshape(32, 8).view(np.uint32)  # lane l holds row l % 8 of matrix l / 8
    warps["w"].put(rows.T, 32)
    gpu.load(text).launch("k", 1, 32, [warps[x].address for x in "wfg"])
    fragments, back = warps["f"].get(4, 32), warps["g"].get(4, 32)
    for q in range(4):
        matrix = matrices[q].T if trans else matrices[q]
        want = matrix.reshape(8, 8).copy().view(np.uint32).reshape(32)  # row lane / 4, pair lane % 4
        assert (fragments[q] == want).all()
    assert (back == rows.T).all()


def test_movmatrix_transposes() -> None:
    gpu, random = device(), np.random.default_rng(5)
    matrix = random.integers(0, 1 << 16, (8, 8), dtype=np.uint16)
    warps = {x: Warp(gpu) for x in "ad"}
    warps["a"].put(matrix.view(np.uint32).reshape(1, 32), 32)
    text = kernel("movmatrix.sync.aligned.m8n8.trans.b16 %d0, %a0;", [("a", 1, 32)], [("d", 1, 32)])
    gpu.load(text).launch("k", 1, 32, [warps["a"].address, warps["d"].address])
    assert (
        warps["d"].get(1, 32).reshape(32) == np.ascontiguousarray(matrix.T).view(np.uint32).reshape(32)
    ).all()
