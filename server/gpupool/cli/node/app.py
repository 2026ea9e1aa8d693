"""`gpupool node`: the machines that lend GPUs."""

from __future__ import annotations

import typer

from gpupool.cli.common.groups import Group
from gpupool.cli.common.table import Row


class NodeCommands(Group):
    """All of them."""

    rows = (
        Row("start", "gpupool.cli.node.start:start"),
        Row("list", "gpupool.cli.node.listing:list_", watches=True),
        Row("drain", "gpupool.cli.node.drain:drain"),
        Row("logs", "gpupool.cli.node.logs:logs", watches=True),
        Row("netperf", "gpupool.cli.node.netperf:netperf"),
    )


app = typer.Typer(
    cls=NodeCommands, no_args_is_help=True, help="Lend this machine's GPUs to a pool, and manage nodes."
)
