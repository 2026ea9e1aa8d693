"""Exact rounding of rational numbers to binary floating formats: the reference for arithmetic.

Everything is integer arithmetic on numerators and denominators, so that no rounding of the host's takes part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Any, Final, TypeAlias

import numpy as np

NEAREST: Final = "rn"
MODES: Final = ("rn", "rz", "rm", "rp")

#: An integer and the power of two that it is multiplied by; or "nan", "inf", "-inf".
Number: TypeAlias = tuple[int, int] | str


@dataclass(frozen=True, slots=True, eq=False)
class Format:
    """A binary format with subnormals and infinity: IEEE 754's f16, f32, f64, and bf16."""

    mantissa: int
    exponent: int
    bias: int = field(init=False)
    sign: int = field(init=False)
    infinity: int = field(init=False)
    nan: int = field(init=False)
    #: What bits stand for; operands come again and again.
    numbers: dict[int, Number] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        infinity = ((1 << self.exponent) - 1) << self.mantissa
        for name, value in (
            ("bias", (1 << (self.exponent - 1)) - 1),
            ("sign", 1 << (self.mantissa + self.exponent)),
            ("infinity", infinity),
            ("nan", infinity | (1 << self.mantissa) - 1),
        ):
            object.__setattr__(self, name, value)


FORMATS: Final = {"f16": Format(10, 5), "bf16": Format(7, 8), "f32": Format(23, 8), "f64": Format(52, 11)}


def _number(bits: int, form: Format) -> Number:
    known = form.numbers.get(bits)
    if known is None:
        known = form.numbers[bits] = _take_apart(bits, form)
    return known


def _take_apart(bits: int, form: Format) -> Number:
    negative = bool(bits & form.sign)
    magnitude = bits & (form.sign - 1)
    if magnitude > form.infinity:
        return "nan"
    if magnitude == form.infinity:
        return "-inf" if negative else "inf"
    exponent, fraction = magnitude >> form.mantissa, magnitude & ((1 << form.mantissa) - 1)
    whole = fraction | ((1 << form.mantissa) if exponent else 0)
    return -whole if negative else whole, max(exponent, 1) - form.bias - form.mantissa


def value_of(bits: int, form: Format) -> Fraction | str:
    """The number, or "nan", "inf", "-inf"."""
    number = _number(bits, form)
    if isinstance(number, str):
        return number
    whole, power = number
    return Fraction(whole << power) if power >= 0 else Fraction(whole, 1 << -power)


def rounded(number: Fraction, form: Format, mode: str) -> int:
    """The bits of a number that is not zero, rounded once. Its denominator is a power of two."""
    power = number.denominator.bit_length() - 1
    assert number.denominator == 1 << power
    return _rounded(number.numerator, -power, form, mode)


def _rounded(whole: int, power: int, form: Format, mode: str, sticky: bool = False) -> int:
    """Of `whole` times two to the `power`, not zero. `sticky`: it is a little more in magnitude."""
    negative, whole = whole < 0, abs(whole)
    # The unit in the last place, not below that of subnormals.
    least = 1 - form.bias - form.mantissa
    unit = max(whole.bit_length() - 1 + power - form.mantissa, least)
    below = unit - power
    if below <= 0:
        kept, rest, half = whole << -below, 0, 1
    else:
        kept, rest, half = whole >> below, whole & ((1 << below) - 1), 1 << (below - 1)
    if mode == "rn":
        kept += rest > half or (rest == half and (sticky or bool(kept & 1)))
    elif mode != "rz" and (rest or sticky):
        kept += negative == (mode == "rm")
    bits = kept if unit == least else kept + ((unit - least) << form.mantissa)
    if bits >= form.infinity:
        away = mode == "rn" or (mode == "rp" and not negative) or (mode == "rm" and negative)
        bits = form.infinity if away else form.infinity - 1
    return bits | (form.sign if negative else 0)


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    (x, power), (y, lower) = (one, other) if one[1] >= other[1] else (other, one)
    return (x << (power - lower)) + y, lower


