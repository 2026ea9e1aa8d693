"""`gpupool node start`: the machines that lend GPUs."""

from __future__ import annotations

import typer

from gpupool.cli.common.watch import WatchCommand
from gpupool.cli.node import drain, listing, logs, netperf, start

app = typer.Typer(no_args_is_help=True, help="Lend this machine's GPUs to a pool, and manage nodes.")

app.command("start")(start.start)
app.command("list", cls=WatchCommand)(listing.list_)
app.command("drain")(drain.drain)
app.command("logs", cls=WatchCommand)(logs.logs)
app.command("netperf")(netperf.netperf)
