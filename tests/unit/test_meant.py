"""A line of `%%gpu` that cannot be read says what was probably meant."""

from __future__ import annotations

import pytest

from jupyter_gpupool.kernel.arguments import parse_cell
from jupyter_gpupool.kernel.errors import GpuUsageError
from jupyter_gpupool.kernel.meant import command_meant

COMMANDS = ("attach", "detach", "reset", "resize", "status", "list", "keep", "auto", "widget")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("0,2", "0.2"),
        (",5", "0.5"),
        ("o.2", "0.2"),
        ("O,25", "0.25"),
        ("20", "20%"),
        ("20GB", "18.5GiB"),
        ("500MB", "476MiB"),
        ("2 GiB", "2GiB"),
        ("20 %", "20%"),
        ("2,5 GiB", "2.5GiB"),
        ("0.2 --wiat 5", "0.2 --wait 5"),
        ("0,2 --wait 5", "0.2 --wait 5"),
    ],
)
def test_what_was_meant(line: str, meant: str) -> None:
    with pytest.raises(GpuUsageError) as refused:
        parse_cell(line)
    assert str(refused.value).endswith(f"Did you mean %%gpu {meant}?")
    parse_cell(meant)


@pytest.mark.parametrize(
    "line", ["banana", "0", "200", "0.2 --wait soon", "--zzzzzz", "0.2 0.3", "'0.2", "-1"]
)
def test_nothing_is_made_up(line: str) -> None:
    with pytest.raises(GpuUsageError) as refused:
        parse_cell(line)
    assert "Did you mean" not in str(refused.value)


def test_a_command_that_is_misspelt() -> None:
    assert command_meant("atach", COMMANDS) == "attach"
    assert command_meant("detatch", COMMANDS) == "detach"
    assert command_meant("banana", COMMANDS) is None
