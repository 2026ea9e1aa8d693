"""`gpupool report history`: how much was held and used over time."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from gpupool.cli.common import exits, quantities, show
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client
from gpupool.cli.common.sessions import whole_session
from gpupool.cli.common.times import From, To, utc
from gpupool.client.history import MEMBERS, VIEWS, Amounts, History, Series

_MIB_PER_GIB: Final = 1024


def _one_of(names: tuple[str, ...], text: str) -> str:
    if text not in names:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(names)}")
    return text


def history(
    view: Annotated[str, typer.Argument(help=f"Of what: {', '.join(VIEWS)}.")] = "cluster",
    name: Annotated[
        str,
        typer.Argument(
            help="Name of a node, a device (node/0), a user, a project, or a session's id. Without it: all "
            "together."
        ),
    ] = "",
    from_: From = "1h",  # type: ignore[assignment]
    to: To = "now",  # type: ignore[assignment]
    points: Annotated[int, typer.Option(min=1, max=2000, help="Largest number of rows.")] = 30,
    by: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help=f"Show one row for each {', '.join(MEMBERS[:-1])} or {MEMBERS[-1]}, not one for each time.",
        ),
    ] = "",
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Say how much was held and used over time: means of minutes for a day, of ten minutes for a week, of hours for 90 days.

    Held is what leases had. Used is device time as workers measure it. Idle is what was held and not used, minute by
    minute and session by session. You see the pool's figures, and of users, projects and sessions your own.

    \b
    Examples:
      gpupool report history
      gpupool report history node vm --from 7d
      gpupool report history cluster --by user --from today
      gpupool report history user ann --from 24h --json
    """
    _one_of(VIEWS, view)
    if by:
        _one_of(MEMBERS, by)
    if not from_ < to:
        raise typer.BadParameter(f"the time ends ({utc(to)}) before or when it begins ({utc(from_)})")

    async def work() -> Series:
        async with client(pool, token_file) as connection:
            of = await whole_session(connection.sessions, name) if view == "client" and name else name
            return await History(connection).series(
                view, of, from_unix=from_, to_unix=to, points=points, by=by
            )

    found = exits.run_async(work())
    if json:
        show.as_json(found)
    elif by:
        show.console().print(
            _members(found, by) if found.members else "Nothing was held or used in that time."
        )
    else:
        show.console().print(_points(found))


def _points(found: Series) -> show.Lines:
    figures = ("GPUS", "HELD", "USED", "IDLE", "GiB HELD", "GiB USED", "TO GPU/s", "FROM GPU/s", "WAITING")
    lines = show.table(
        *("FROM (UTC)", *figures),
        right=figures,
        less_wanted=("TO GPU/s", "FROM GPU/s", "GiB HELD", "GiB USED", "WAITING"),
    )
    for point in found.points:
        lines.add(utc(int(point.from_unix)), *_means(point.amounts))
    lines.add("mean", *_means(found.total))
    return lines


def _means(amounts: Amounts) -> tuple[str, ...]:
    milli = ("capacity_milli_ms", "held_milli_ms", "used_milli_ms", "idle_milli_ms")
    return (
        *(_number(amounts.mean(name), 1000) for name in milli),
        _number(amounts.mean("held_mib_ms"), _MIB_PER_GIB),
        _number(amounts.mean("memory_mib_ms"), _MIB_PER_GIB),
        _bytes(amounts.per_second("to_device_bytes")),
        _bytes(amounts.per_second("from_device_bytes")),
        _number(amounts.mean("waiting_request_ms"), 1),
    )


def _members(found: Series, by: str) -> show.Lines:
    figures = ("GPU HOURS HELD", "USED", "IDLE", "GiB HOURS USED")
    more = ("USER", "LABEL") if by == "client" else ()
    lines = show.table(by.upper(), *more, *figures, right=figures)
    for member in found.members:
        amounts = member.amounts
        hours = (amounts.held_milli_ms, amounts.used_milli_ms, amounts.idle_milli_ms)
        lines.add(
            member.name,
            *((member.user or "-", member.label or "-") if more else ()),
            *(quantities.gpu_hours(milli_ms) for milli_ms in hours),
            f"{amounts.memory_mib_ms / _MIB_PER_GIB / 3_600_000:.2f}",
        )
    return lines


def _number(mean: float | None, unit: int) -> str:
    return "-" if mean is None else f"{mean / unit:.2f}"


def _bytes(rate: float | None) -> str:
    """In decimal units, as networks are measured."""
    if rate is None:
        return "-"
    for unit in ("B", "kB", "MB"):
        if rate < 1000:
            return f"{rate:.0f} {unit}"
        rate /= 1000
    return f"{rate:.1f} GB"
