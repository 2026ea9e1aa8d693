"""Integer arithmetic, by Python's integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from tests.softgpu_values.forms import Form

WIDTHS: Final = {"u16": 16, "s16": 16, "u32": 32, "s32": 32, "u64": 64, "s64": 64}
WIDER: Final = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def each(scalar: Callable[..., int]) -> Callable[..., Any]:
    """A reference that works on one element's integers; its result may have any size and sign."""

    def reference(*arrays: Any) -> Any:
        rows = zip(*(array.tolist() for array in arrays), strict=True)
        return np.array([scalar(*row) & 0xFFFFFFFFFFFFFFFF for row in rows], np.uint64)

    return reference


def clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def saturated(value: int, type_name: str) -> int:
    width = WIDTHS[type_name]
    if type_name[0] == "u":
        return clamp(value, 0, (1 << width) - 1)
    return clamp(value, -(1 << (width - 1)), (1 << (width - 1)) - 1)


def quotient(a: int, b: int) -> int:
    """Towards zero; what the hardware's routine gives for a divisor of zero is all ones."""
    if b == 0:
        return -1
    magnitude = abs(a) // abs(b)
    return -magnitude if (a < 0) != (b < 0) else magnitude


def remainder(a: int, b: int) -> int:
    return a if b == 0 else a - quotient(a, b) * b


def low24(value: int, signed: bool) -> int:
    value &= 0xFFFFFF
    return value - (1 << 24) if signed and value >> 23 else value


def per_type() -> Iterator[Form]:
    for t, width in WIDTHS.items():
        one, two, three = (t,), (t, t), (t, t, t)

        def form(name: str, sources: tuple[str, ...], f: Callable[..., int], t: str = t) -> Form:
            return Form(f"{name}.{t}", (t,), sources, each(f))

        yield form("add", two, lambda a, b: a + b)
        yield form("sub", two, lambda a, b: a - b)
        yield form("mul.lo", two, lambda a, b: a * b)
        yield form("mul.hi", two, lambda a, b, w=width: (a * b) >> w)
        yield form("mad.lo", three, lambda a, b, c: a * b + c)
        yield form("mad.hi", three, lambda a, b, c, w=width: ((a * b) >> w) + c)
        yield form("div", two, quotient)
        yield form("rem", two, remainder)
        yield form("sad", three, lambda a, b, c: c + abs(a - b))
        yield form("min", two, min)
        yield form("max", two, max)
        if t[0] == "s":
            yield form("abs", one, abs)
            yield form("neg", one, lambda a: -a)
        if t in WIDER:
            wide = WIDER[t]
            yield Form(f"mul.wide.{t}", (wide,), two, each(lambda a, b: a * b))
            yield Form(f"mad.wide.{t}", (wide,), (t, t, wide), each(lambda a, b, c: a * b + c))


def word_forms() -> Iterator[Form]:
    """What exists for 32 bits only."""
    s2, s3 = ("s32", "s32"), ("s32", "s32", "s32")
    yield Form("add.sat.s32", ("s32",), s2, each(lambda a, b: saturated(a + b, "s32")))
    yield Form("sub.sat.s32", ("s32",), s2, each(lambda a, b: saturated(a - b, "s32")))
    yield Form("add.sat.u32", ("u32",), ("u32", "u32"), each(lambda a, b: saturated(a + b, "u32")))
    yield Form("mad.hi.sat.s32", ("s32",), s3, each(lambda a, b, c: saturated(((a * b) >> 32) + c, "s32")))
    yield Form("min.relu.s32", ("s32",), s2, each(lambda a, b: max(min(a, b), 0)))
    yield Form("max.relu.s32", ("s32",), s2, each(lambda a, b: max(a, b, 0)))
    for t in ("u32", "s32"):
        signed = t == "s32"

        def product(a: int, b: int, signed: bool = signed) -> int:
            return low24(a, signed) * low24(b, signed)

        for part, shift in (("lo", 0), ("hi", 16)):

            def half(a: int, b: int, shift: int = shift, product: Callable[..., int] = product) -> int:
                return product(a, b) >> shift

            yield Form(f"mul24.{part}.{t}", (t,), (t, t), each(half))
            yield Form(f"mad24.{part}.{t}", (t,), (t, t, t), each(lambda a, b, c, half=half: half(a, b) + c))
    yield Form("mad24.hi.sat.s32", ("s32",), s3, each(_mad24_saturated))
    for a in ("u32", "s32"):
        for b in ("u32", "s32"):
            types = ("b32", "b32", "b32")
            yield Form(f"dp4a.{a}.{b}", ("b32",), types, each(_dot(4, a, b, 0)))
            yield Form(f"dp2a.lo.{a}.{b}", ("b32",), types, each(_dot(2, a, b, 0)))
            yield Form(f"dp2a.hi.{a}.{b}", ("b32",), types, each(_dot(2, a, b, 2)))


