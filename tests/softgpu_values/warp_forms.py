"""What the 32 lanes of a warp do together, and opcodes that only hand values on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import numpy as np

from tests.softgpu_values.float_forms import extremum
from tests.softgpu_values.forms import Form

ALL = 0xFFFFFFFF


def whole_warps(got: Any, want: Any, _sources: Any) -> Any:
    """The last warp of a launch may have fewer lanes; it is not judged."""
    bad = np.asarray(got).astype(np.uint64) != np.asarray(want).astype(np.uint64)
    bad[len(bad) // 32 * 32 :] = False
    return bad


def by_warp(f: Callable[..., Any]) -> Callable[..., Any]:
    """A reference from a function of the 32 values of a warp (each a list), giving a list or a tuple of lists."""

    def reference(*arrays: Any) -> Any:
        count = len(arrays[0])
        rows = []
        for first in range(0, count, 32):
            lanes = [a[first : first + 32].tolist() for a in arrays]
            if len(lanes[0]) < 32:
                lanes = [lane + [0] * (32 - len(lane)) for lane in lanes]
            made = f(*lanes)
            rows.append(made if isinstance(made, tuple) else (made,))
        columns = tuple(
            np.array([int(v) & 0xFFFFFFFFFFFFFFFF for row in rows for v in row[k]], np.uint64)[:count]
            for k in range(len(rows[0]))
        )
        return columns if len(columns) > 1 else columns[0]

    return reference


def shuffled(mode: str) -> Callable[..., tuple[list[int], list[int]]]:
    """The manual's pseudocode of shfl."""

    def shuffle(a: list[int], b: list[int], c: list[int]) -> tuple[list[int], list[int]]:
        values, valid = [], []
        for lane in range(32):
            value, clamp, segment = b[lane] & 31, c[lane] & 31, c[lane] >> 8 & 31
            last = (lane & segment) | (clamp & ~segment & 31)
            first = lane & segment
            if mode == "up":
                j = lane - value
                inside = j >= last
            elif mode == "down":
                j = lane + value
                inside = j <= last
            elif mode == "bfly":
                j = lane ^ value
                inside = j <= last
            else:
                j = first | (value & ~segment & 31)
                inside = j <= last
            values.append(a[j if inside else lane])
            valid.append(int(inside))
        return values, valid

    return shuffle


def everyone(f: Callable[[list[int]], int]) -> Callable[..., list[int]]:
    return lambda a: [f(a)] * 32


def lanes() -> Iterator[Form]:
    w3 = ("b32", "shift", "shift")
    for mode in ("up", "down", "bfly", "idx"):
        reference = by_warp(shuffled(mode))
        for sync in (True, False):
            name = f"shfl.{'sync.' if sync else ''}{mode}.b32"
            tail = ", -1" if sync else ""
            yield Form(
                name,
                ("b32", "pred"),
                w3,
                reference,
                whole_warps,
                f"{name} {{d}}|{{e}}, {{a}}, {{b}}, {{c}}{tail};",
            )

    def ballot(a: list[int]) -> int:
        return sum(bool(v) << k for k, v in enumerate(a))

    votes: dict[str, tuple[str, str, Callable[[list[int]], int]]] = {
        "all": ("pred", "pred", lambda a: int(all(a))),
        "any": ("pred", "pred", lambda a: int(any(a))),
        "uni": ("pred", "pred", lambda a: int(len(set(map(bool, a))) == 1)),
        "ballot": ("b32", "b32", ballot),
    }
    for mode, (result, t, f) in votes.items():
        # Whole warps agree seldom by chance: a comparison with the lane's neighbour in value makes them.
        for name, tail in (
            (f"vote.sync.{mode}.{t}", ", -1"),
            (f"vote.{mode}.sync.{t}", ", -1"),
            (f"vote.{mode}.{t}", ""),
        ):
            yield Form(
                name, (result,), ("pred",), by_warp(everyone(f)), whole_warps, f"{name} {{d}}, {{a}}{tail};"
            )
            agree = f"mov.pred %p8, 1; {name} {{d}}, %p8{tail};"
            yield Form(
                name, (result,), ("b32",), by_warp(everyone(lambda _a, f=f: f([1] * 32))), whole_warps, agree
            )
    for width in (32, 64):
        b = f"b{width}"

        def match_any(a: list[int]) -> list[int]:
            return [sum((x == y) << k for k, y in enumerate(a)) for x in a]

        def match_all(a: list[int]) -> tuple[list[int], list[int]]:
            same = len(set(a)) == 1
            return [ALL if same else 0] * 32, [int(same)] * 32

        few = f"and.{b} {{a}}, {{a}}, 3;"
        yield Form(
            f"match.any.sync.{b}",
            ("b32",),
            (b,),
            by_warp(lambda a: match_any([v & 3 for v in a])),
            whole_warps,
            few + f" match.any.sync.{b} {{d}}, {{a}}, -1;",
        )
        yield Form(
            f"match.all.sync.{b}",
            ("b32", "pred"),
            (b,),
            by_warp(match_all),
            whole_warps,
            f"match.all.sync.{b} {{d}}|{{e}}, {{a}}, -1;",
        )
        yield Form(
            f"match.all.sync.{b}",
            ("b32", "pred"),
            (b,),
            by_warp(lambda _a: match_all([0] * 32)),
            whole_warps,
            f"match.all.sync.{b} {{d}}|{{e}}, 7, -1;",
        )
    yield Form(
        "activemask.b32",
        ("b32",),
        ("b32",),
        by_warp(everyone(lambda _a: ALL)),
        whole_warps,
        "activemask.b32 {d};",
    )
    yield Form(
        "elect.sync",
        ("b32", "pred"),
        ("b32",),
        by_warp(lambda _a: ([0] * 32, [1] + [0] * 31)),
        whole_warps,
        "elect.sync {d}|{e}, -1;",
    )
    operations: dict[str, tuple[tuple[str, ...], Callable[[list[int]], int]]] = {
        "add": (("u32", "s32"), sum),
        "min": (("u32", "s32"), min),
        "max": (("u32", "s32"), max),
        "and": (("b32",), lambda a: reduce(lambda x, y: x & y, a)),
        "or": (("b32",), lambda a: reduce(lambda x, y: x | y, a)),
        "xor": (("b32",), lambda a: reduce(lambda x, y: x ^ y, a)),
    }
    for name, (types, f) in operations.items():
        for t in types:
            opcode = f"redux.sync.{name}.{t}"
            reference = by_warp(lambda a, f=f: [f(a) & ALL] * 32)
            yield Form(opcode, (t,), (t,), reference, judge=words, text=f"{opcode} {{d}}, {{a}}, -1;")
    for name in ("min", "max"):
        for magnitude in (False, True):
            for nan in (False, True):
                opcode = f"redux.sync.{name}{'.abs' if magnitude else ''}{'.NaN' if nan else ''}.f32"

                def least(
                    a: list[float], g: bool = name == "max", m: bool = magnitude, n: bool = nan
                ) -> list[int]:
                    bits = np.array(a, np.float32).view(np.uint32).tolist()
                    first = bits[0] & 0x7FFFFFFF if m else bits[0]
                    result = reduce(lambda x, y: extremum(x, y, "f32", g, n, False, m), bits[1:], first)
                    return [0x7FFFFFFF if result & 0x7FFFFFFF > 0x7F800000 else result] * 32

                yield Form(
                    opcode, ("b32",), ("f32",), by_warp(least), whole_warps, f"{opcode} {{d}}, {{a}}, -1;"
                )


