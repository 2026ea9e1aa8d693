"""`gpupool report usage`: what was used in the past."""

from __future__ import annotations

import typer

from gpupool.cli.report import history, usage

app = typer.Typer(no_args_is_help=True, help="Past use: sums for a bill, and figures over time.")

app.command("usage")(usage.usage)
app.command("history")(history.history)
