"""Make what src/wire includes from the rows in wire/: `generate_wire.py --out DIR`. Needs no cuda.h."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import controls
import emit_wire
from kinds import TableError


def write(directory: Path, files: dict[str, str]) -> None:
    """Files are rewritten only when their text changes, so that nothing is rebuilt needlessly."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = directory / name
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


def files() -> dict[str, str]:
    """Every generated file by name. Raises TableError."""
    rows = controls.load()
    return {
        "kinds.h": emit_wire.kinds(),
        "control_ids.h": emit_wire.control_ids(rows),
        "control.h": emit_wire.control(rows),
        "control_decoders.h": emit_wire.control_decoders(rows),
        "control_test.cpp": emit_wire.control_test(rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        write(arguments.out, files())
    except TableError as error:
        sys.exit(f"protocol table: {error}")


if __name__ == "__main__":
    main()
