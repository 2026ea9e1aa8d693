"""`gpupool quota`: what single users may have at a time, and in a window of time."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from gpupool.cli.common import exits, quantities, show, watch
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client, duration
from gpupool.client.projects import LimitSettings, LimitStatus, ProjectsClient

app = typer.Typer(
    no_args_is_help=True, help="Limits of users. For limits of projects, see `gpupool project`."
)

User = Annotated[
    str, typer.Argument(metavar="USER", help="The user. '*': everybody without a limit of their own.")
]


@app.command("list", cls=watch.WatchCommand, epilog=exits.HELP)
def list_(
    pool: Endpoint = None, token_file: TokenFile = None, json: Json = False, every: watch.Watch = None
) -> None:
    """List limits and how much of each is used; users see their own. Figures are GPUs.

    FROM says where a limit was set: `quota set`, or `pool serve --quota`, which `quota set` replaces.

    \b
    Examples:
      gpupool quota list
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            found = await ProjectsClient(connection).limits()
        notes = tuple(str(said) for limit in found for said in limit.alerts)
        return watch.Shown(_table(found), {"limits": [_plain(limit) for limit in found]}, notes)

    watch.look(work, as_json=json, every=every)


@app.command("set", epilog=exits.HELP)
def set_(
    user: User,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="GPUS|none",
            help="The largest number of GPUs that the user may hold at one time, such as 2 or 0.5.",
            show_default=False,
        ),
    ] = None,
    shares: Annotated[
        str | None,
        typer.Option(
            metavar="COUNT|none",
            help="The largest number of shares that the user may hold at one time.",
            show_default=False,
        ),
    ] = None,
    largest: Annotated[
        str | None,
        typer.Option(
            metavar="GPUS|none", help="The largest number of GPUs in one request.", show_default=False
        ),
    ] = None,
    gpu_hours: Annotated[
        str | None,
        typer.Option(
            metavar="HOURS|none",
            help="GPU hours within the window. The window begins with the first use.",
            show_default=False,
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Length of the window [default: 1d].", show_default=False),
    ] = None,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Limit a user, or change the settings that you name. For administrators.

    It applies from the next request on. If GPU hours are used up already, leases end after the usual notice.

    \b
    Examples:
      gpupool quota set '*' --gpus 1
      gpupool quota set ann --gpus 4 --largest 2 --gpu-hours 20 --window 1d
    """
    changes: dict[str, Any] = {}
    if gpus is not None:
        changes["milli"] = quantities.milli_or(quantities.NONE, gpus)
    if shares is not None:
        changes["shares"] = quantities.number_or_none(shares)
    if largest is not None:
        changes["largest_milli"] = quantities.milli_or(quantities.NONE, largest)
    if gpu_hours is not None:
        changes["gpu_seconds"] = _seconds_of_hours(gpu_hours)
    if window is not None:
        changes["window_seconds"] = int(duration(window))
    if not changes:
        raise typer.BadParameter("nothing to set: name --gpus, --shares, --largest, --gpu-hours or --window")

    async def work() -> LimitStatus:
        async with client(pool, token_file) as connection:
            return await ProjectsClient(connection).change_limit(user, changes)

    made = exits.run_async(work())
    if json:
        show.as_json(_plain(made))
    else:
        print(f"{user}: {_sentence(made.settings)}")


@app.command("remove", epilog=exits.HELP)
def remove(user: User, pool: Endpoint = None, token_file: TokenFile = None, json: Json = False) -> None:
    """Remove a user's limit; that of '*' counts then. For administrators. Removing what is not there is no error.

    \b
    Examples:
      gpupool quota remove ann
    """

    async def work() -> bool:
        async with client(pool, token_file) as connection:
            return await ProjectsClient(connection).remove_limit(user)

    existed = exits.run_async(work())
    if json:
        show.as_json({"user": user, "existed": existed})
    elif existed:
        print(f"removed the limit of {user}")
    else:
        exits.say(f"{user} had no limit")


def _seconds_of_hours(text: str) -> int | None:
    if text.strip() == quantities.NONE:
        return None
    try:
        hours = Decimal(text.strip())
        if not 0 <= hours <= 10_000_000:
            raise InvalidOperation
    except InvalidOperation:
        raise typer.BadParameter(
            f"{text!r} is no number of GPU hours; write for example 20 or 0.5, or none"
        ) from None
    return int(hours * 3600)


def _sentence(limit: LimitSettings) -> str:
    parts = []
    if limit.milli is not None:
        parts.append(f"{quantities.gpus_set(limit.milli)} at a time")
    if limit.shares is not None:
        parts.append(f"{limit.shares} {'share' if limit.shares == 1 else 'shares'} at a time")
    if limit.largest_milli is not None:
        parts.append(f"{quantities.gpus_set(limit.largest_milli)} in one request")
    if limit.gpu_seconds is not None:
        parts.append(f"{limit.gpu_seconds / 3600:g} GPU hours in {show.seconds(limit.window_seconds)}")
    return "at most " + ", ".join(parts) if parts else "no limit"


def _plain(limit: LimitStatus) -> dict[str, Any]:
    figures = asdict(limit)
    settings: dict[str, Any] = figures.pop("settings")
    return {**settings, **figures, "alerts": list(map(str, limit.alerts))}


def _table(found: list[LimitStatus]) -> RenderableType:
    columns = ("HELD", "OF", "SHARES", "OF ", "LARGEST REQUEST", "GPU HOURS", "OF  ", "STARTS ANEW IN")
    lines = show.table(
        "USER", *columns, "FROM", right=columns, less_wanted=("STARTS ANEW IN", "LARGEST REQUEST", "FROM")
    )
    for limit in found:
        settings = limit.settings
        hours = None if settings.gpu_seconds is None else settings.gpu_seconds / 3600
        lines.add(
            settings.user,
            quantities.measured(limit.held_milli),
            quantities.gpus(settings.milli),
            str(limit.held_shares),
            "-" if settings.shares is None else str(settings.shares),
            quantities.gpus(settings.largest_milli),
            f"{limit.used_gpu_seconds / 3600:.2f}",
            "-" if hours is None else f"{hours:g}",
            show.seconds(limit.resets_in_seconds),
            "pool serve --quota" if limit.configured else "quota set",
        )
    return lines if lines.count else "No limits."
