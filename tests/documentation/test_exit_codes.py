"""The table of exit codes has every code that the program names."""

from __future__ import annotations

import re

from gpupool.cli.common import exits

from tests.support.pool_node import ROOT


def test_codes_of_the_program_are_in_the_table() -> None:
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text()
    rows = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    codes = {
        name: value for name, value in vars(exits).items() if re.match("[A-Z]", name) and type(value) is int
    }
    assert codes
    assert {name for name, value in codes.items() if value not in rows} == set()
