"""How a range of ports is read, by all commands that start a node."""

from __future__ import annotations

import typer

from gpupool.node.ports import PortRange, PortsError


def port_range(text: str) -> str:
    """``FIRST-LAST``, or one port.

    Raises:
        typer.BadParameter: it is no range.
    """
    try:
        return str(PortRange.parse(text))
    except PortsError as error:
        raise typer.BadParameter(str(error)) from None