def words(got: Any, want: Any, _sources: Any) -> Any:
    """Signed or unsigned, by the low 32 bits."""
    return whole_warps(
        np.asarray(got).astype(np.int64) & ALL, np.asarray(want).astype(np.uint64) & np.uint64(ALL), None
    )


def moves() -> Iterator[Form]:
    for width, names in {
        16: ("b16", "u16", "s16", "f16", "bf16"),
        32: ("b32", "u32", "s32", "f32", "f16x2", "bf16x2"),
        64: ("b64", "u64", "s64", "f64"),
    }.items():
        b = f"b{width}"
        for t in names:
            yield Form(f"mov.{t}", (b,), (b,), lambda a: a)
    yield Form("mov.pred", ("pred",), ("pred",), lambda a: a)
    yield Form(
        "mov.b128",
        ("b64", "b64"),
        ("b64", "b64"),
        lambda a, b: (a, b),
        text="{{ .reg .b128 %q<3>; mov.b128 %q1, {{{a}, {b}}}; mov.b128 %q2, %q1; mov.b128 {{{d}, {e}}}, %q2; }}",
    )
    # There and back: a generic address names the same place. (One below 64 KiB counts from the first parameter.)
    for name in ("shared", "shared::cta", "shared::cluster", "local", "global", "const", "param"):
        least = 0x10000 if name == "param" else 0
        if name:
            yield Form(
                f"cvta.{name}.u64",
                ("b64",),
                ("b64",),
                lambda a, least=least: a | np.uint64(least),
                text=f"or.b64 %x8, {{a}}, {least}; cvta.{name}.u64 %x8, %x8; cvta.to.{name}.u64 {{d}}, %x8;",
            )
            yield Form(
                f"cvta.to.{name}.u64",
                ("b64",),
                ("b64",),
                lambda a, least=least: a | np.uint64(least),
                text=f"or.b64 %x8, {{a}}, {least}; cvta.to.{name}.u64 %x8, %x8; cvta.{name}.u64 {{d}}, %x8;",
            )
            yield Form(
                f"isspacep.{name}",
                ("pred",),
                ("b64",),
                lambda a, name=name: np.full(len(a), int(name == "global")),
                text=f"mov.u64 %x8, 4096; isspacep.{name} {{d}}, %x8;",
            )
    yield Form(
        "isspacep.param::entry",
        ("pred",),
        ("b64",),
        lambda a: np.zeros(len(a)),
        text="mov.u64 %x8, 4096; isspacep.param::entry {d}, %x8;",
    )
    for t in ("u32", "u64"):
        for space in ("", ".shared::cluster"):
            yield Form(f"mapa{space}.{t}", (t,), (t,), lambda a: a, text=f"mapa{space}.{t} {{d}}, {{a}}, 0;")
            yield Form(f"getctarank{space}.{t}", ("u32",), (t,), lambda a: np.zeros(len(a)))


def all_forms() -> Iterator[Form]:
    yield from lanes()
    yield from moves()
