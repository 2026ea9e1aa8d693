"""Print the page that counts what of each math library is carried: ``library_coverage.py > docs/math-libraries-coverage.md``."""

from __future__ import annotations

import tomllib
from pathlib import Path

import generate_library

HEAD = """# Math libraries: what is carried

What `src/libraries/*/table.toml` say of each function that NVIDIA's libraries export: it is carried, or it is there so that
programs load, and refuses with its reason. This page is made by `src/libraries/library_coverage.py`. What the words mean stands
under [math libraries](math-libraries.md).

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
        for function, reason in library.refused.items():
            by_reason.setdefault(reason, []).append(function)
        reasons.append(f"\n## {name}\n")
        reasons += [
            f"- {len(names)} functions, such as `{names[0]}`: {reason}" for reason, names in by_reason.items()
        ]
    return HEAD + "\n".join(rows) + "\n" + "\n".join(reasons) + "\n"


if __name__ == "__main__":
    print(page(), end="")
