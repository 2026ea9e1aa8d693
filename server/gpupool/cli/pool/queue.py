"""`gpupool pool queue`: who waits, and why."""

from __future__ import annotations

from rich.console import RenderableType

from gpupool.cli.common import show, watch
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client
from gpupool.client.types import Queue, QueueEntry
from gpupool.shares import format_milli


def queue(
    pool: Endpoint = None, token_file: TokenFile = None, json: Json = False, every: watch.Watch = None
) -> None:
    """List who waits for a share, and why. `gpupool explain REQUEST` says what would help.

    \b
    Examples:
      gpupool pool queue
      gpupool pool queue --watch
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            found = await connection.queue()
        return watch.Shown(queue_table(found), {"queue": found, "left_out": found.left_out}, left_out(found))

    watch.look(work, as_json=json, every=every)


def left_out(queue: Queue) -> tuple[str, ...]:
    """The note under a list that is not whole."""
    return (
        (f"{queue.left_out} more wait; the pool lists the first of them and yours.",)
        if queue.left_out
        else ()
    )


def queue_table(queue: list[QueueEntry]) -> RenderableType:
    """The requests that wait, in their order."""
    lines = show.table(
        *("PLACE", "REQUEST", "USER", "PROJECT", "WHAT", "ASKS FOR", "ABOUT", "WHY"),
        right=("PLACE",),
        wrapped=("WHAT", "WHY"),
        less_wanted=("PROJECT", "WHAT"),
    )
    for entry in queue:
        asked = f"{format_milli(entry.milli)}" if entry.milli else f"{entry.mib} MiB"
        lines.add(
            str(entry.place),
            show.request_name(entry.id) or "-",
            entry.user,
            entry.project or "-",
            entry.label or entry.holder or "-",
            f"{asked} x {max(entry.count, 1)}",
            show.seconds(entry.eta_seconds),
            entry.reason,
        )
    return lines if lines.count else "Nobody waits."
