"""Exact rounding of rational numbers to binary floating formats: the reference for arithmetic.

Everything is integer arithmetic on numerators and denominators, so that no rounding of the host's takes part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Any, Final

import numpy as np

NEAREST: Final = "rn"
MODES: Final = ("rn", "rz", "rm", "rp")


@dataclass(frozen=True, slots=True)
class Format:
    """A binary format with subnormals and infinity: IEEE 754's f16, f32, f64, and bf16."""

    mantissa: int
    exponent: int

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def sign(self) -> int:
        return 1 << (self.mantissa + self.exponent)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def nan(self) -> int:
        return self.infinity | (1 << self.mantissa) - 1


FORMATS: Final = {"f16": Format(10, 5), "bf16": Format(7, 8), "f32": Format(23, 8), "f64": Format(52, 11)}


@lru_cache(maxsize=1 << 16)
def value_of(bits: int, form: Format) -> Fraction | str:
    """The number, or "nan", "inf", "-inf"."""
    negative = bool(bits & form.sign)
    magnitude = bits & (form.sign - 1)
    if magnitude > form.infinity:
        return "nan"
    if magnitude == form.infinity:
        return "-inf" if negative else "inf"
    exponent, fraction = magnitude >> form.mantissa, magnitude & ((1 << form.mantissa) - 1)
    scale = max(exponent, 1) - form.bias - form.mantissa
    whole = fraction | ((1 << form.mantissa) if exponent else 0)
    number = Fraction(whole << scale) if scale >= 0 else Fraction(whole, 1 << -scale)
    return -number if negative else number


def rounded(number: Fraction, form: Format, mode: str, sticky: bool = False) -> int:
    """The bits of a number that is not zero, rounded once. `sticky`: a little more in magnitude than `number`."""
    negative = number < 0
    numerator, denominator = abs(number.numerator), number.denominator
    # The exponent of the leading bit, then the unit in the last place, not below that of subnormals.
    leading = numerator.bit_length() - denominator.bit_length()
    if (numerator << max(-leading, 0)) < (denominator << max(leading, 0)):
        leading -= 1
    unit = max(leading, 1 - form.bias) - form.mantissa
    scaled_numerator = numerator << max(-unit, 0)
    scaled_denominator = denominator << max(unit, 0)
    kept, rest = divmod(scaled_numerator, scaled_denominator)
    twice = 2 * rest
    inexact = rest != 0 or sticky
    if mode == "rn":
        up = twice > scaled_denominator or (twice == scaled_denominator and (sticky or kept & 1))
    elif mode == "rz":
        up = False
    else:
        up = inexact and negative == (mode == "rm")
    kept += bool(up)
    biased = unit + form.mantissa + form.bias
    bits = kept if unit == 1 - form.bias - form.mantissa else kept + ((biased - 1) << form.mantissa)
    if bits >= form.infinity:
        away = mode == "rn" or (mode == "rp" and not negative) or (mode == "rm" and negative)
        bits = form.infinity if away else form.infinity - 1
    return bits | (form.sign if negative else 0)


def _is_negative(bits: int, form: Format) -> bool:
    return bool(bits & form.sign)


def add(a: int, b: int, form: Format, mode: str, into: Format | None = None) -> int:
    """a + b of two numbers of `form`, rounded to `into` (by default `form`)."""
    into = into or form
    x, y = value_of(a, form), value_of(b, form)
    if isinstance(x, str) or isinstance(y, str):
        if "nan" in (x, y) or {x, y} == {"inf", "-inf"}:
            return into.nan
        which = x if isinstance(x, str) else y
        return into.infinity | (into.sign if which == "-inf" else 0)
    total = x + y
    if total == 0:
        both = _is_negative(a, form) and _is_negative(b, form)
        differ = x != 0 or _is_negative(a, form) != _is_negative(b, form)
        return into.sign if both or (differ and not both and mode == "rm") else 0
    return rounded(total, into, mode)


def fma(a: int, b: int, c: int, form: Format, mode: str, add_form: Format | None = None) -> int:
    """a * b + c with one rounding; c, and the result, are of `add_form`."""
    into = add_form or form
    x, y, z = value_of(a, form), value_of(b, form), value_of(c, into)
    negative = _is_negative(a, form) != _is_negative(b, form)
    if "nan" in (x, y, z):
        return into.nan
    if isinstance(x, str) or isinstance(y, str):
        if x == 0 or y == 0:
            return into.nan
        if isinstance(z, str) and (z == "-inf") != negative:
            return into.nan
        return into.infinity | (into.sign if negative else 0)
    if isinstance(z, str):
        return into.infinity | (into.sign if z == "-inf" else 0)
    total = x * y + z
    if total == 0:
        negative_c = _is_negative(c, into)
        if x * y == 0 and negative == negative_c:
            return into.sign if negative else 0
        return into.sign if mode == "rm" else 0
    return rounded(total, into, mode)


def multiply(a: int, b: int, form: Format, mode: str) -> int:
    """a * b."""
    x, y = value_of(a, form), value_of(b, form)
    sign = form.sign if _is_negative(a, form) != _is_negative(b, form) else 0
    if "nan" in (x, y):
        return form.nan
    if isinstance(x, str) or isinstance(y, str):
        return form.nan if x == 0 or y == 0 else form.infinity | sign
    return rounded(x * y, form, mode) if x * y != 0 else sign


def divide(a: int, b: int, form: Format, mode: str) -> int:
    """a / b."""
    x, y = value_of(a, form), value_of(b, form)
    sign = form.sign if _is_negative(a, form) != _is_negative(b, form) else 0
    if "nan" in (x, y) or (isinstance(x, str) and isinstance(y, str)) or (x == 0 and y == 0):
        return form.nan
    if isinstance(x, str) or y == 0:
        return form.infinity | sign
    if isinstance(y, str) or x == 0:
        return sign
    return rounded(x / y, form, mode)


def square_root(a: int, form: Format, mode: str) -> int:
    """The root, by an integer root of twice the bits that the result has."""
    x = value_of(a, form)
    if isinstance(x, str):
        return form.infinity if x == "inf" else form.nan
    if x == 0:
        return a
    if x < 0:
        return form.nan
    shift = 2 * (form.mantissa + 4) + 2 * max(0, x.denominator.bit_length() - x.numerator.bit_length())
    shift += shift & 1
    scaled = (x.numerator << shift) // x.denominator
    root = isqrt(scaled)
    sticky = root * root * x.denominator != x.numerator << shift
    return rounded(Fraction(root, 1 << (shift // 2)), form, mode, sticky)


def flush(bits: int, form: Format) -> int:
    """A subnormal number becomes zero of the same sign."""
    return bits & form.sign if bits & (form.sign - 1) < 1 << form.mantissa else bits


def saturate(bits: int, form: Format) -> int:
    """Clamped to [0, 1]; NaN becomes +0."""
    one = form.bias << form.mantissa
    if bits & form.sign or bits > form.infinity:
        return 0
    return min(bits, one)


def elementwise(scalar: Callable[..., int], *arrays: Any) -> Any:
    """The function of Python integers for each element of arrays of bits, repeated operands computed once."""
    remembered = lru_cache(maxsize=None)(scalar)
    rows = zip(*(array.tolist() for array in arrays), strict=True)
    return np.array([remembered(*row) for row in rows], np.uint64)
