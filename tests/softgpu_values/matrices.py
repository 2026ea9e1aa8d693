"""mma.sync as the manual draws it: what a name means, and where a fragment's elements lie."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tests.softgpu_values.small_forms import FORMATS

#: Bits of an element in a register.
WIDTH: Final = {
    "f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16,
    "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, **dict.fromkeys(FORMATS, 8),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Product:
    """D = A * B + C of one warp."""

    opcode: str
    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    packed_four: bool  # fp4 two in a byte (k = 64), else in the middle of a byte
    padded: bool
    scales: int  # per row of A and column of B
    scale_type: str
    operation: str  # "", "xor", "and"
    saturates: bool
    rounding: str

    def width(self, t: str) -> int:
        return 4 if self.packed_four else WIDTH[t]


def parse(opcode: str) -> Product:
    """Reads a name: shape, types in the order d, a, b, c, and what modifies them."""
    shape = re.search(r"\.m(\d+)n(\d+)k(\d+)", opcode)
    assert shape, opcode
    types = [s for s in opcode.split(".") if s in WIDTH]
    scale_type = next((s for s in opcode.split(".") if s.startswith("ue")), "")
    k = int(shape[3])
    scales = 0
    if scale_type:
        named = re.search(r"scale_vec::(\d)X", opcode)
        scales = int(named[1]) if named else k // 32
    return Product(
        opcode, int(shape[1]), int(shape[2]), k, types[0], types[1], types[2],
        packed_four=bool(scale_type) and "mxf4" in opcode,
        padded="f8f6f4" in opcode,
        scales=scales,
        scale_type=scale_type,
        operation="xor" if ".xor." in opcode else "and" if ".and." in opcode else "",
        saturates="satfinite" in opcode,
        rounding=next((s for s in opcode.split(".") if s in ("rn", "rz", "rm", "rp")), "rn"),
    )  # fmt: skip


def pattern_bits(p: Product, t: str) -> int:
    """How many bits of an element's pattern are drawn at random."""
    if t in FORMATS:
        return FORMATS[t].bits
    return 16 if t in ("f16", "bf16") else WIDTH[t]


def value(t: str, patterns: Any) -> Any:
    """The numbers that patterns mean, as float64 (integers exactly)."""
    if t in FORMATS:
        form = FORMATS[t]
        magnitude = form.values()[patterns & ((1 << (form.bits - 1)) - 1)]
        return np.where(patterns >> (form.bits - 1) & 1, -magnitude, magnitude)
    if t == "f16":
        return patterns.astype(np.uint16).view(np.float16).astype(np.float64)
    if t == "bf16":
        return (patterns.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if t == "tf32":
        return (patterns.astype(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64)
    if t == "f64":
        return patterns.view(np.float64)
    width = WIDTH[t]
    if t[0] == "s":
        return np.where(
            patterns >> (width - 1) & 1, patterns.astype(np.int64) - (1 << width), patterns.astype(np.int64)
        ).astype(np.float64)
    return patterns.astype(np.float64)


def encode_calm(t: str, random: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Patterns of numbers of everyday size, without NaN and infinity, of small magnitude."""
    if t == "f64":
        return random.normal(size=shape).view(np.uint64)
    if t == "tf32":
        return random.normal(size=shape).astype(np.float32).view(np.uint32).astype(np.uint64)
    if t == "f16":
        return random.normal(size=shape).astype(np.float16).view(np.uint16).astype(np.uint64)
    if t == "bf16":
        return (random.normal(size=shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint64)
    bits = FORMATS[t].bits if t in FORMATS else WIDTH[t]
    patterns = random.integers(0, 1 << bits, shape, dtype=np.uint64)
    if t in ("e4m3", "e5m2"):  # below 4, so that sums fit into f16 too
        patterns = np.where(patterns & np.uint64(0x40), patterns & ~np.uint64(0x3C), patterns)
    return patterns


def place_a(p: Product, i: int, lane: int) -> tuple[int, int]:
    """Row and column of the i-th element that a lane holds of A."""
    group, pair = lane >> 2, lane % 4
    each = 64 // WIDTH["f64"] if p.a == "f64" else 32 // p.width(p.a)
    register, within = divmod(i, each)
    row = group + (8 if p.m == 16 and register & 1 else 0)
    block = register >> 1 if p.m == 16 else register
    return row, pair * each + within + block * 4 * each


def place_b(p: Product, i: int, lane: int) -> tuple[int, int]:
    """Row and column of the i-th element of B."""
    group, pair = lane >> 2, lane % 4
    each = 1 if p.b == "f64" else 32 // p.width(p.b)
    register, within = divmod(i, each)
    return pair * each + within + register * 4 * each, group


def place_c(i: int, lane: int) -> tuple[int, int]:
    """Row and column of the i-th element of C and D."""
    return (lane >> 2) + (8 if i >= 2 else 0), lane % 4 * 2 + (i & 1)


def fragment(
    p: Product, matrix: Any, t: str, place: Callable[[int, int], tuple[int, int]], per_lane: int, width: int
) -> Any:
    """Registers x lanes of the patterns of a matrix. fp4 that is padded lies in bits 2..5 of its byte."""
    word = 64 if t == "f64" else 32
    each = word // width
    made = np.zeros((per_lane // each, 32), np.uint64)
    for lane in range(32):
        for i in range(per_lane):
            pattern = int(matrix[place(i, lane)])
            if p.padded and t == "e2m1":
                pattern <<= 2
            made[i // each, lane] |= np.uint64(pattern << (i % each * width))
    return made


def expected(p: Product, a: Any, b: Any, c: Any, scale_a: Any, scale_b: Any) -> Any:
    """The product in float64, and how far a result may be from it."""
    if p.operation:
        x, y = a.astype(np.int64), b.astype(np.int64)
        joined = x[:, :, None] ^ y[None, :, :] if p.operation == "xor" else x[:, :, None] & y[None, :, :]
        return joined.sum(axis=1) + c
    x, y = value(p.a, a), value(p.b, b)
    if p.scales:
        block = p.k // p.scales
        x = x * np.repeat(scale_a, block, axis=1)
        y = y * np.repeat(scale_b, block, axis=0)
    result = x @ y + c
    if p.saturates:
        result = np.clip(result, -(2.0**31), 2.0**31 - 1)
    return result
