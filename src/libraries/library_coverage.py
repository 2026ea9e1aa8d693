"""The page that counts what of each math library is carried; the documentation makes it (docs/generate_reference.py)."""

from __future__ import annotations

import tomllib
from pathlib import Path

import generate_library

HEAD = """# Math libraries: functions

`src/libraries/*/table.toml` has a row for each function that NVIDIA's libraries export.
A *carried* function works. The others exist so that programs load, and refuse with the reason below.
[Math libraries](../math-libraries.md) explains the words.

| library | exported | carried | refused |
|---|---|---|---|
"""


def tables() -> list[Path]:
    """The tables of all libraries."""
    return sorted(Path(__file__).parent.glob("*/table.toml"))


def page() -> str:
    """The page in Markdown."""
    rows, reasons = [], []
    for table in tables():
        newest = sorted(tomllib.loads(table.read_text())["library"]["sonames"])[-1]
        library = generate_library.load(table, newest)
        name = library.soname.partition(".so")[0]
        total = len(library.implemented) + len(library.refused)
        rows.append(f"| `{name}` | {total} | {len(library.implemented)} | {len(library.refused)} |")
        by_reason: dict[str, list[str]] = {}
        for function, refusal in library.refused.items():
            by_reason.setdefault(refusal.reason, []).append(function)
        reasons.append(f"\n## {name}\n")
        reasons += [
            f"- {len(names)} functions, such as `{names[0]}`: {reason}" for reason, names in by_reason.items()
        ]
    return HEAD + "\n".join(rows) + "\n" + "\n".join(reasons) + "\n"


if __name__ == "__main__":
    print(page(), end="")
