"""Functions that PTX defines up to a bound: the bounds are those of the manual (section "Floating Point
Instructions"), the reference is numpy's extended precision, 64 bits of mantissa.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from tests.softgpu_values.exact import FORMATS
from tests.softgpu_values.forms import Form

_TINY: Final = 2.0**-126


def _flush(values: Any) -> Any:
    return np.where(np.abs(values) < _TINY, np.copysign(np.float32(0), values), values).astype(np.float32)


def within(
    relative: float = 0.0,
    absolute: float = 0.0,
    ulps: float = 0.0,
    mantissa: int = 23,
    tiny: float = _TINY,
    ftz: bool = False,
) -> Callable[..., Any]:
    """A judge: the error is at most relative * |value| + absolute + ulps. Zeros, infinities and NaN must be those of
    the reference; what rounds to infinity, or is flushed, may be."""

    def judge(got: Any, want: Any, _sources: Any) -> Any:
        with np.errstate(all="ignore"):
            g = got.astype(np.longdouble)
        largest = (
            np.longdouble(np.finfo(np.float32 if mantissa == 23 else np.float64).max)
            if mantissa > 10
            else np.longdouble(65504)
        )
        unit = np.ldexp(np.longdouble(1), np.frexp(np.where(np.isfinite(want), want, 0))[1] - 1 - mantissa)
        unit = np.maximum(unit, np.longdouble(tiny) * np.longdouble(2.0**-mantissa))
        with np.errstate(all="ignore"):
            allowed = relative * np.abs(want) + absolute + ulps * unit
        if ftz:
            allowed = allowed + np.where(np.abs(want) < 2 * tiny, np.longdouble(tiny), 0)
        with np.errstate(all="ignore"):
            good = np.abs(g - want) <= allowed
        overflows = np.isinf(g) & (np.abs(want) + allowed > largest) & (np.sign(g) == np.sign(want))
        same = (np.isnan(g) & np.isnan(want)) | (np.isinf(want) & (g == want))
        zeros = (want == 0) & np.isfinite(want) & (np.signbit(want) != np.signbit(g)) & (g == 0)
        return ~(good | overflows | same) | zeros

    return judge


def _long(values: Any) -> Any:
    return values.astype(np.longdouble)


def of(f: Callable[[Any], Any], ftz: bool) -> Callable[..., Any]:
    """The function in extended precision of the (flushed) operand."""

    def reference(*values: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*(_long(_flush(v) if ftz else v) for v in values))

    return reference


def single() -> Iterator[Form]:
    two, one = ("f32", "f32"), ("f32",)
    for ftz in (False, True):
        z = ".ftz" if ftz else ""
        # div.full: 2 ulp over the full range; div.approx: 2 ulp for |b| in [2**-126, 2**126], beyond it 0 or less exact.
        for name in ("full", "approx"):
            yield Form(
                f"div.{name}{z}.f32", ("f32",), two, of(lambda a, b: a / b, ftz), within(ulps=2, ftz=ftz)
            )
        yield Form(f"rcp.approx{z}.f32", ("f32",), one, of(lambda a: 1 / a, ftz), within(ulps=1, ftz=ftz))
        yield Form(f"sqrt.approx{z}.f32", ("f32",), one, of(np.sqrt, ftz), within(relative=2.0**-23, ftz=ftz))
        yield Form(
            f"rsqrt.approx{z}.f32",
            ("f32",),
            one,
            of(lambda a: 1 / np.sqrt(a), ftz),
            within(relative=2.0**-22.9, ftz=ftz),
        )
        yield Form(f"ex2.approx{z}.f32", ("f32",), one, of(np.exp2, ftz), within(ulps=2, ftz=ftz))
        yield Form(f"lg2.approx{z}.f32", ("f32",), one, of(np.log2, ftz), _logarithmic(ftz))
        for name, f in (("sin", np.sin), ("cos", np.cos)):
            # 2**-20.5 in [-2 pi, 2 pi]; beyond 2**-14.7 up to 100 pi, and without a bound further out.
            yield Form(f"{name}.approx{z}.f32", ("f32",), one, of(f, ftz), _trigonometric(ftz))
    yield Form("tanh.approx.f32", ("f32",), one, of(np.tanh, False), within(relative=2.0**-11))


def _logarithmic(ftz: bool) -> Callable[..., Any]:
    near, far = within(absolute=2.0**-22, ftz=ftz), within(relative=2.0**-22, ftz=ftz)

    def judge(got: Any, want: Any, sources: Any) -> Any:
        around_one = (sources[0] > 0.5) & (sources[0] < 2)
        return np.where(around_one, near(got, want, sources), far(got, want, sources))

    return judge


def _trigonometric(ftz: bool) -> Callable[..., Any]:
    near = within(absolute=2.0**-20.5, ftz=ftz)

    def judge(got: Any, want: Any, sources: Any) -> Any:
        far = np.abs(sources[0]) > 100 * np.pi
        return near(got, want, sources) & ~(far & (np.abs(got) <= 1))

    return judge


def double() -> Iterator[Form]:
    one = ("f64",)
    yield Form(
        "rsqrt.approx.f64",
        ("f64",),
        one,
        of(lambda a: 1 / np.sqrt(a), False),
        within(ulps=2, mantissa=52, tiny=2.0**-1022),
    )
    # Gross approximations of the upper half of a double; subnormal operands and results are flushed.
    tiny = 2.0**-1022

    def seed(f: Callable[[Any], Any]) -> Callable[..., Any]:
        def reference(a: Any) -> Any:
            with np.errstate(all="ignore"):
                value = f(_long(np.where(np.abs(a) < tiny, np.copysign(0.0, a), a)))
                return np.where(np.abs(value) < tiny, np.copysign(np.longdouble(0), value), value)

        return reference

    yield Form(
        "rcp.approx.ftz.f64",
        ("f64",),
        one,
        seed(lambda a: 1 / a),
        within(relative=2.0**-20, mantissa=52, tiny=tiny),
    )
    yield Form(
        "rsqrt.approx.ftz.f64",
        ("f64",),
        one,
        seed(lambda a: 1 / np.sqrt(a)),
        within(relative=2.0**-20, mantissa=52, tiny=tiny),
    )


def halves() -> Iterator[Form]:
    """ex2 and tanh of f16 (relative 2**-9.9, 2**-10.987) and bf16 (2**-7, 2**-8)."""
    for t in ("f16", "bf16"):
        tiny = 2.0**-14 if t == "f16" else _TINY
        flush_small = t == "bf16"
        for name, f, bound in (
            ("ex2", np.exp2, 2.0**-9.9 if t == "f16" else 2.0**-7),
            ("tanh", np.tanh, 2.0**-10.987 if t == "f16" else 2.0**-8),
        ):
            z = ".ftz" if name == "ex2" and flush_small else ""
            if name == "ex2" and t == "f16":
                both = within(relative=bound, ulps=0.51, mantissa=10, tiny=tiny)
                yield Form("ex2.approx.ftz.f16", (t,), (t,), of(f, False), both)
                yield from _packed("ex2.approx.ftz.f16", t, of(f, False), both)
            mantissa = FORMATS[t].mantissa
            judge = within(relative=bound, ulps=0.51, mantissa=mantissa, tiny=tiny, ftz=bool(z))
            opcode = f"{name}.approx{z}.{t}"
            yield Form(opcode, (t,), (t,), of(f, bool(z)), judge)
            yield from _packed(opcode, t, of(f, bool(z)), judge)


def _packed(opcode: str, t: str, reference: Callable[..., Any], judge: Callable[..., Any]) -> Iterator[Form]:
    def halves_of(word: Any) -> tuple[Any, Any]:
        parts = []
        for shift in (0, 16):
            bits = (word >> np.uint32(shift)).astype(np.uint16)
            wide = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
            parts.append(wide if t == "bf16" else bits.view(np.float16).astype(np.float32))
        return parts[0], parts[1]

    def both(word: Any) -> Any:
        return np.stack([reference(half) for half in halves_of(word)], axis=1)

    def judge_both(got: Any, want: Any, sources: Any) -> Any:
        low, high = halves_of(got)
        return judge(low, want[:, 0], sources) | judge(high, want[:, 1], sources)

    yield Form(f"{opcode}x2", (f"{t}x2",), (f"{t}x2",), both, judge_both)


def all_forms() -> Iterator[Form]:
    yield from single()
    yield from double()
    yield from halves()
