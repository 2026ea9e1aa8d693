"""The page that says what of each math library is carried counts every function of its tables once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_counts_every_function_of_every_table() -> None:
    page = subprocess.run(
        [sys.executable, ROOT / "src/libraries/library_coverage.py"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert len(rows) == len(list((ROOT / "src/libraries").glob("*/table.toml")))
    for name, total, carried, refused in rows:
        assert int(total) == int(carried) + int(refused)
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert sum(map(int, re.findall(r"^- (\d+) functions", section, re.MULTILINE))) == int(refused), name
