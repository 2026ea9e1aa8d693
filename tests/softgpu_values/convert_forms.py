"""cvt between integers and floats, by exact rational numbers and by lists of all values of a small format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, Final

import numpy as np

from tests.softgpu_values import exact
from tests.softgpu_values.exact import FORMATS, MODES, elementwise
from tests.softgpu_values.float_forms import arithmetic, to_bits
from tests.softgpu_values.forms import Form
from tests.softgpu_values.half_forms import halves_judge, relu
from tests.softgpu_values.integer_forms import clamp, each

INTEGERS: Final = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")


def limits(t: str) -> tuple[int, int]:
    width = int(t[1:])
    return (0, (1 << width) - 1) if t[0] == "u" else (-(1 << (width - 1)), (1 << (width - 1)) - 1)


def wrapped(value: int, t: str) -> int:
    """The low bits, extended by their sign where the type has one."""
    width = int(t[1:])
    value &= (1 << width) - 1
    return value - (1 << width) if t[0] == "s" and value >> (width - 1) else value


def between_integers() -> Iterator[Form]:
    for to in INTEGERS:
        for source in INTEGERS:
            low, high = limits(to)
            yield Form(f"cvt.{to}.{source}", (to,), (source,), each(lambda a, to=to: wrapped(a, to)))
            yield Form(
                f"cvt.sat.{to}.{source}", (to,), (source,), each(lambda a, lo=low, hi=high: clamp(a, lo, hi))
            )


def whole(number: Fraction, mode: str) -> int:
    """Rounded to an integer: rni rzi rmi rpi."""
    down = number.numerator // number.denominator
    if mode == "rm" or number == down:
        return down
    if mode == "rp":
        return down + 1
    if mode == "rz":
        return down + (number < 0)
    twice = 2 * (number - down)
    return down + (twice > 1 or (twice == 1 and down & 1 == 1))


def to_integer(source: str, to: str, mode: str, ftz: bool) -> Callable[..., Any]:
    f = FORMATS[source]
    low, high = limits(to)
    width = int(to[1:])
    of_nan = 1 << (width - 1) if source == "f64" or width == 64 else 0

    def one(bits: int) -> int:
        value = exact.value_of(exact.flush(bits, f) if ftz else bits, f)
        if value == "nan":
            return wrapped(of_nan, to) & 0xFFFFFFFFFFFFFFFF
        if isinstance(value, str):
            return (low if value == "-inf" else high) & 0xFFFFFFFFFFFFFFFF
        return clamp(whole(value, mode), low, high) & 0xFFFFFFFFFFFFFFFF

    return lambda values: elementwise(one, to_bits(source, values))


def from_integer(to: str, mode: str, sat: bool) -> Callable[..., Any]:
    f = FORMATS[to]

    def one(value: int) -> int:
        bits = exact.rounded(Fraction(value), f, mode) if value else 0
        return exact.saturate(bits, f) if sat else bits

    return each(one)


def integers_and_floats() -> Iterator[Form]:
    for f in ("f32", "f64", "f16", "bf16"):
        for i in INTEGERS:
            for mode in MODES:
                for ftz in (False, True):
                    z = ".ftz" if ftz else ""
                    # .ftz acts on f32 operands only.
                    reference = to_integer(f, i, mode, ftz and f == "f32")
                    yield Form(f"cvt.{mode}i{z}.{i}.{f}", (i,), (f,), reference)
                    yield Form(f"cvt.{mode}i{z}.sat.{i}.{f}", (i,), (f,), reference)
                yield Form(f"cvt.{mode}.{f}.{i}", (f,), (i,), from_integer(f, mode, False))
                if f in ("f32", "f64"):
                    yield Form(f"cvt.{mode}.sat.{f}.{i}", (f,), (i,), from_integer(f, mode, True))


def convert(bits: int, source: str, to: str, mode: str) -> int:
    """One float to another format."""
    f, into = FORMATS[source], FORMATS[to]
    value = exact.value_of(bits, f)
    sign = into.sign if bits & f.sign else 0
    if value == "nan":
        return into.nan
    if isinstance(value, str):
        return into.infinity | sign
    return exact.rounded(value, into, mode) if value else sign


def integral(bits: int, t: str, mode: str) -> int:
    f = FORMATS[t]
    value = exact.value_of(bits, f)
    if isinstance(value, str) or value == 0:
        return bits
    number = whole(value, mode)
    return exact.rounded(Fraction(number), f, "rn") if number else bits & f.sign


def between_floats() -> Iterator[Form]:
    for to, source in (("f32", "f64"), ("f64", "f32"), ("f32", "f32"), ("f64", "f64")):
        for ftz in (False, True):
            for sat in (False, True):
                tail = (".ftz" if ftz else "") + (".sat" if sat else "") + f".{to}.{source}"

                def reference(
                    f: Callable[[int], int],
                    source: str = source,
                    to: str = to,
                    ftz: bool = ftz,
                    sat: bool = sat,
                ) -> Callable[..., Any]:
                    def one(bits: int) -> int:
                        if ftz and source == "f32":
                            bits = exact.flush(bits, FORMATS[source])
                        value = f(bits)
                        if ftz and to == "f32":
                            value = exact.flush(value, FORMATS[to])
                        return exact.saturate(value, FORMATS[to]) if sat else value

                    return lambda values: elementwise(one, to_bits(source, values))

                if to == source:
                    yield Form(f"cvt{tail}", (to,), (source,), reference(lambda b: b))
                    for mode in MODES:
                        yield Form(
                            f"cvt.{mode}i{tail}",
                            (to,),
                            (source,),
                            reference(lambda b, t=to, m=mode: integral(b, t, m)),
                        )
                elif to == "f64":
                    yield Form(
                        f"cvt{tail}", (to,), (source,), reference(lambda b: convert(b, "f32", "f64", "rn"))
                    )
                else:
                    for mode in MODES:
                        yield Form(
                            f"cvt.{mode}{tail}",
                            (to,),
                            (source,),
                            reference(lambda b, m=mode: convert(b, "f64", "f32", m)),
                        )


def finite(bits: int, f: exact.Format) -> int:
    """.satfinite: what overflows or is infinite becomes the largest number; a NaN has no sign."""
    magnitude = bits & ~f.sign
    if magnitude > f.infinity:
        return f.nan
    return (f.infinity - 1) | bits & f.sign if magnitude == f.infinity else bits


def halves() -> Iterator[Form]:
    for h in ("f16", "bf16"):
        f = FORMATS[h]
        for mode in MODES:

            def narrow(bits: int, h: str = h, mode: str = mode) -> int:
                return convert(bits, "f32", h, mode)

            c = f"cvt.{mode}"
            yield Form(f"{c}.{h}.f32", (h,), ("f32",), arithmetic(("f32",), narrow, result=h))
            yield Form(
                f"{c}.{h}.f64",
                (h,),
                ("f64",),
                arithmetic(("f64",), lambda b, h=h, m=mode: convert(b, "f64", h, m), result=h),
            )
            for sat in (False, True):

                def flushed(bits: int, narrow: Any = narrow, sat: bool = sat, f: exact.Format = f) -> int:
                    value = narrow(exact.flush(bits, FORMATS["f32"]))
                    return exact.saturate(value, f) if sat else value

                yield Form(
                    f"{c}.ftz{'.sat' if sat else ''}.{h}.f32",
                    (h,),
                    ("f32",),
                    arithmetic(("f32",), flushed, result=h),
                )
            yield Form(f"{c}.sat.{h}.f32", (h,), ("f32",), arithmetic(("f32",), narrow, sat=True, result=h))
            for clamps in (False, True):
                for to_finite in (False, True):

                    def bounded(
                        bits: int,
                        narrow: Any = narrow,
                        h: str = h,
                        r: bool = clamps,
                        s: bool = to_finite,
                        f: exact.Format = f,
                    ) -> int:
                        value = narrow(bits)
                        if s:
                            value = finite(value, f)
                        return relu(value, h) if r else value

                    tail = (".relu" if clamps else "") + (".satfinite" if to_finite else "")
                    one = arithmetic(("f32",), bounded, result=h)
                    if tail:
                        yield Form(f"{c}{tail}.{h}.f32", (h,), ("f32",), one)
                    yield Form(
                        f"{c}{tail}.{h}x2.f32",
                        (f"{h}x2",),
                        ("f32", "f32"),
                        lambda a, b, one=one: one(a) << np.uint64(16) | one(b),
                        judge=halves_judge(h),
                    )
            for z in ("", ".ftz"):
                for sat in (False, True):
                    yield Form(
                        f"cvt.{mode}i{z}{'.sat' if sat else ''}.{h}.{h}",
                        (h,),
                        (h,),
                        arithmetic((h,), lambda b, h=h, m=mode: integral(b, h, m), sat=sat),
                    )
            other = "bf16" if h == "f16" else "f16"
            yield Form(
                f"{c}.{other}.{h}",
                (other,),
                (h,),
                arithmetic((h,), lambda b, h=h, o=other, m=mode: convert(b, h, o, m), result=other),
            )
        yield Form(f"cvt.sat.{h}.{h}", (h,), (h,), arithmetic((h,), lambda b: b, sat=True))
        if h == "bf16":
            # Without a rounding mode, as Triton writes it behind fp8.
            yield Form(
                "cvt.bf16.f16",
                (h,),
                ("f16",),
                arithmetic(("f16",), lambda b: convert(b, "f16", "bf16", "rn"), result=h),
            )
        for wide in ("f32", "f64"):

            def widen(bits: int, h: str = h, wide: str = wide) -> int:
                return convert(bits, h, wide, "rn")

            yield Form(f"cvt.{wide}.{h}", (wide,), (h,), arithmetic((h,), widen, result=wide))
        for ftz in (False, True):
            for sat in (False, True):
                if not ftz and not sat:
                    continue

                def to_single(bits: int, h: str = h, ftz: bool = ftz) -> int:
                    value = convert(bits, h, "f32", "rn")
                    return exact.flush(value, FORMATS["f32"]) if ftz else value

                tail = (".ftz" if ftz else "") + (".sat" if sat else "")
                yield Form(
                    f"cvt{tail}.f32.{h}", ("f32",), (h,), arithmetic((h,), to_single, sat=sat, result="f32")
                )


def tf32() -> Iterator[Form]:
    """f32 with ten bits of mantissa."""

    def one(bits: int, mode: str, clamps: bool, to_finite: bool) -> int:
        magnitude, sign = bits & 0x7FFFFFFF, bits & 0x80000000
        if magnitude > 0x7F800000:
            return 0x7FFFFFFF
        kept, rest = magnitude >> 13, magnitude & 0x1FFF
        if magnitude != 0x7F800000:
            if mode == "rna":
                kept += rest >= 0x1000
            elif mode == "rn":
                kept += rest > 0x1000 or (rest == 0x1000 and kept & 1)
        value = kept << 13
        if to_finite and value >= 0x7F800000:
            value = 0x7F7FE000
        return 0 if clamps and sign else value | sign

    for mode in ("rn", "rz", "rna"):
        for clamps in (False, True) if mode != "rna" else (False,):
            for to_finite in (False, True):
                tail = (".relu" if clamps else "") + (".satfinite" if to_finite else "")
                yield Form(
                    f"cvt.{mode}{tail}.tf32.f32",
                    ("b32",),
                    ("f32",),
                    lambda v, m=mode, c=clamps, s=to_finite: elementwise(
                        lambda b: one(b, m, c, s), v.view(np.uint32)
                    ),
                )


def all_forms() -> Iterator[Form]:
    yield from between_integers()
    yield from integers_and_floats()
    yield from between_floats()
    yield from halves()
    yield from tf32()
