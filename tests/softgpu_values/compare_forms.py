"""setp, set, selp and slct, by numpy's comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from tests.softgpu_values.forms import Form
from tests.softgpu_values.half_forms import halves_judge

ORDERED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
#: For unsigned operands the same under other names.
UNSIGNED_NAMES: Final = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
COMBINE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    ".and": lambda a, c: a & c,
    ".or": lambda a, c: a | c,
    ".xor": lambda a, c: a ^ c,
}


def floating(name: str) -> Callable[[Any, Any], Any]:
    """A comparison of floats: the plain ones are false when an operand is NaN, those with u are true."""

    def compare(a: Any, b: Any) -> Any:
        unordered = np.isnan(a) | np.isnan(b)
        if name == "num":
            return ~unordered
        if name == "nan":
            return unordered
        if name in ORDERED:
            return ORDERED[name](a, b) & ~unordered
        return ORDERED[name[:-1]](a, b) | unordered

    return compare


FLOATING: Final = (*ORDERED, *(f"{name}u" for name in ORDERED), "num", "nan")


def flushed(values: Any, tiny: float) -> Any:
    return np.where(np.abs(values) < tiny, np.copysign(0, values), values)


_TINY: Final = {"f32": 2.0**-126, "f16": 2.0**-14}


def comparisons(t: str) -> Iterator[tuple[str, Callable[[Any, Any], Any], str]]:
    """Name, function, and ".ftz" or "" of every comparison of a type."""
    if t in ("f16", "bf16", "f32", "f64"):
        for name in FLOATING:
            f = floating(name)
            yield name, f, ""
            if t in _TINY:
                yield name, lambda a, b, f=f, tiny=_TINY[t]: f(flushed(a, tiny), flushed(b, tiny)), ".ftz"
        return
    names = dict(ORDERED)
    if t[0] != "s":
        names |= {new: ORDERED[old] for new, old in UNSIGNED_NAMES.items()}
    for name, f in names.items():
        yield name, f, ""


def value_types(t: str) -> dict[str, tuple[str, int]]:
    """What `set` may write for a comparison of `t`: the type, how it is stored, and what true is."""
    if t in ("f16", "bf16"):
        one = 0x3C00 if t == "f16" else 0x3F80
        small = dict.fromkeys(("u16", "s16"), ("b16", 65535))
        return {t: (t, one), **small, "u32": ("b32", 0xFFFFFFFF), "s32": ("b32", 0xFFFFFFFF)}
    return {
        **dict.fromkeys(("u32", "s32", "b32"), ("b32", 4294967295)),
        "f32": ("f32", 0x3F800000),
    }


def scalar_forms() -> Iterator[Form]:
    types = ("u16", "b16", "s16", "u32", "b32", "s32", "u64", "b64", "s64", "f32", "f64", "f16", "bf16")
    for t in types:
        for name, f, ftz in comparisons(t):

            def both(a: Any, b: Any, f: Any = f) -> Any:
                truth = f(a, b)
                return truth, ~truth

            yield Form(f"setp.{name}{ftz}.{t}", ("pred", "pred"), (t, t), both)
            for to, (stored, one) in value_types(t).items():
                yield Form(
                    f"set.{name}{ftz}.{to}.{t}", (stored,), (t, t), lambda a, b, f=f, one=one: f(a, b) * one
                )
            for word, combine in COMBINE.items():

                def combined(a: Any, b: Any, c: Any, f: Any = f, combine: Any = combine) -> Any:
                    truth = f(a, b)
                    return combine(truth, c != 0), combine(~truth, c != 0)

                yield Form(f"setp.{name}{word}{ftz}.{t}", ("pred", "pred"), (t, t, "pred"), combined)
                for to, (stored, one) in value_types(t).items():
                    yield Form(
                        f"set.{name}{word}{ftz}.{to}.{t}",
                        (stored,),
                        (t, t, "pred"),
                        lambda a, b, c, f=combined, one=one: f(a, b, c)[0] * one,
                    )


def _half(word: Any, shift: int, t: str) -> Any:
    bits = (word >> np.uint32(shift)).astype(np.uint16)
    if t == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits.view(np.float16).astype(np.float32)


def packed_forms() -> Iterator[Form]:
    """setp writes a predicate per half, set a value per half."""
    for t in ("f16", "bf16"):
        p = f"{t}x2"
        one = 0x3C00 if t == "f16" else 0x3F80
        for name, f, ftz in comparisons(t):

            def halves(a: Any, b: Any, f: Any = f, t: str = t) -> Any:
                return f(_half(a, 0, t), _half(b, 0, t)), f(_half(a, 16, t), _half(b, 16, t))

            for word, combine in {"": None, **COMBINE}.items():
                sources = (p, p) if combine is None else (p, p, "pred")

                def truth(a: Any, b: Any, *c: Any, halves: Any = halves, combine: Any = combine) -> Any:
                    low, high = halves(a, b)
                    return (
                        (low, high)
                        if combine is None
                        else (combine(low, c[0] != 0), combine(high, c[0] != 0))
                    )

                def words(*v: Any, truth: Any = truth, yes: int = 0xFFFF) -> Any:
                    low, high = truth(*v)
                    return low.astype(np.uint64) * yes | high.astype(np.uint64) * (yes << 16)

                yield Form(f"setp.{name}{word}{ftz}.{p}", ("pred", "pred"), sources, truth)
                for to in ("u32", "s32"):
                    yield Form(f"set.{name}{word}{ftz}.{to}.{p}", ("b32",), sources, words)
                yield Form(
                    f"set.{name}{word}{ftz}.{p}.{p}",
                    (p,),
                    sources,
                    lambda *v, words=words, one=one: words(*v, yes=one),
                    judge=halves_judge(t),
                )


def selections() -> Iterator[Form]:
    types = {
        "16": ("b16", "u16", "s16", "f16", "bf16"),
        "32": ("b32", "u32", "s32", "f32"),
        "64": ("b64", "u64", "s64", "f64"),
    }
    for width, names in types.items():
        b = f"b{width}"
        for t in names:
            yield Form(f"selp.{t}", (b,), (b, b, "pred"), lambda x, y, c: np.where(c != 0, x, y))
            if t in ("f16", "bf16"):
                continue
            yield Form(f"slct.{t}.s32", (b,), (b, b, "s32"), lambda x, y, c: np.where(c >= 0, x, y))
            yield Form(f"slct.{t}.f32", (b,), (b, b, "f32"), lambda x, y, c: np.where(c >= 0, x, y))
            yield Form(
                f"slct.ftz.{t}.f32",
                (b,),
                (b, b, "f32"),
                lambda x, y, c: np.where(flushed(c, 2.0**-126) >= 0, x, y),
            )
    yield Form("selp.pred", ("pred",), ("pred", "pred", "pred"), lambda x, y, c: np.where(c != 0, x, y))


def all_forms() -> Iterator[Form]:
    yield from scalar_forms()
    yield from packed_forms()
    yield from selections()
