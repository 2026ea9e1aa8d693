"""Logic, shifts and bit fields, by Python's integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.softgpu_values.forms import Form
from tests.softgpu_values.integer_forms import each


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def per_width() -> Iterator[Form]:
    for width in (16, 32, 64):
        b, u, s = f"b{width}", f"u{width}", f"s{width}"
        ones = (1 << width) - 1

        def two(name: str, f: Callable[[int, int], int], b: str = b) -> Form:
            return Form(f"{name}.{b}", (b,), (b, b), each(f))

        yield two("and", lambda x, y: x & y)
        yield two("or", lambda x, y: x | y)
        yield two("xor", lambda x, y: x ^ y)
        yield Form(f"not.{b}", (b,), (b,), each(lambda x, ones=ones: x ^ ones))
        yield Form(f"cnot.{b}", (b,), (b,), each(lambda x: int(x == 0)))
        yield Form(f"shl.{b}", (b,), (b, "shift"), each(lambda x, n, w=width: x << min(n, w)))
        for t in (b, u):
            yield Form(f"shr.{t}", (t,), (t, "shift"), each(lambda x, n, w=width: x >> min(n, w)))
        yield Form(f"shr.{s}", (s,), (s, "shift"), each(lambda x, n, w=width: x >> min(n, w)))
    for name, f in (("and", lambda x, y: x & y), ("or", lambda x, y: x | y), ("xor", lambda x, y: x ^ y)):
        yield Form(f"{name}.pred", ("pred",), ("pred", "pred"), each(f))
    yield Form("not.pred", ("pred",), ("pred",), each(lambda x: 1 - x))


def _highest(value: int, width: int, is_signed: bool) -> int:
    if is_signed and value < 0:
        value = ~value
    return value.bit_length() - 1 if value else -1


def extract(a: int, position: int, length: int, width: int, is_signed: bool) -> int:
    """The manual's own words: bits beyond the end are the sign, or zero."""
    position, length = position & 0xFF, length & 0xFF
    word = a & ((1 << width) - 1)
    top = width - 1
    sign = 0
    if is_signed and length:
        sign = word >> min(position + length - 1, top) & 1
    result = 0
    for i in range(width):
        inside = i < length and position + i <= top
        result |= (word >> (position + i) & 1 if inside else sign) << i
    return result


def insert(a: int, b: int, position: int, length: int, width: int) -> int:
    position, length = position & 0xFF, length & 0xFF
    result = b
    for i in range(min(length, width)):
        if position + i < width:
            result = result & ~(1 << (position + i)) | (a >> i & 1) << (position + i)
    return result


def fields() -> Iterator[Form]:
    for width in (32, 64):
        b = f"b{width}"
        yield Form(f"popc.{b}", ("u32",), (b,), each(lambda x: x.bit_count()))
        yield Form(f"clz.{b}", ("u32",), (b,), each(lambda x, w=width: w - x.bit_length()))
        yield Form(f"brev.{b}", (b,), (b,), each(lambda x, w=width: int(f"{x:0{w}b}"[::-1], 2)))
        for t in (f"u{width}", f"s{width}"):
            is_signed = t[0] == "s"

            def find(x: int, w: int = width, is_signed: bool = is_signed) -> int:
                return _highest(x, w, is_signed)

            def amount(x: int, w: int = width, is_signed: bool = is_signed) -> int:
                found = _highest(x, w, is_signed)
                return -1 if found < 0 else w - 1 - found

            def bfe(x: int, p: int, n: int, w: int = width, is_signed: bool = is_signed) -> int:
                return extract(x, p, n, w, is_signed)

            yield Form(f"bfind.{t}", ("u32",), (t,), each(find))
            yield Form(f"bfind.shiftamt.{t}", ("u32",), (t,), each(amount))
            yield Form(f"bfe.{t}", (t,), (t, "shift", "shift"), each(bfe))
        yield Form(
            f"bfi.{b}",
            (b,),
            (b, b, "shift", "shift"),
            each(lambda x, y, p, n, w=width: insert(x, y, p, n, w)),
        )


def funnel(low: int, high: int, amount: int, left: bool, wrap: bool) -> int:
    n = amount & 31 if wrap else min(amount, 32)
    both = high << 32 | low
    return (both << n >> 32) & 0xFFFFFFFF if left else both >> n & 0xFFFFFFFF


