"""`gpupool report`: what was used in the past."""

from __future__ import annotations

import typer

from gpupool.cli.common.groups import Group
from gpupool.cli.common.table import Row


class ReportCommands(Group):
    """All of them."""

    rows = (
        Row("usage", "gpupool.cli.report.usage:usage"),
        Row("history", "gpupool.cli.report.history:history"),
    )


app = typer.Typer(
    cls=ReportCommands, no_args_is_help=True, help="Past use: sums for a bill, and figures over time."
)
