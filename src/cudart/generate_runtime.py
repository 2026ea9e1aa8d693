"""Makes the generated sources of one libcudart: `generate_runtime.py --include DIR --out DIR [--compiler CC]`.

Files are rewritten only when their text changes, so that nothing is rebuilt needlessly.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

import runtime_emit
import runtime_header
import runtime_table

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--include", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--compiler", default="cc")
    arguments = parser.parse_args()
    header = runtime_header.load(arguments.include, HERE / "include", arguments.compiler)
    try:
        table = runtime_table.load(HERE / "table", header)
    except runtime_table.TableError as error:
        sys.exit(f"runtime table: {error}")
    texts = tomllib.loads((HERE / "error_texts.toml").read_text())
    files = {
        "entry_points.h": runtime_emit.entry_points(table),
        "generated_custom.h": runtime_emit.custom(table),
        "exports.cpp": runtime_emit.exports(table),
        "error_names.cpp": runtime_emit.errors(table, texts),
        "version.map": runtime_emit.version_script(table),
        "coverage.md": runtime_emit.coverage(table),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = arguments.out / name
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    main()
