"""`gpupool pool stats`: how the pool is doing, now and in the last hours."""

from __future__ import annotations

from typing import Annotated

import typer

from gpupool.cli.common import show
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client, duration
from gpupool.cli.common.quantities import gpu_hours as _hours
from gpupool.cli.common.watch import Shown, Watch, look
from gpupool.client.reports import PoolStats, Reports
from gpupool.sentences import reasons
from gpupool.shares import format_share


def stats(
    last: Annotated[
        float, typer.Option(parser=duration, metavar="TIME", help="How far back to look: 1h, 24h, 7d.")
    ] = "24h",  # type: ignore[assignment]
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
    watch: Watch = None,
) -> None:
    """Say how the pool is doing: now, and in the last hours.

    \b
    Examples:
      gpupool pool stats --last 1h
      gpupool pool stats --watch 10
    """

    async def work() -> Shown:
        async with client(pool, token_file) as connection:
            found = await Reports(connection).stats(last)
        return Shown(_stats_table(found), found)

    look(work, as_json=json, every=watch)


def _stats_table(found: PoolStats) -> show.Lines:
    hours = (found.to_unix - found.from_unix) / 3600
    lines = show.table("WHAT", "FIGURE", "", right=("FIGURE",))
    lines.add("GPUs", _gpus(found.capacity_milli), "that nodes offer")
    lines.add("held", _gpus(found.held_milli), f"by {found.leases} lease(s)")
    lines.add("free", _gpus(found.free_milli), "of GPUs that take new shares")
    lines.add("parked", str(found.parked_sessions), "session(s) without a GPU")
    oldest = f", the first for {show.seconds(found.oldest_wait_seconds)}" if found.waiting_requests else ""
    lines.add(
        "waiting", str(found.waiting_requests), f"request(s) for {_gpus(found.waiting_milli)} GPUs{oldest}"
    )
    window = f"in the last {show.seconds(found.to_unix - found.from_unix)}"
    part = f"{100 * found.milli_ms / found.capacity_milli_ms:.1f} %" if found.capacity_milli_ms else "-"
    lines.add(
        "in use",
        part,
        f"{_hours(found.milli_ms)} of {_hours(found.capacity_milli_ms)} GPU hours {window}",
    )
    lines.add("short of", _hours(found.waiting_milli_ms), "GPU hours were waited for")
    lines.add(
        "granted",
        str(found.granted),
        f"{found.granted / hours:.1f} an hour; {found.queued} request(s) had to wait",
    )
    for name, seconds in (
        ("wait, half of them", found.wait_p50_seconds),
        ("wait, 99 %", found.wait_p99_seconds),
        ("wait, longest", found.wait_longest_seconds),
        ("held, mean", found.held_mean_seconds),
    ):
        lines.add(name, _seconds(seconds), "")
    lines.add("cancelled", str(found.cancelled), "")
    for title, counts, word in (("refused", found.refused, str), ("ended", found.ended, _ended)):
        lines.add(
            title,
            str(sum(counts.values())),
            ", ".join(f"{counts[name]} {word(name)}" for name in sorted(counts)),
        )
    return lines


def _ended(reason: str) -> str:
    """Why a lease ended, such as ``given back at the end of the cell``."""
    said = reasons.headline(reason)
    return said[:1].lower() + said[1:]


def _gpus(milli: int) -> str:
    return format_share(milli)


def _seconds(amount: float | None) -> str:
    return f"{amount:.1f} s" if amount is not None and amount < 10 else show.seconds(amount)
