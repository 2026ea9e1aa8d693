"""Video instructions, by the manual's pseudocode on Python's integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tests.softgpu_values.forms import Form
from tests.softgpu_values.integer_forms import clamp, each

OPERATIONS: Final[dict[str, Callable[[int, int], int]]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
}
COMPARE: Final[dict[str, Callable[[int, int], bool]]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
SECOND: Final[dict[str, Callable[[int, int, bool], int]]] = {
    "add": lambda t, c, _s: t + c,
    "min": lambda t, c, s: min(number(t, 32, s), number(c, 32, s)),
    "max": lambda t, c, s: max(number(t, 32, s), number(c, 32, s)),
}


def number(word: int, width: int, signed: bool) -> int:
    value = word & ((1 << width) - 1)
    return value - (1 << width) if signed and value >> (width - 1) else value


def part(word: int, selector: str, signed: bool) -> int:
    """%r, %r.b2, %r.h1"""
    if not selector:
        return number(word, 32, signed)
    width = 8 if selector[0] == "b" else 16
    return number(word >> (width * int(selector[1])), width, signed)


def saturated(value: int, width: int, signed: bool) -> int:
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    return clamp(value, low, high)


def merged(value: int, selector: str, c: int) -> int:
    width = 8 if selector[0] == "b" else 16
    at = width * int(selector[1])
    ones = ((1 << width) - 1) << at
    return c & ~ones | value << at & ones


def dotted(name: str, selector: str) -> str:
    return f"{{{name}}}.{selector}" if selector else f"{{{name}}}"


def scalar_forms() -> Iterator[Form]:
    types = ("b32", "b32", "b32")
    kinds = [(name, f, "") for name, f in OPERATIONS.items()]
    kinds += [("vset", lambda a, b, f=f: int(f(a, b)), name) for name, f in COMPARE.items()]
    kinds += [
        (name, lambda a, n, left=name == "vshl", w=how == "wrap": a << (n & 31 if w else min(n, 32)) if left
         else a >> (n & 31 if w else min(n, 32)), how)
        for name in ("vshl", "vshr") for how in ("clamp", "wrap")
    ]  # fmt: skip
    for turn, (name, f, how) in enumerate(kinds):
        for signs in (("s", "s", "s"), ("u", "u", "u"), ("s", "u", "s")):
            for select_a, select_b in (("", ""), ("b3", "h1"), ("h0", "b1")):
                for sat in (False, True) if name != "vset" else (False,):
                    tail = ("", ".add", ".min", ".max", "h1", "b2")[(turn + len(select_a) + sat) % 6]
                    if name.startswith("vsh"):
                        signs = (signs[0], signs[1], "u")
                    shown = [f"{s}32" for s in (signs[1:] if name == "vset" else signs)]
                    result_signed = name != "vset" and signs[0] == "s"
                    opcode = ".".join([name, *shown, *(["sat"] if sat else []), *([how] if how else [])])
                    merge = tail if tail and tail[0] != "." else ""
                    text = opcode + ("" if merge else tail) + f" {dotted('d', merge)}, "
                    text += f"{dotted('a', select_a)}, {dotted('b', select_b)}" + (", {c};" if tail else ";")

                    def reference(
                        a: int, b: int, c: int, f: Callable[[int, int], int] = f, signs: tuple[str, ...] = signs,
                        select: tuple[str, str] = (select_a, select_b), sat: bool = sat, tail: str = tail,
                        merge: str = merge, result_signed: bool = result_signed,
                    ) -> int:  # fmt: skip
                        value = f(part(a, select[0], signs[1] == "s"), part(b, select[1], signs[2] == "s"))
                        width = {"": 32, "b": 8, "h": 16}[merge[:1]]
                        if sat:
                            value = saturated(value, width, result_signed)
                        if merge:
                            return merged(value, merge, c)
                        return SECOND[tail[1:]](value, c, result_signed) if tail else value

                    yield Form(text.split(" ")[0], ("b32",), types, each(reference), text=text)


def several_forms() -> Iterator[Form]:
    """In two and four parts: unmasked parts come from c; .add sums the parts and c."""
    types = ("b32", "b32", "b32")
    kinds = [(name, f, "") for name, f in OPERATIONS.items()]
    kinds += [("vset", lambda a, b, f=f: int(f(a, b)), name) for name, f in COMPARE.items()]
    for parts, letter, selections in ((2, "h", ("", "h32", "h03")), (4, "b", ("", "b7531", "b0426"))):
        width = 32 // parts
        defaults = {2: ("h10", "h32"), 4: ("b3210", "b7654")}[parts]
        for turn, (name, f, how) in enumerate(kinds):
            for signed in (True, False):
                for selection in selections:
                    for tail in ("", ".add", "mask"):
                        sat = name != "vset" and tail != ".add" and turn % 2 == 0
                        t = "s32" if signed else "u32"
                        shown = [t, t] if name == "vset" else [t, t, t]
                        opcode = ".".join(
                            [name + str(parts), *shown, *(["sat"] if sat else []), *([how] if how else [])]
                        )
                        mask = f"{letter}{parts - 1}" if tail == "mask" else ""
                        text = opcode + (tail if tail == ".add" else "") + f" {dotted('d', mask)}, "
                        text += f"{dotted('a', selection)}, {{b}}, {{c}};"

                        def reference(
                            a: int, b: int, c: int, f: Callable[[int, int], int] = f, signed: bool = signed,
                            choose: tuple[str, str] = (selection or defaults[0], defaults[1]), sat: bool = sat,
                            tail: str = tail, parts: int = parts, width: int = width,
                        ) -> int:  # fmt: skip
                            both = b << 32 | a
                            total, word = c, c
                            for k in range(parts):
                                if tail == "mask" and k != parts - 1:
                                    continue
                                x, y = (
                                    number(both >> (width * int(s[parts - k])), width, signed) for s in choose
                                )
                                value = f(x, y)
                                if sat:
                                    value = saturated(value, width, signed)
                                total += value
                                ones = ((1 << width) - 1) << (width * k)
                                word = word & ~ones | value << (width * k) & ones
                            return total if tail == ".add" else word

                        yield Form(text.split(" ")[0], ("b32",), types, each(reference), text=text)


def multiply_forms() -> Iterator[Form]:
    types = ("b32", "b32", "b32")
    for signs in (("s", "s", "s"), ("u", "u", "u")):
        for select_a, select_b in (("", ""), ("b3", "h1")):
            for scale in ("", ".shr7", ".shr15"):
                for sat in (False, True):
                    signed = signs[0] == "s"
                    variants = ((False, False, False), (False, False, True))
                    if signed:
                        variants += ((True, False, False), (False, True, False))
                    for negate_a, negate_c, plus in variants:
                        opcode = (
                            "vmad."
                            + ".".join(f"{s}32" for s in signs)
                            + (".po" if plus else "")
                            + (".sat" if sat else "")
                            + scale
                        )
                        a, c = (
                            ("-" if negate_a else "") + dotted("a", select_a),
                            ("-" if negate_c else "") + "{c}",
                        )
                        text = f"{opcode} {{d}}, {a}, {dotted('b', select_b)}, {c};"

                        def reference(
                            a: int, b: int, c: int, signed: bool = signed, select: tuple[str, str] = (select_a, select_b),
                            scale: str = scale, sat: bool = sat, negate: tuple[bool, bool] = (negate_a, negate_c),
                            plus: bool = plus,
                        ) -> int:  # fmt: skip
                            product = part(a, select[0], signed) * part(b, select[1], signed)
                            addend = number(c, 32, signed)
                            total = (
                                (-product if negate[0] else product)
                                + (-addend if negate[1] else addend)
                                + plus
                            )
                            total >>= int(scale[4:] or 0)
                            return saturated(total, 32, signed) if sat else total

                        yield Form(opcode, ("b32",), types, each(reference), text=text)


def all_forms() -> Iterator[Form]:
    yield from scalar_forms()
    yield from several_forms()
    yield from multiply_forms()
