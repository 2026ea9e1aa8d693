"""`gpupool report usage`: what was used, by whom, and what it costs."""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import Annotated, Final

import typer

from gpupool.cli.common import completing, exits, show
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client, refuse_options
from gpupool.cli.common.quantities import gpu_hours as _hours
from gpupool.cli.common.times import From, To, utc
from gpupool.cli.report import chargeback
from gpupool.client.reports import Reports, UsageReport, UsageRow

_GROUPS: Final = ("user", "project", "device", "node", "hour", "day")


def _groups(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in _GROUPS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is nothing to group by; write some of {', '.join(_GROUPS)}")
    if {"hour", "day"} <= set(names):
        raise typer.BadParameter("rows are by hour or by day, not by both")
    return list(dict.fromkeys(names))


def usage(
    context: typer.Context,
    from_: From = "month",  # type: ignore[assignment]
    to: To = "now",  # type: ignore[assignment]
    by: Annotated[
        str,
        typer.Option(
            metavar="GROUPS",
            help=f"Rows are sums over everything that is not named: some of {', '.join(_GROUPS)}, joined by commas.",
        ),
    ] = "project,user",
    user: Annotated[str, typer.Option(help="Only this user.", show_default=False)] = "",
    project: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Only this project and the projects below it.",
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
    currency: Annotated[
        str, typer.Option(help="Currency, printed beside the price.", show_default=False)
    ] = "",
    digits: Annotated[int, typer.Option(min=0, max=6, help="Decimal places of the currency.")] = 2,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Say what was used between two moments, exactly, and what it costs.

    What counts is what was granted, from the grant until the share is free. Hours and days are those of UTC.

    \b
    Examples:
      gpupool report usage --from 2026-11-01 --to 2026-12-01 --by project,user --csv --price 1.80 --currency EUR
      gpupool report usage --from 7d --by project,day
      gpupool report usage --from today --by node,hour --json
    """
    if csv and json:
        raise typer.BadParameter("print either CSV or JSON")
    if not from_ < to:
        raise typer.BadParameter(f"the time ends ({utc(to)}) before or when it begins ({utc(from_)})")
    if price is None:
        refuse_options(context, ("currency", "digits"), "there is no --price")
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
        *(("FROM (UTC)",) if timed else ()),
        *(name.upper() for name in names),
        *figures,
        right=figures,
        less_wanted=("GiB HOURS", "LEASES", *extra),
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
    of_all = f"in use: {_hours(found.total_milli_ms)} of {_hours(found.capacity_milli_ms)} GPU hours"
    if found.capacity_milli_ms:
        of_all += f" ({100 * found.total_milli_ms / found.capacity_milli_ms:.1f} %)"
    exits.say(f"{of_all}, and {_hours(found.total_waiting_milli_ms)} were waited for")
