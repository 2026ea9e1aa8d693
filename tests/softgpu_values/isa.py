"""The page docs/reference/ptx.md: which instructions of PTX (`isa.toml`) the engine takes.

`make_page` tries every statement on the software GPU; `test_isa_page.py` keeps the page true.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from tests.softgpu_values.device import Device, DriverError
from tests.softgpu_values.forms import HEADER

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "ptx.md"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One row: opcodes that belong together. `note` says what is special, or why it is refused."""

    section: str
    names: tuple[str, ...]
    statements: tuple[str, ...]
    note: str = ""


def instructions() -> list[Instruction]:
    """The rows of isa.toml."""
    rows = tomllib.loads(Path(__file__).with_name("isa.toml").read_text(encoding="utf-8"))["instruction"]
    return [
        Instruction(row["section"], tuple(row["names"]), tuple(row["statements"]), row.get("note", ""))
        for row in rows
    ]


_DECLARATIONS: Final = (
    ".reg .pred %p<9>; .reg .b8 %b<9>; .reg .b16 %h<9>; .reg .b32 %r<20>; .reg .b64 %x<9>; .reg .f32 %f<9>;"
    " .reg .f64 %d<9>; .reg .b128 %q<9>; .shared .align 16 .b8 sm[1024];"
)


def runs(device: Device, statement: str) -> bool:
    """Whether the engine takes a kernel with the statement."""
    try:
        device.load(f"{HEADER}.visible .entry k() {{ {_DECLARATIONS}\n{statement}\nret; }}").unload()
    except DriverError:
        return False
    return True


def make_page(device: Device) -> str:
    """The page: a table per section, with yes, in part or no for each row."""
    forms = sum(not name.startswith("@") for name in device.opcodes())
    lines = [
        "# PTX on the software GPU",
        "",
        "Which instructions of PTX ISA 6.0 to 9.4 the [software GPU](../explanation/software-gpu.md) runs. This page is made by",
        "`python -m tests.softgpu_values.isa`, which tries each on the engine, and a test keeps it true.",
        f"Regular instructions have {forms:,} full forms (opcode, types, modifiers); every one of them is tested by",
        "value, against exact arithmetic or the manual's bounds, with NaN, infinities, subnormals and ties. Loads,",
        "stores, atomics, calls and barriers take their suffixes apart and are not counted. An instruction that is not",
        "known is an error at load time that names it and its line.",
        "",
    ]
    for section, rows in groupby(instructions(), key=lambda row: row.section):
        lines += [f"## {section}", "", "| instructions | run | |", "|---|---|---|"]
        for row in rows:
            taken = [runs(device, statement) for statement in row.statements]
            answer = "yes" if all(taken) else "in part" if any(taken) else "no"
            names = ", ".join(f"`{name}`" for name in row.names)
            lines.append(f"| {names} | {answer} | {row.note} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    from tests.softgpu_values.device import device as open_device

    PAGE.write_text(make_page(open_device()), encoding="utf-8")