def _is_negative(bits: int, form: Format) -> bool:
    return bool(bits & form.sign)


def add(a: int, b: int, form: Format, mode: str, into: Format | None = None) -> int:
    """a + b of two numbers of `form`, rounded to `into` (by default `form`)."""
    into = into or form
    x, y = _number(a, form), _number(b, form)
    if isinstance(x, str) or isinstance(y, str):
        if "nan" in (x, y) or {x, y} == {"inf", "-inf"}:
            return into.nan
        which = x if isinstance(x, str) else y
        return into.infinity | (into.sign if which == "-inf" else 0)
    total, power = _sum(x, y)
    if total == 0:
        both = _is_negative(a, form) and _is_negative(b, form)
        differ = x[0] != 0 or _is_negative(a, form) != _is_negative(b, form)
        return into.sign if both or (differ and not both and mode == "rm") else 0
    return _rounded(total, power, into, mode)


def fma(a: int, b: int, c: int, form: Format, mode: str, add_form: Format | None = None) -> int:
    """a * b + c with one rounding; c, and the result, are of `add_form`."""
    into = add_form or form
    x, y, z = _number(a, form), _number(b, form), _number(c, into)
    negative = _is_negative(a, form) != _is_negative(b, form)
    if "nan" in (x, y, z):
        return into.nan
    if isinstance(x, str) or isinstance(y, str):
        if _is_zero(x) or _is_zero(y):
            return into.nan
        if isinstance(z, str) and (z == "-inf") != negative:
            return into.nan
        return into.infinity | (into.sign if negative else 0)
    if isinstance(z, str):
        return into.infinity | (into.sign if z == "-inf" else 0)
    product = x[0] * y[0], x[1] + y[1]
    total, power = _sum(product, z)
    if total == 0:
        negative_c = _is_negative(c, into)
        if product[0] == 0 and negative == negative_c:
            return into.sign if negative else 0
        return into.sign if mode == "rm" else 0
    return _rounded(total, power, into, mode)


def _is_zero(number: Number) -> bool:
    return not isinstance(number, str) and number[0] == 0


def multiply(a: int, b: int, form: Format, mode: str) -> int:
    """a * b."""
    x, y = _number(a, form), _number(b, form)
    sign = form.sign if _is_negative(a, form) != _is_negative(b, form) else 0
    if "nan" in (x, y):
        return form.nan
    if isinstance(x, str) or isinstance(y, str):
        return form.nan if _is_zero(x) or _is_zero(y) else form.infinity | sign
    product = x[0] * y[0]
    return _rounded(product, x[1] + y[1], form, mode) if product else sign


def divide(a: int, b: int, form: Format, mode: str) -> int:
    """a / b."""
    x, y = _number(a, form), _number(b, form)
    sign = form.sign if _is_negative(a, form) != _is_negative(b, form) else 0
    if "nan" in (x, y) or (isinstance(x, str) and isinstance(y, str)) or (_is_zero(x) and _is_zero(y)):
        return form.nan
    if isinstance(x, str) or _is_zero(y):
        return form.infinity | sign
    if isinstance(y, str) or _is_zero(x):
        return sign
    over, under = abs(x[0]), abs(y[0])
    # More bits than the result has; the rest only says that there is one.
    more = max(0, form.mantissa + 3 + under.bit_length() - over.bit_length())
    whole, rest = divmod(over << more, under)
    return _rounded(-whole if sign else whole, x[1] - y[1] - more, form, mode, sticky=rest != 0)


def square_root(a: int, form: Format, mode: str) -> int:
    """The root, by an integer root of twice the bits that the result has."""
    x = _number(a, form)
    if isinstance(x, str):
        return form.infinity if x == "inf" else form.nan
    whole, power = x
    if whole == 0:
        return a
    if whole < 0:
        return form.nan
    more = 2 * (form.mantissa + 4)
    more += (power - more) & 1  # the power of two is halved
    root = isqrt(whole << more)
    return _rounded(root, (power - more) // 2, form, mode, sticky=root * root != whole << more)


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
