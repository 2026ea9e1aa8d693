"""What was used, by whom, and what it costs; and how the pool is doing: report, stats."""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import Annotated, Final

import typer

from gpupool.cli import chargeback, completing, exits, show
from gpupool.cli.options import Endpoint, Json, TokenFile, client, duration
from gpupool.cli.times import From, To, utc
from gpupool.cli.watch import Shown, Watch, look
from gpupool.client.reports import PoolStats, Reports, UsageReport, UsageRow
from gpupool.shares import format_milli

_GROUPS: Final = ("user", "project", "device", "node", "hour", "day")


def _groups(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in _GROUPS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is nothing to group by; write some of {', '.join(_GROUPS)}")
    if {"hour", "day"} <= set(names):
        raise typer.BadParameter("rows are by hour or by day, not by both")
    return list(dict.fromkeys(names))


def report(
    from_: From = "month",  # type: ignore[assignment]
    to: To = "now",  # type: ignore[assignment]
    by: Annotated[
        str,
        typer.Option(
            metavar="GROUPS",
            help=f"Rows are sums over everything that is not named: some of {', '.join(_GROUPS)}, joined by commas.",
        ),
    ] = "project,user",
    user: Annotated[str, typer.Option(help="Only of this user.", show_default=False)] = "",
    project: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Only of this project and those below it.",
            show_default=False,
            autocompletion=completing.projects,
        ),
    ] = "",
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for a bill.")] = False,
    price: Annotated[
        Decimal | None,
        typer.Option(
            parser=chargeback.price,
            metavar="AMOUNT",
            help="Price of one GPU for one hour.",
            show_default=False,
        ),
    ] = None,
    currency: Annotated[str, typer.Option(help="Printed beside the price.", show_default=False)] = "",
    digits: Annotated[int, typer.Option(min=0, max=6, help="Places behind the point that money has.")] = 2,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Say what was used between two moments, exactly, and what it costs.

    What counts is what was granted, from the grant until the share is free. Hours and days are those of UTC.

    \b
    Examples:
      gpupool report --from 2026-11-01 --to 2026-12-01 --by project,user --csv --price 1.80 --currency EUR
      gpupool report --from 7d --by project,day
      gpupool report --from today --by node,hour --json
    """
    if csv and json:
        raise typer.BadParameter("print either CSV or JSON")
    if not from_ < to:
        raise typer.BadParameter(f"the time ends ({utc(to)}) before or when it begins ({utc(from_)})")
    groups = _groups(by)

    async def work() -> UsageReport:
        async with client(pool, token_file) as connection:
            return await Reports(connection).usage(from_, to, groups, user=user, project=project)

    found = exits.run_async(work())
    money = None if price is None else chargeback.Price(price, currency, digits)
    if csv:
        chargeback.write(found, sys.stdout, money)
    elif json:
        show.as_json(_as_data(found, money))
    else:
        show.console().print(_table(found, money) if found.rows else "Nothing was used in that time.")
        _say_totals(found)


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
      gpupool stats --last 1h
      gpupool stats --watch 10
    """

    async def work() -> Shown:
        async with client(pool, token_file) as connection:
            found = await Reports(connection).stats(last)
        return Shown(_stats_table(found), found)

    look(work, as_json=json, every=watch)


def _as_data(found: UsageReport, money: chargeback.Price | None) -> dict[str, object]:
    rows = []
    for row in found.rows:
        since, until = chargeback.period(found, row)
        names = {name: getattr(row, name) for name in found.by if name not in ("hour", "day")}
        figures: dict[str, object] = {
            "from_unix": since,
            "to_unix": until,
            **names,
            "leases": row.leases,
            "milli_gpu_ms": row.milli_ms,
            "mib_ms": row.mib_ms,
            "deserved_milli_gpu_ms": row.deserved_milli_ms,
            "waiting_milli_gpu_ms": row.waiting_milli_ms,
            "capacity_milli_gpu_ms": row.capacity_milli_ms,
        }
        if money is not None:
            figures["cost"] = f"{money.cost(row.milli_ms):f}"
        rows.append(figures)
    data: dict[str, object] = {
        "from_unix": found.from_unix,
        "to_unix": found.to_unix,
        "by": found.by,
        "rows": rows,
        "pool": {
            "milli_gpu_ms": found.total_milli_ms,
            "capacity_milli_gpu_ms": found.capacity_milli_ms,
            "waiting_milli_gpu_ms": found.total_waiting_milli_ms,
        },
    }
    if money is not None:
        total = f"{chargeback.total_cost(found.rows, money):f}"
        data |= {"price": f"{money.amount:f}", "currency": money.currency, "cost": total}
    return data


def _table(found: UsageReport, money: chargeback.Price | None) -> show.Lines:
    names = [name for name in found.by if name not in ("hour", "day")]
    timed = len(names) < len(found.by)
    extra = _extra_columns(found.rows)
    figures = (
        "LEASES",
        "GPU HOURS",
        "GiB HOURS",
        *extra,
        *((f"COST {money.currency}".strip(),) if money else ()),
    )
    lines = show.table(
        *(("FROM (UTC)",) if timed else ()), *(name.upper() for name in names), *figures, right=figures
    )
    for row in found.rows:
        since, _ = chargeback.period(found, row)
        cells = [utc(since)] if timed else []
        cells += [getattr(row, name) or "-" for name in names]
        cells += [str(row.leases), _hours(row.milli_ms), f"{row.mib_ms / 1024 / 3_600_000:.2f}"]
        cells += [_hours(getattr(row, extra[name])) for name in extra]
        if money is not None:
            cells.append(f"{money.cost(row.milli_ms):f}")
        lines.add(*cells)
    total = ["total", *[""] * (len(names) + timed - 1)] if names or timed else []
    total += ["", _hours(sum(row.milli_ms for row in found.rows)), "", *[""] * len(extra)]
    if money is not None:
        total.append(f"{chargeback.total_cost(found.rows, money):f}")
    if len(found.rows) > 1:
        lines.add(*total)
    return lines


def _extra_columns(rows: tuple[UsageRow, ...]) -> dict[str, str]:
    """What rows of this kind say besides what was used."""
    columns = {"WAITED": "waiting_milli_ms", "DESERVED": "deserved_milli_ms", "THERE": "capacity_milli_ms"}
    return {title: name for title, name in columns.items() if any(getattr(row, name) for row in rows)}


def _say_totals(found: UsageReport) -> None:
    of_all = f"the pool lent {_hours(found.total_milli_ms)} of {_hours(found.capacity_milli_ms)} GPU hours"
    if found.capacity_milli_ms:
        of_all += f" ({100 * found.total_milli_ms / found.capacity_milli_ms:.1f} %)"
    exits.say(f"{of_all}, and {_hours(found.total_waiting_milli_ms)} were waited for")


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
        "lent", part, f"{_hours(found.milli_ms)} of {_hours(found.capacity_milli_ms)} GPU hours {window}"
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
    lines.add("called off", str(found.cancelled), "")
    for title, counts in (("refused", found.refused), ("ended", found.ended)):
        lines.add(
            title, str(sum(counts.values())), ", ".join(f"{name} {counts[name]}" for name in sorted(counts))
        )
    return lines


def _hours(milli_ms: int) -> str:
    return f"{milli_ms / chargeback.GPU_HOUR:.3f}"


def _gpus(milli: int) -> str:
    return format_milli(milli)


def _seconds(amount: float | None) -> str:
    return f"{amount:.1f} s" if amount is not None and amount < 10 else show.seconds(amount)