def lookup(a: int, b: int, c: int, table: int) -> int:
    return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32))


def permute(a: int, b: int, selectors: list[int]) -> int:
    data = [(b << 32 | a) >> (8 * k) & 0xFF for k in range(8)]
    result = 0
    for k, selector in enumerate(selectors):
        byte = data[selector & 7]
        if selector & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << (8 * k)
    return result


def permute_mode(a: int, b: int, c: int, mode: str) -> int:
    """The manual's tables, as rules."""
    n = c & 3
    chosen = {
        "f4e": [n, n + 1, n + 2, n + 3],
        "b4e": [n, n - 1, n - 2, n - 3],
        "rc8": [n] * 4,
        "ecl": [max(k, n) for k in range(4)],
        "ecr": [min(k, n) for k in range(4)],
        "rc16": [2 * (n & 1), 2 * (n & 1) + 1] * 2,
    }[mode]
    return permute(a, b, [k % 8 for k in chosen])


def nth_set(mask: int, base: int, offset: int) -> int:
    if base > 31:
        return -1
    if offset == 0:
        return base if mask >> base & 1 else -1
    places = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [k for k in places if mask >> k & 1]
    return found[abs(offset) - 1] if abs(offset) <= len(found) else -1


def bit_mask(start: int, width: int, wrap: bool) -> int:
    if wrap:
        start, width = start & 31, width & 31
    return sum(1 << k for k in range(32) if start <= k < start + width)


def sign_extended(value: int, width: int, wrap: bool, is_signed: bool) -> int:
    if wrap:
        width &= 31
    if width == 0:
        return 0
    if width >= 32:
        return value
    kept = value & ((1 << width) - 1)
    return signed(kept, width) if is_signed else kept


def words() -> Iterator[Form]:
    w = "b32"
    for direction in ("l", "r"):
        for how in ("clamp", "wrap"):
            yield Form(
                f"shf.{direction}.{how}.b32",
                (w,),
                (w, w, "shift"),
                each(lambda x, y, n, d=direction, h=how: funnel(x, y, n, d == "l", h == "wrap")),
            )
    for how in ("clamp", "wrap"):
        wraps = how == "wrap"
        yield Form(f"bmsk.{how}.b32", (w,), ("shift", "shift"), each(lambda x, y, h=wraps: bit_mask(x, y, h)))
        for t in ("u32", "s32"):

            def extend(x: int, n: int, wraps: bool = wraps, is_signed: bool = t == "s32") -> int:
                return sign_extended(x, n, wraps, is_signed)

            yield Form(f"szext.{how}.{t}", (t,), (t, "shift"), each(extend))
    for table in (0x80, 0x1B, 0xE8):
        yield Form(
            "lop3.b32",
            (w,),
            (w, w, w),
            each(lambda x, y, z, t=table: lookup(x, y, z, t)),
            text=f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table};",
        )
    for name, f in (("or", lambda p, q: p | q), ("and", lambda p, q: p & q)):

        def with_predicate(*arrays, f=f):  # type: ignore[no-untyped-def]
            values = each(lambda x, y, z: lookup(x, y, z, 0x3F))(*arrays[:3])
            return values, f((values != 0).astype(int), arrays[3].astype(int))

        yield Form(
            f"lop3.{name}.b32",
            (w, "pred"),
            (w, w, w, "pred"),
            with_predicate,
            text=f"lop3.{name}.b32 {{d}}|{{e}}, {{a}}, {{b}}, {{c}}, 0x3F, {{g}};",
        )
    yield Form(
        "prmt.b32",
        (w,),
        (w, w, w),
        each(lambda x, y, c: permute(x, y, [c >> (4 * k) & 15 for k in range(4)])),
    )
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        yield Form(
            f"prmt.b32.{mode}", (w,), (w, w, w), each(lambda x, y, c, m=mode: permute_mode(x, y, c, m))
        )
    yield Form("fns.b32", (w,), (w, "shift", "s32"), each(lambda m, p, n: nth_set(m, p, n)))


def all_forms() -> Iterator[Form]:
    yield from per_width()
    yield from fields()
    yield from words()
