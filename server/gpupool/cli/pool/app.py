"""`gpupool pool`: the pool server, what it decides and what it keeps."""

from __future__ import annotations

import typer

from gpupool.cli.common.groups import Group
from gpupool.cli.common.table import Row


class PoolCommands(Group):
    """All of them."""

    rows = (
        Row("serve", "gpupool.cli.pool.serve:serve"),
        Row("stats", "gpupool.cli.pool.stats:stats", watches=True),
        Row("queue", "gpupool.cli.pool.queue:queue", watches=True),
        Row("audit", "gpupool.cli.pool.audit:audit"),
        Row("backup", "gpupool.cli.pool.backup:backup"),
        Row("restore", "gpupool.cli.pool.restore:restore"),
        Row("replay", "gpupool.cli.pool.replay:replay"),
        Row("simulate", "gpupool.cli.pool.simulate:simulate"),
    )


app = typer.Typer(
    cls=PoolCommands,
    no_args_is_help=True,
    help="Run the pool server. See its queue, statistics and journal. Make backups.",
)
