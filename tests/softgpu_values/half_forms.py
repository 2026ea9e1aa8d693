"""f16 and bf16, one or two in a register, by exact rational numbers rounded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from tests.softgpu_values.exact import FORMATS
from tests.softgpu_values.float_forms import arithmetic, operations, sign_forms
from tests.softgpu_values.forms import Form


def relu(bits: int, t: str) -> int:
    f = FORMATS[t]
    is_nan = bits & ~f.sign > f.infinity
    return 0 if bits & f.sign and not is_nan else bits


def in_both_halves(one: Callable[..., Any], t: str) -> Callable[..., Any]:
    """The reference of a packed register from that of its halves."""

    def halves(word: Any, shift: int) -> Any:
        bits = (word >> np.uint32(shift)).astype(np.uint16)
        if t == "bf16":
            return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return bits.view(np.float16).astype(np.float32)

    def both(*words: Any) -> Any:
        low, high = (one(*(halves(word, shift) for word in words)) for shift in (0, 16))
        return low & np.uint64(0xFFFF) | (high & np.uint64(0xFFFF)) << np.uint64(16)

    return both


def halves_judge(t: str) -> Callable[..., Any]:
    """Equal in both halves; any NaN is as good as another."""
    f = FORMATS[t]

    def judge(got: Any, want: Any, _sources: Any) -> Any:
        bad = np.zeros(len(got), bool)
        for shift in (0, 16):
            g = np.asarray(got, np.uint64) >> np.uint64(shift) & np.uint64(0xFFFF)
            w = np.asarray(want, np.uint64) >> np.uint64(shift) & np.uint64(0xFFFF)
            magnitude = np.uint64(f.sign - 1)
            both_nan = (g & magnitude > f.infinity) & (w & magnitude > f.infinity)
            bad |= (g != w) & ~both_nan
        return bad

    return judge


def scalar_forms(t: str) -> Iterator[Form]:
    for name in ("add", "sub", "mul", "fma"):
        count, by_mode = operations(t)[name]
        types = (t,) * count
        f = lru_cache(maxsize=None)(by_mode("rn"))
        for ftz in (False, True) if t == "f16" else (False,):
            for sat in (False, True) if t == "f16" else (False,):
                tail = (".ftz" if ftz else "") + (".sat" if sat else "") + f".{t}"
                reference = arithmetic(types, f, ftz, sat)
                yield Form(f"{name}.rn{tail}", (t,), types, reference)
                if name != "fma":
                    yield Form(f"{name}{tail}", (t,), types, reference)
            if name == "fma":
                z = ".ftz" if ftz else ""

                def clamped(a: int, b: int, c: int, f: Any = f, t: str = t) -> int:
                    return relu(f(a, b, c), t)

                yield Form(f"fma.rn{z}.relu.{t}", (t,), types, arithmetic(types, clamped, ftz))
    yield from sign_forms((t,))


def all_forms() -> Iterator[Form]:
    for t in ("f16", "bf16"):
        for form in scalar_forms(t):
            yield form
            packed = f"{t}x2"
            yield Form(
                form.opcode.removesuffix(t) + packed,
                (packed,),
                (packed,) * len(form.sources),
                in_both_halves(form.reference, t),
                judge=halves_judge(t),
            )
