"""`gpupool pool`: the pool server, what it decides and what it keeps."""

from __future__ import annotations

import typer

from gpupool.cli.common.watch import WatchCommand
from gpupool.cli.pool import audit, backup, queue, replay, restore, serve, simulate, stats

app = typer.Typer(
    no_args_is_help=True, help="Run the pool server. See its queue, statistics and journal. Make backups."
)

app.command("serve")(serve.serve)
app.command("stats", cls=WatchCommand)(stats.stats)
app.command("queue", cls=WatchCommand)(queue.queue)
app.command("audit")(audit.audit)
app.command("backup")(backup.backup)
app.command("restore")(restore.restore)
app.command("replay")(replay.replay)
app.command("simulate")(simulate.simulate)
