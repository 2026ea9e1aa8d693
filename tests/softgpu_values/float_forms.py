"""f32 and f64 arithmetic, by exact rational numbers rounded once (`exact.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np

from tests.softgpu_values import exact
from tests.softgpu_values.exact import FORMATS, MODES, elementwise
from tests.softgpu_values.forms import Form

_WORD: Final = {"f32": np.uint32, "f64": np.uint64, "f16": np.uint16, "bf16": np.uint16}


def to_bits(type_name: str, values: Any) -> Any:
    """The bits of decoded operands; bf16 and f16 come decoded as float32."""
    if type_name == "bf16":
        return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if type_name == "f16":
        with np.errstate(all="ignore"):
            return values.astype(np.float16).view(np.uint16)
    return values.view(_WORD[type_name])


def arithmetic(
    types: tuple[str, ...], scalar: Callable[..., int], ftz: bool = False, sat: bool = False, result: str = ""
) -> Callable[..., Any]:
    """A reference of bits: operands flushed, the function, the result flushed and saturated."""
    result = result or types[0]

    def one(*bits: int) -> int:
        if ftz:
            bits = tuple(exact.flush(b, FORMATS[t]) for b, t in zip(bits, types, strict=True))
        value = scalar(*bits)
        if ftz:
            value = exact.flush(value, FORMATS[result])
        return exact.saturate(value, FORMATS[result]) if sat else value

    def reference(*values: Any) -> Any:
        return elementwise(one, *(to_bits(t, v) for t, v in zip(types, values, strict=True)))

    return reference


def negated(bits: int, t: str) -> int:
    return bits ^ FORMATS[t].sign


def operations(t: str) -> dict[str, tuple[int, Callable[..., Callable[..., int]]]]:
    """Name -> how many operands, and mode -> function of bits."""
    f = FORMATS[t]
    one = f.bias << f.mantissa
    return {
        "add": (2, lambda mode: lambda a, b: exact.add(a, b, f, mode)),
        "sub": (2, lambda mode: lambda a, b: exact.add(a, negated(b, t), f, mode)),
        "mul": (2, lambda mode: lambda a, b: exact.multiply(a, b, f, mode)),
        "fma": (3, lambda mode: lambda a, b, c: exact.fma(a, b, c, f, mode)),
        "mad": (3, lambda mode: lambda a, b, c: exact.fma(a, b, c, f, mode)),
        "div": (2, lambda mode: lambda a, b: exact.divide(a, b, f, mode)),
        "sqrt": (1, lambda mode: lambda a: exact.square_root(a, f, mode)),
        "rcp": (1, lambda mode: lambda a: exact.divide(one, a, f, mode)),
    }


def rounded_forms() -> Iterator[Form]:
    for t in ("f32", "f64"):
        for name, (count, by_mode) in operations(t).items():
            types = (t,) * count
            for mode in MODES:
                # Shared by the forms with .ftz and .sat, most of whose operands are the same.
                once = lru_cache(maxsize=None)(by_mode(mode))
                for ftz in (False, True) if t == "f32" else (False,):
                    saturates = t == "f32" and name in ("add", "sub", "mul", "fma", "mad")
                    for sat in (False, True) if saturates else (False,):
                        tail = (".ftz" if ftz else "") + (".sat" if sat else "") + f".{t}"
                        reference = arithmetic(types, once, ftz, sat)
                        yield Form(f"{name}.{mode}{tail}", (t,), types, reference)
                        bare = name in ("add", "sub", "mul") or (
                            name == "mad" and t == "f32" and not (ftz and sat)
                        )
                        if bare and mode == "rn":
                            yield Form(f"{name}{tail}", (t,), types, reference)


def packed_forms() -> Iterator[Form]:
    """Two f32 in one register."""
    for name in ("add", "sub", "mul", "fma"):
        count, by_mode = operations("f32")[name]
        for mode in MODES:
            once = lru_cache(maxsize=None)(by_mode(mode))
            for ftz in (False, True):
                one = arithmetic(("f32",) * count, once, ftz)

                def both(*values: Any, one: Callable[..., Any] = one) -> Any:
                    low = one(
                        *((v & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32) for v in values)
                    )
                    high = one(*((v >> np.uint64(32)).astype(np.uint32).view(np.float32) for v in values))
                    return low | high << np.uint64(32)

                tail = (".ftz" if ftz else "") + ".f32x2"
                yield Form(f"{name}.{mode}{tail}", ("f32x2",), ("f32x2",) * count, both, judge=packed_judge)
                if mode == "rn" and name != "fma":
                    yield Form(f"{name}{tail}", ("f32x2",), ("f32x2",) * count, both, judge=packed_judge)


def packed_judge(got: Any, want: Any, _sources: Any) -> Any:
    bad = np.zeros(len(got), bool)
    for shift in (np.uint64(0), np.uint64(32)):
        g = (got >> shift & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        w = (np.asarray(want, np.uint64) >> shift & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        bad |= (g != w) & ~(np.isnan(g.view(np.float32)) & np.isnan(w.view(np.float32)))
    return bad


def mixed_forms() -> Iterator[Form]:
    """add, sub and fma in f32 of 16-bit operands."""
    into = FORMATS["f32"]
    for t in ("f16", "bf16"):
        small = FORMATS[t]

        def widen(bits: int, small: exact.Format = small) -> int:
            value = exact.value_of(bits, small)
            sign = into.sign if bits & small.sign else 0
            if value == "nan":
                return into.nan
            if isinstance(value, str):
                return into.infinity | sign
            return exact.rounded(value, into, "rn") if value != 0 else sign

        for mode in MODES:
            for sat in (False, True):
                tail = (".sat" if sat else "") + f".f32.{t}"

                def plus(a: int, c: int, mode: str = mode, widen: Any = widen) -> int:
                    return exact.add(widen(a), c, into, mode)

                def minus(a: int, c: int, mode: str = mode, widen: Any = widen) -> int:
                    return exact.add(widen(a), c ^ into.sign, into, mode)

                def fused(a: int, b: int, c: int, mode: str = mode, widen: Any = widen) -> int:
                    return exact.fma(widen(a), widen(b), c, into, mode)

                for name, f in (("add", plus), ("sub", minus)):
                    reference = arithmetic((t, "f32"), f, sat=sat, result="f32")
                    yield Form(f"{name}.{mode}{tail}", ("f32",), (t, "f32"), reference)
                    if mode == "rn":
                        yield Form(f"{name}{tail}", ("f32",), (t, "f32"), reference)
                yield Form(
                    f"fma.{mode}{tail}",
                    ("f32",),
                    (t, t, "f32"),
                    arithmetic((t, t, "f32"), fused, sat=sat, result="f32"),
                )


def extremum(
    a: int, b: int, t: str, greatest: bool, nan_wins: bool, xorsign: bool, magnitudes: bool = False
) -> int:
    """min and max as the manual tells them: -0 below +0, a NaN loses unless .NaN."""
    f = FORMATS[t]
    sign = (a ^ b) & f.sign
    if xorsign or magnitudes:
        a, b = a & ~f.sign, b & ~f.sign
    a_nan, b_nan = a & ~f.sign > f.infinity, b & ~f.sign > f.infinity
    if (a_nan and b_nan) or (nan_wins and (a_nan or b_nan)):
        result = f.nan
        return result & ~f.sign | sign if xorsign else result
    if a_nan or b_nan:
        result = b if a_nan else a
    else:

        def order(bits: int) -> int:
            return -1 - (bits & ~f.sign) if bits & f.sign else bits

        result = (max if greatest else min)(a, b, key=order)
    return result & ~f.sign | sign if xorsign else result


def sign_forms(types: tuple[str, ...] = ("f32", "f64")) -> Iterator[Form]:
    """What only moves or compares bits: neg abs min max copysign testp."""
    for t in types:
        f = FORMATS[t]
        for ftz in (False, True) if t in ("f32", "f16") else (False,):
            z = ".ftz" if ftz else ""
            yield Form(f"neg{z}.{t}", (t,), (t,), arithmetic((t,), lambda a, f=f: a ^ f.sign, ftz))
            yield Form(f"abs{z}.{t}", (t,), (t,), arithmetic((t,), lambda a, f=f: a & ~f.sign, ftz))
            for name in ("min", "max"):
                for nan in (False, True) if t != "f64" else (False,):
                    for xorsign in (False, True) if t != "f64" else (False,):
                        tail = z + (".NaN" if nan else "") + (".xorsign.abs" if xorsign else "")

                        def of_two(
                            a: int,
                            b: int,
                            t: str = t,
                            g: bool = name == "max",
                            n: bool = nan,
                            x: bool = xorsign,
                        ) -> int:
                            return extremum(a, b, t, g, n, x)

                        yield Form(f"{name}{tail}.{t}", (t,), (t, t), arithmetic((t, t), of_two, ftz))
                    if t != "f32":
                        continue

                    def of_three(a: int, b: int, c: int, g: bool = name == "max", n: bool = nan) -> int:
                        return extremum(extremum(a, b, "f32", g, n, False), c, "f32", g, n, False)

                    def magnitudes(a: int, b: int, c: int, g: bool = name == "max", n: bool = nan) -> int:
                        first = extremum(a, b, "f32", g, n, False, True)
                        return extremum(first, c, "f32", g, n, False, True)

                    plain = f"{name}{z}{'.NaN' if nan else ''}"
                    three = ("f32", "f32", "f32")
                    yield Form(f"{plain}.f32", ("f32",), three, arithmetic(three, of_three, ftz))
                    yield Form(f"{plain}.abs.f32", ("f32",), three, arithmetic(three, magnitudes, ftz))
    for t in ("f32", "f64") if "f32" in types else ():
        f = FORMATS[t]
        yield Form(
            f"copysign.{t}", (t,), (t, t), arithmetic((t, t), lambda a, b, f=f: b & ~f.sign | a & f.sign)
        )
        for name, test in {
            "finite": lambda x: np.isfinite(x),
            "infinite": lambda x: np.isinf(x),
            "number": lambda x: ~np.isnan(x),
            "notanumber": lambda x: np.isnan(x),
            # "positive and negative zero are considered normal numbers" (PTX ISA, testp)
            "normal": lambda x: np.isfinite(x) & ((x == 0) | (np.abs(x) >= np.finfo(x.dtype).tiny)),
            "subnormal": lambda x: (x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny),
        }.items():
            yield Form(f"testp.{name}.{t}", ("pred",), (t,), test)


def all_forms() -> Iterator[Form]:
    yield from rounded_forms()
    yield from packed_forms()
    yield from mixed_forms()
    yield from sign_forms()