def _mad24_saturated(a: int, b: int, c: int) -> int:
    # The sum is that of the product's 32 bits, as a signed number.
    high = (low24(a, True) * low24(b, True)) >> 16
    return saturated(high + c, "s32")


def _dot(count: int, a_type: str, b_type: str, first: int) -> Callable[[int, int, int], int]:
    def element(word: int, index: int, width: int, type_name: str) -> int:
        value = word >> (index * width) & ((1 << width) - 1)
        return value - (1 << width) if type_name[0] == "s" and value >> (width - 1) else value

    def dot(a: int, b: int, c: int) -> int:
        width = 8 if count == 4 else 16
        return c + sum(element(a, k, width, a_type) * element(b, k + first, 8, b_type) for k in range(count))

    return dot


def packed(width: int, signed: bool, f: Callable[..., int]) -> Callable[..., Any]:
    """The function on each element of a 32-bit word."""
    ones, top = (1 << width) - 1, 1 << (width - 1)

    def number(word: int, at: int) -> int:
        value = word >> at & ones
        return value - (1 << width) if signed and value & top else value

    def scalar(*words: int) -> int:
        return sum((f(*(number(word, at) for word in words)) & ones) << at for at in range(0, 32, width))

    return each(scalar)


def packed_forms() -> Iterator[Form]:
    w2 = ("b32", "b32")
    for kind, width in (("16x2", 16), ("8x4", 8)):
        for sign in ("u", "s"):
            signed = sign == "s"
            t = sign + kind
            low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)

            def form(
                name: str, f: Callable[..., int], t: str = t, width: int = width, signed: bool = signed
            ) -> Form:
                return Form(f"{name}.{t}", ("b32",), w2, packed(width, signed, f))

            yield form("add", lambda a, b: a + b)
            yield form("add.sat", lambda a, b, low=low, high=high: clamp(a + b, low, high))
            yield form("min", min)
            yield form("max", max)
            if signed:
                yield form("min.relu", lambda a, b: max(min(a, b), 0))
                yield form("max.relu", lambda a, b: max(a, b, 0))
            if width == 8:
                yield form("sub", lambda a, b: a - b)
                yield form("sub.sat", lambda a, b, low=low, high=high: clamp(a - b, low, high))
    yield Form("neg.s8x4", ("b32",), ("b32",), packed(8, True, lambda a: -a))
    for bits, sign in ((4, "s"), (4, "u"), (2, "s"), (2, "u"), (8, "s"), (8, "u")):
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if sign == "s" else (0, (1 << bits) - 1)

        def pack(a: int, b: int, c: int, bits: int = bits, low: int = low, high: int = high) -> int:
            ones = (1 << bits) - 1
            return c << 2 * bits | (clamp(a, low, high) & ones) << bits | clamp(b, low, high) & ones

        yield Form(f"cvt.pack.sat.{sign}{bits}.s32.b32", ("b32",), ("s32", "s32", "b32"), each(pack))
    for sign in ("s", "u"):
        low, high = (-32768, 32767) if sign == "s" else (0, 65535)

        def pack16(a: int, b: int, low: int = low, high: int = high) -> int:
            return (clamp(a, low, high) & 0xFFFF) << 16 | clamp(b, low, high) & 0xFFFF

        yield Form(f"cvt.pack.sat.{sign}16.s32", ("b32",), ("s32", "s32"), each(pack16))


