"""cvt of the 8-, 6- and 4-bit floats and of ue8m0, by the list of all values that a format has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tests.softgpu_values.forms import Form


@dataclass(frozen=True, slots=True)
class Small:
    """A format without infinity in conversions: they saturate."""

    mantissa: int
    exponent: int
    nan: bool  # what is not a number has a pattern of its own; else it becomes the largest number

    @property
    def bits(self) -> int:
        return 1 + self.mantissa + self.exponent

    def values(self) -> Any:
        """The value of each pattern without sign; NaN and infinity where it has them."""
        top = (1 << self.exponent) - 1
        bias = (1 << (self.exponent - 1)) - 1
        numbers = []
        for pattern in range(1 << (self.bits - 1)):
            exponent, fraction = pattern >> self.mantissa, pattern & ((1 << self.mantissa) - 1)
            if exponent == 0:
                numbers.append(fraction * 2.0 ** (1 - bias - self.mantissa))
            else:
                numbers.append((1 + fraction / (1 << self.mantissa)) * 2.0 ** (exponent - bias))
            if self == E5M2 and exponent == top:
                numbers[-1] = np.inf if fraction == 0 else np.nan
            if self == E4M3 and pattern == 0x7F:
                numbers[-1] = np.nan
        return np.array(numbers)


E4M3: Final = Small(3, 4, True)
E5M2: Final = Small(2, 5, True)
FORMATS: Final = {
    "e4m3": E4M3,
    "e5m2": E5M2,
    "e3m2": Small(2, 3, False),
    "e2m3": Small(3, 2, False),
    "e2m1": Small(1, 2, False),
}


def to_small(values: Any, form: Small, mode: str, relu: bool) -> Any:
    """Nearest (ties to the even pattern) or towards zero, among the finite values."""
    exact = values.astype(np.float64)
    magnitude, negative = np.abs(exact), np.signbit(exact)
    finite = form.values()
    finite = finite[np.isfinite(finite)]
    above = np.searchsorted(finite, magnitude, side="left").clip(0, len(finite) - 1)
    below = (above - (finite[above] > magnitude)).clip(0)
    if mode == "rz":
        pattern = below
    else:
        # Distances are exact: both numbers have few bits, or the distance decides by its size alone.
        down, up = magnitude - finite[below], finite[above] - magnitude
        pattern = np.where(
            down < up, below, np.where(up < down, above, np.where(below % 2 == 0, below, above))
        )
    pattern = np.where(magnitude >= finite[-1], len(finite) - 1, pattern)
    result = pattern | negative.astype(np.int64) << (form.bits - 1)
    if relu:
        result = np.where(negative, 0, result)
    return np.where(np.isnan(exact), (1 << (form.bits - 1)) - 1, result).astype(np.uint64)


def _half(word: Any, shift: int, t: str) -> Any:
    bits = (word >> np.uint32(shift)).astype(np.uint16)
    if t == "bf16x2":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits.view(np.float16).astype(np.float32)


def from_small(pattern: Any, form: Small, wide: str, relu: bool) -> Any:
    magnitude = form.values()[pattern & ((1 << (form.bits - 1)) - 1)]
    negative = pattern >> (form.bits - 1) & 1 == 1
    values = np.where(negative, 0.0 if relu else -magnitude, magnitude)
    values = np.where(np.isnan(magnitude), np.nan, values)
    if wide == "f16x2":
        bits = values.astype(np.float16).view(np.uint16)
        return np.where(np.isnan(values), 0x7FFF, bits).astype(np.uint64)
    bits = values.astype(np.float32).view(np.uint32) >> np.uint32(16)
    return np.where(np.isnan(values), 0x7FFF, bits).astype(np.uint64)


def small_floats() -> Iterator[Form]:
    for name, form in FORMATS.items():
        pair = f"{name}x2"
        width = np.uint64(4 if name == "e2m1" else 8)
        stored = "u8" if name == "e2m1" else "pair8"
        for relu in (False, True):
            r = ".relu" if relu else ""
            for mode in ("rn", "rz"):

                def narrow(values: Any, form: Small = form, mode: str = mode, relu: bool = relu) -> Any:
                    return to_small(values, form, mode, relu)

                def pairs(a: Any, b: Any, narrow: Callable[..., Any] = narrow, width: Any = width) -> Any:
                    return narrow(a) << width | narrow(b)

                yield Form(f"cvt.{mode}.satfinite{r}.{pair}.f32", (stored,), ("f32", "f32"), pairs)
                for wide in ("f16x2", "bf16x2"):
                    yield Form(
                        f"cvt.{mode}.satfinite{r}.{pair}.{wide}",
                        (stored,),
                        (wide,),
                        lambda w, pairs=pairs, wide=wide: pairs(_half(w, 16, wide), _half(w, 0, wide)),
                    )
            for wide in ("f16x2", "bf16x2"):

                def widen(
                    word: Any, form: Small = form, wide: str = wide, relu: bool = relu, width: Any = width
                ) -> Any:
                    ones = (1 << int(width)) - 1
                    low = from_small(word.astype(np.int64) & ones, form, wide, relu)
                    high = from_small(word.astype(np.int64) >> int(width) & ones, form, wide, relu)
                    return low | high << np.uint64(16)

                yield Form(f"cvt.rn{r}.{wide}.{pair}", (wide,), (stored,), widen)


def to_exponent(values: Any, mode: str, finite: bool) -> Any:
    """ue8m0: a power of two from 2**-127 to 2**127, or NaN (255)."""
    magnitude = np.abs(values.astype(np.float64))
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(magnitude)
    exponent = exponent - 1  # magnitude = 1.x * 2**exponent
    exact = magnitude == np.ldexp(1.0, np.where(np.isfinite(magnitude), exponent, 0))
    pattern = exponent + 127 + (0 if mode == "rz" else ~exact)
    pattern = np.where(magnitude <= 2.0**-127, 0, pattern)
    overflow = 254 if finite else 255
    pattern = np.where(np.isinf(magnitude) | (pattern > 254), overflow, pattern)
    return np.where(np.isnan(magnitude), 255, pattern).clip(0, 255).astype(np.uint64)


def exponents() -> Iterator[Form]:
    for mode in ("rz", "rp"):
        for finite in (False, True):
            name = f"cvt.{mode}{'.satfinite' if finite else ''}.ue8m0x2"

            def pairs(a: Any, b: Any, mode: str = mode, finite: bool = finite) -> Any:
                return to_exponent(a, mode, finite) << np.uint64(8) | to_exponent(b, mode, finite)

            yield Form(f"{name}.f32", ("pair8",), ("f32", "f32"), pairs)
            yield Form(
                f"{name}.bf16x2",
                ("pair8",),
                ("bf16x2",),
                lambda w, pairs=pairs: pairs(_half(w, 16, "bf16x2"), _half(w, 0, "bf16x2")),
            )

    def widen(word: Any) -> Any:
        def one(pattern: Any) -> Any:
            bits = np.ldexp(1.0, pattern.astype(np.int64) - 127).astype(np.float32).view(
                np.uint32
            ) >> np.uint32(16)
            return np.where(pattern == 255, 0x7FFF, bits).astype(np.uint64)

        return one(word >> 8) << np.uint64(16) | one(word & 255)

    yield Form("cvt.rn.bf16x2.ue8m0x2", ("bf16x2",), ("pair8",), widen)


def all_forms() -> Iterator[Form]:
    yield from small_floats()
    yield from exponents()
