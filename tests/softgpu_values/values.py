"""The values that opcodes are tried on: the edges of each type, all pairs of them, and random ones."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any, Final

import numpy as np

Bits = np.ndarray[Any, Any]

#: How a type lies in memory and registers. Types of 8 bits live in registers of 16, extended by their sign.
STORAGE: Final[dict[str, np.dtype[Any]]] = {
    **{name: np.dtype(np.uint16) for name in ("u8", "s8", "b8", "u16", "s16", "b16", "f16", "bf16", "pair8")},
    **{
        name: np.dtype(np.uint32) for name in ("u32", "s32", "b32", "f32", "f16x2", "bf16x2", "pred", "shift")
    },
    **{name: np.dtype(np.uint64) for name in ("u64", "s64", "b64", "f64", "f32x2")},
}

_FLOATS: Final = {  # mantissa bits, exponent bits
    "f16": (10, 5),
    "bf16": (7, 8),
    "f32": (23, 8),
    "f64": (52, 11),
}


def decode(name: str, bits: Bits) -> Any:
    """Numbers: signed or unsigned integers, float32 or float64; bf16 and f16 as float32. Others stay bits."""
    if name in ("s8", "s16", "s32", "s64"):
        return bits.view(np.dtype(f"i{bits.dtype.itemsize}"))
    if name == "f32":
        return bits.view(np.float32)
    if name == "f64":
        return bits.view(np.float64)
    if name == "f16":
        return bits.view(np.float16).astype(np.float32)
    if name == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits


def _float_edges(name: str) -> list[int]:
    mantissa, exponent = _FLOATS[name]
    infinity = ((1 << exponent) - 1) << mantissa
    one = ((1 << (exponent - 1)) - 1) << mantissa
    smallest_normal = 1 << mantissa
    plain = [
        0,
        1,
        2,
        smallest_normal - 1,
        smallest_normal,
        smallest_normal + 1,
        infinity - 1,
        infinity,
        infinity + 1,
    ]
    plain += [infinity + (1 << (mantissa - 1)), infinity + (1 << mantissa) - 1]  # quiet NaNs
    plain += [
        one,
        one - 1,
        one + 1,
        one + (1 << mantissa),
        one + (1 << (mantissa - 1)),
        one - (1 << mantissa),
    ]
    plain += [
        one + (k << mantissa) + (1 << (mantissa - 1 - k)) for k in range(3)
    ]  # 1.5 2.5 4.5: ties of rounding
    plain += [one + (min(mantissa, 31) << mantissa), one + ((mantissa + 1) << mantissa) + 1]
    sign = 1 << (mantissa + exponent)
    return [bits | s for bits in plain for s in (0, sign)]


def _integer_edges(name: str) -> list[int]:
    width = int(name[1:])
    ones = (1 << width) - 1
    top = 1 << (width - 1)
    plain = [
        0,
        1,
        2,
        3,
        7,
        24,
        width - 1,
        width,
        ones,
        ones - 1,
        top,
        top - 1,
        top + 1,
        0x5555555555555555 & ones,
    ]
    plain += [0x123456789ABCDEF0 & ones, ones >> 2, 0xFF & ones, 100, ones - 99]
    return plain


def edges(name: str) -> list[int]:
    """Bit patterns that matter for a type."""
    if name in _FLOATS:
        return _float_edges(name)
    if name == "pred":
        return [0, 1]
    if name == "shift":  # amounts, positions and lengths
        return [0, 1, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 255, 256, 0x80000001, 0xFFFFFFFF]
    if name in ("f16x2", "bf16x2"):
        half = _float_edges(name[:-2])
        return [low | high << 16 for low, high in zip(half, half[::-1], strict=True)] + [
            h * 0x10001 for h in half
        ]
    if name == "f32x2":
        half = _float_edges("f32")
        return [low | high << 32 for low, high in zip(half, half[::-1], strict=True)]
    if name == "pair8":  # two 8-bit floats
        return [*range(0, 0x10000, 0x101), 0x7F80, 0x807F, 0xFF00, 0x017C]
    return _integer_edges(name.replace("b", "u", 1) if name[0] == "b" else name)


def random_bits(name: str, count: int, seed: int) -> Bits:
    """Patterns of the whole type; for floats also numbers of everyday size, so that sums and products meet."""
    random = np.random.default_rng(seed)
    if name == "pred":
        return random.integers(0, 2, count).astype(np.uint32)
    storage = STORAGE[name]
    width = 8 if name in ("u8", "s8", "b8") else 8 * storage.itemsize
    bits = random.integers(0, 1 << width, count, dtype=np.uint64)
    if name in _FLOATS:
        mantissa, exponent = _FLOATS[name]
        bias = (1 << (exponent - 1)) - 1
        near = random.integers(-12, 13, count) + bias
        calm = (
            random.integers(0, 2, count, dtype=np.uint64) << np.uint64(mantissa + exponent)
            | near.astype(np.uint64) << np.uint64(mantissa)
            | bits & np.uint64((1 << mantissa) - 1)
        )
        bits = np.where(random.random(count) < 0.7, calm, bits)
    elif name == "shift":
        bits = np.where(random.random(count) < 0.8, bits % 70, bits)
    elif width > 16:  # small integers as often as large ones
        bits = np.where(random.random(count) < 0.3, bits >> np.uint64(width - 12), bits)
    return _as_register(name, bits)


def _as_register(name: str, bits: Bits) -> Bits:
    if name == "s8":
        return bits.astype(np.uint8).view(np.int8).astype(np.int16).view(np.uint16)
    return bits.astype(STORAGE[name])


@cache
def operands(types: tuple[str, ...], count: int) -> tuple[Bits, ...]:
    """Arrays of one length, at least `count`: edges with edges, edges with random values, random values."""
    if not types:
        return (np.zeros(count, np.uint32),)
    lists = [edges(name) for name in types]
    if len(types) == 1:
        rows = [(value,) for value in lists[0]]
    else:
        rows = list(product(lists[0], lists[1]))
        if len(rows) > count:  # every pair would be too many: a sample that keeps every edge
            rng = np.random.default_rng(1)
            rows = [rows[k] for k in sorted(rng.choice(len(rows), count, replace=False))]
        # Further operands run through their edges at other speeds.
        rows = [
            (*row, *(values[(7 * i + 3 * k + i // 5) % len(values)] for k, values in enumerate(lists[2:])))
            for i, row in enumerate(rows)
        ]
    columns = [np.array([row[k] for row in rows], np.uint64) for k in range(len(types))]
    made = []
    for k, name in enumerate(types):
        fixed = _as_register(name, columns[k])
        made.append(np.concatenate([fixed, random_bits(name, count, 17 * k + len(types))]))
    return tuple(made)
