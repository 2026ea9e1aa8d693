"""What a tested opcode is, and the kernel that runs it on thousands of values at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np

from tests.softgpu_values.device import Device
from tests.softgpu_values.values import STORAGE, Bits, decode, operands

Reference = Callable[..., Any]
#: How wrong a result may be: gets (results, expected, sources), all decoded, and returns the mask of bad ones.
Judge = Callable[[Any, Any, tuple[Any, ...]], Any]

HEADER: Final = ".version 9.4\n.target sm_120a\n.address_size 64\n"
COUNT: Final = 1024
THREADS: Final = 256


@dataclass(frozen=True, slots=True)
class Form:
    """One opcode with its types.

    `results` and `sources` are names of types ("u32", "f16", "pred"). `reference` gets the decoded sources and
    returns the bits of the result, or a tuple of them. `text` replaces the plain "opcode d, a, b;" where more is
    needed: {d}, {e} are results, {a}, {b}, {c}, {g} sources.
    """

    opcode: str
    results: tuple[str, ...]
    sources: tuple[str, ...]
    reference: Reference
    judge: Judge | None = None
    text: str = ""


def expand(pattern: str) -> Iterator[str]:
    """`add{.sat,}.{u32,s32}` -> every string that choosing one alternative per brace gives."""
    parts: list[list[str]] = []
    rest = pattern
    while "{" in rest:
        before, _, tail = rest.partition("{")
        inside, _, rest = tail.partition("}")
        parts += [[before], inside.split(",")]
    parts.append([rest])
    for chosen in product(*parts):
        yield "".join(chosen)


_REGISTER: Final = {2: "%h", 4: "%r", 8: "%x"}


def kernel_text(name: str, form: Form) -> str:
    """A kernel with parameters (count, results..., sources...): element i of each, one opcode."""
    lines = [f".visible .entry {name}("]
    buffers = [f"d{k}" for k in range(len(form.results))] + [f"s{k}" for k in range(len(form.sources))]
    lines.append(", ".join(".param .u64 " + n for n in ["n", *buffers]) + ") {")
    lines.append(
        ".reg .pred %p<9>, %in; .reg .b16 %h<9>; .reg .b32 %r<9>, %i; .reg .b64 %x<9>, %at, %i64, %n;"
    )
    lines.append(
        "mov.u32 %i, %ctaid.x; mov.u32 %r0, %ntid.x; mov.u32 %r1, %tid.x; mad.lo.u32 %i, %i, %r0, %r1;"
    )
    lines.append("cvt.u64.u32 %i64, %i; ld.param.u64 %n, [n]; setp.ge.u64 %in, %i64, %n; @%in ret;")
    names: list[str] = []
    for k, type_name in enumerate(form.results + form.sources):
        is_result = k < len(form.results)
        size = STORAGE[type_name].itemsize
        own = f"%p{k}" if type_name == "pred" else f"{_REGISTER[size]}{k + 1}"
        names.append(own)
        if is_result:
            continue
        raw = f"%r{k + 1}" if type_name == "pred" else own
        lines.append(f"ld.param.u64 %at, [{buffers[k]}]; mad.lo.u64 %at, %i64, {size}, %at;")
        lines.append(f"ld.global.b{8 * size} {raw}, [%at];")
        if type_name == "pred":
            lines.append(f"setp.ne.u32 {own}, {raw}, 0;")
    results, sources = names[: len(form.results)], names[len(form.results) :]
    if form.text:
        given = dict(zip("de", results, strict=False)) | dict(zip("abcgh", sources, strict=False))
        lines.append(form.text.format(**given))
    else:
        lines.append(f"{form.opcode} {'|'.join(results)}, {', '.join(sources)};")
    for k, type_name in enumerate(form.results):
        size = STORAGE[type_name].itemsize
        raw = results[k]
        if type_name == "pred":
            raw = "%r8"
            lines.append(f"selp.u32 {raw}, 1, 0, {results[k]};")
        lines.append(f"ld.param.u64 %at, [{buffers[k]}]; mad.lo.u64 %at, %i64, {size}, %at;")
        lines.append(f"st.global.b{8 * size} [%at], {raw};")
    lines.append("ret;\n}")
    return "\n".join(lines)


def run(
    device: Device, forms: Sequence[Form], least: int = COUNT
) -> Iterator[tuple[Form, tuple[Bits, ...], tuple[Bits, ...]]]:
    """Runs every form on `least` values or more: yields the form, the results' bits and the sources' bits."""
    text = HEADER + "\n".join(kernel_text(f"k{i}", form) for i, form in enumerate(forms))
    module = device.load(text)
    buffers = [device.allocate(8 * 4 * COUNT) for _ in range(8)]
    written: dict[int, tuple[str, int]] = {}
    try:
        for i, form in enumerate(forms):
            sources = operands(form.sources, least)
            count = len(sources[0])
            arguments = [count, *buffers[: len(form.results)]]
            for k, bits in enumerate(sources):
                slot = 2 + k
                # Neighbouring forms mostly have the same operands.
                key = (",".join(form.sources), k)
                if written.get(slot) != key:
                    device.write(buffers[slot], bits)
                    written[slot] = key
                arguments.append(buffers[slot])
            results = [np.empty(count, STORAGE[name]) for name in form.results]
            module.launch(f"k{i}", -(-count // THREADS), THREADS, arguments)
            for k, bits in enumerate(results):
                device.read(buffers[k], bits)
            yield form, tuple(results), sources
    finally:
        for address in buffers:
            device.free(address)
        module.unload()


def complaints(device: Device, forms: Iterable[Form], most: int = 20, least: int = COUNT) -> list[str]:
    """Runs the forms and says in a line per form what is wrong; empty when all is right."""
    found: list[str] = []
    last: tuple[Reference, tuple[Bits, ...]] | None = None
    expected: Any = None
    for form, results, sources in run(device, list(forms), least):
        values = tuple(decode(name, bits) for name, bits in zip(form.sources, sources, strict=True))
        if (
            last is None or last[0] is not form.reference or last[1] is not sources
        ):  # neighbours may share both
            with np.errstate(all="ignore"):
                expected = form.reference(*values)
            last = form.reference, sources
        expected = expected if isinstance(expected, tuple) else (expected,)
        for name, got, want in zip(form.results, results, expected, strict=True):
            bad = wrong(form, name, got, want, values)
            if not bad.any():
                continue
            i = int(np.flatnonzero(bad)[0])
            shown = ", ".join(
                f"{bits[i]:#x} ({value[i]})" for bits, value in zip(sources, values, strict=True)
            )
            target = want[i] if form.judge else f"{int(want[i]):#x}"
            found.append(
                f"{form.opcode} of {shown} gives {int(got[i]):#x} ({decode(name, got)[i]}), not {target}"
                f" [{int(bad.sum())} of {len(got)}]"
            )
        if len(found) >= most:
            break
    return found


def wrong(form: Form, name: str, got: Bits, want: Any, sources: tuple[Any, ...]) -> Any:
    """The mask of results that are not what the reference says. Any NaN is as good as another."""
    if form.judge is not None:
        return form.judge(decode(name, got), want, sources)
    expected = np.asarray(want).astype(np.uint64) & np.uint64((1 << (8 * STORAGE[name].itemsize)) - 1)
    bad = got.astype(np.uint64) != expected
    if name in ("f32", "f64", "f16", "bf16"):
        is_nan = np.isnan(decode(name, got)) & np.isnan(decode(name, expected.astype(STORAGE[name])))
        bad &= ~is_nan
    return bad