def carry_forms() -> Iterator[Form]:
    """Chains of extended precision: the flag is set by one opcode and read by the next."""
    for width in (32, 64):
        ones = (1 << width) - 1
        for sign in ("u", "s", "b"):
            t = f"{sign}{width}"
            word = f"b{width}"
            first = f"add.cc.{t} {{d}}, {{a}}, {{b}};"
            borrow = f"sub.cc.{t} {{d}}, {{a}}, {{b}};"
            u = f"u{width}"
            for name, text, f in (
                (
                    f"add.cc.{t}",
                    first + f" addc.{t} {{e}}, 0, 0;",
                    lambda a, b, ones=ones: (a + b, a + b > ones),
                ),
                (
                    f"addc.{t}",
                    first + f" addc.{t} {{e}}, {{a}}, {{b}};",
                    lambda a, b, ones=ones: (a + b, a + b + (a + b > ones)),
                ),
                (
                    f"addc.cc.{t}",
                    first + f" addc.cc.{t} {{d}}, {{a}}, {{d}}; addc.{t} {{e}}, 0, 0;",
                    lambda a, b, ones=ones: (
                        a + ((a + b) & ones) + (a + b > ones),
                        a + ((a + b) & ones) + (a + b > ones) > ones,
                    ),
                ),
                (
                    f"sub.cc.{t}",
                    borrow + f" subc.{t} {{e}}, 0, 0;",
                    lambda a, b, ones=ones: (a - b, -(a < b)),
                ),
                (
                    f"subc.{t}",
                    borrow + f" subc.{t} {{e}}, {{b}}, {{a}};",
                    lambda a, b, ones=ones: (a - b, b - a - (a < b)),
                ),
                (
                    f"subc.cc.{t}",
                    borrow + f" subc.cc.{t} {{d}}, {{b}}, {{d}}; subc.{t} {{e}}, 0, 0;",
                    lambda a, b, ones=ones: (
                        b - ((a - b) & ones) - (a < b),
                        -(b < ((a - b) & ones) + (a < b)),
                    ),
                ),
            ):
                yield Form(name, (word, word), (u, u), _pairs(f), text=text)
        for sign in ("u", "s"):
            t = f"{sign}{width}"
            for part in ("lo", "hi"):
                yield from _multiply_with_carry(t, part, width)


def _pairs(f: Callable[..., tuple[int, int]], ones: int = 0xFFFFFFFFFFFFFFFF) -> Callable[..., Any]:
    def reference(*arrays: Any) -> Any:
        rows = [f(*row) for row in zip(*(array.tolist() for array in arrays), strict=True)]
        return (
            np.array([int(row[0]) & ones for row in rows], np.uint64),
            np.array([int(row[1]) & ones for row in rows], np.uint64),
        )

    return reference


def _multiply_with_carry(t: str, part: str, width: int) -> Iterator[Form]:
    ones = (1 << width) - 1
    word = f"b{width}"

    def half(a: int, b: int) -> int:
        return (a * b >> (width if part == "hi" else 0)) & ones

    def sets(a: int, b: int, c: int) -> tuple[int, int]:
        total = half(a, b) + (c & ones)
        return total, total >> width

    def both(a: int, b: int, c: int) -> tuple[int, int]:
        carry = (c & ones) + (c & ones) >> width
        total = half(a, b) + (c & ones) + carry
        return total, total >> width

    def reads(a: int, b: int, c: int) -> tuple[int, int]:
        carry = (c & ones) + (c & ones) >> width
        return half(a, b) + (c & ones) + carry, 0

    start = f"add.cc.u{width} {{e}}, {{c}}, {{c}};"
    end = f" addc.u{width} {{e}}, 0, 0;"
    plain, chained = f"mad.{part}.cc.{t}", f"madc.{part}.cc.{t}"
    types = (t, t, t)
    yield Form(plain, (word, word), types, _pairs(sets), text=f"{plain} {{d}}, {{a}}, {{b}}, {{c}};" + end)
    yield Form(
        chained,
        (word, word),
        types,
        _pairs(both),
        text=start + f" {chained} {{d}}, {{a}}, {{b}}, {{c}};" + end,
    )
    last = f"madc.{part}.{t}"
    yield Form(
        last,
        (word, word),
        types,
        _pairs(reads),
        text=start + f" {last} {{d}}, {{a}}, {{b}}, {{c}}; mov.b{width} {{e}}, 0;",
    )


def all_forms() -> Iterator[Form]:
    yield from per_type()
    yield from word_forms()
    yield from packed_forms()
    yield from carry_forms()
