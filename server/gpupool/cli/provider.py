"""`gpupool provider`: engines that lend nodes, and how many. For administrators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from gpupool.cli.common import exits, show, watch
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client, duration, whole
from gpupool.client.growth import GrowthClient, Provider

#: Fewer are not told.
_LEAST_HOURS = 0.05
_NONE = "no provider; name engines that lend nodes in a file for `gpupool pool serve --providers FILE`"

app = typer.Typer(
    no_args_is_help=True, help="Engines that lend nodes to the pool: Slurm, Kubernetes, this machine."
)


@app.command("list", cls=watch.WatchCommand, epilog=exits.HELP)
def list_(
    pool: Endpoint = None, token_file: TokenFile = None, json: Json = False, every: watch.Watch = None
) -> None:
    """List the engines that lend nodes to the pool, and the jobs that they run for it.

    \b
    Examples:
      gpupool provider list
      gpupool provider list --watch
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            found = await GrowthClient(connection).providers()
        notes = tuple(_notes(found)) if found else (_NONE,)
        return watch.Shown(_tables(found), {"providers": found}, notes)

    watch.look(work, as_json=json, every=every)


@app.command("scale", epilog=exits.HELP)
def scale(
    provider: Annotated[
        str, typer.Argument(metavar="PROVIDER", help="Name of the provider, as in the file of providers.")
    ],
    minimum: Annotated[
        int | None,
        typer.Option(
            "--min",
            parser=whole(0, 1000),
            metavar="JOBS",
            help="Number of nodes to keep at all times.",
            show_default=False,
        ),
    ] = None,
    maximum: Annotated[
        int | None,
        typer.Option(
            "--max",
            parser=whole(0, 1000),
            metavar="JOBS",
            help="Largest number of nodes.",
            show_default=False,
        ),
    ] = None,
    idle: Annotated[
        float | None,
        typer.Option(
            parser=duration,
            metavar="TIME",
            help="Time after which an unneeded job is given back.",
            show_default=False,
        ),
    ] = None,
    reset: Annotated[
        bool,
        typer.Option("--reset", help="Forget what was set before, so that the file of providers counts."),
    ] = False,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Set the smallest and the largest number of jobs. The setting stays until you change it, also after a restart.

    \b
    Examples:
      gpupool provider scale lab --max 8
      gpupool provider scale lab --min 1 --idle 30m
      gpupool provider scale lab --max 0
      gpupool provider scale lab --reset
    """
    if minimum is None and maximum is None and idle is None and not reset:
        raise typer.BadParameter("say what is to change: --min, --max, --idle or --reset")

    async def work() -> Provider:
        async with client(pool, token_file) as connection:
            return await GrowthClient(connection).scale(provider, minimum, maximum, idle, reset=reset)

    found = exits.run_async(work())
    if json:
        show.as_json(found)
    else:
        idle_for = show.seconds(found.idle_seconds)
        print(
            f"{found.name}: {found.minimum} to {found.maximum} job(s), given back after {idle_for} that nobody needs them"
        )


def _notes(found: list[Provider]) -> Iterator[str]:
    for one in found:
        if one.problem:
            yield f"{one.name}: {one.problem}"
        borrowed, lent, idle = one.borrowed_hours, one.lent_hours, one.idle_hours
        if borrowed is not None and borrowed >= _LEAST_HOURS:
            yield (
                f"{one.name}: in 30 days {borrowed:,.1f} device hours borrowed, {lent or 0:,.1f} of them lent in shares, "
                f"{idle or 0:,.1f} idle"
            )


def _tables(found: list[Provider]) -> RenderableType:
    if not found:
        return "No provider."
    lines = show.table(
        "PROVIDER", "ENGINE", "WHERE", "JOBS", "MIN", "MAX", "IDLE", "NODE POOL", right=("JOBS", "MIN", "MAX")
    )
    jobs = show.table("NODE", "JOB", "ENGINE SAYS", "STATE", "TIME LEFT", "WHY", wrapped=("WHY",))
    for one in found:
        living = sum(job.phase != "over" for job in one.jobs)
        idle = show.seconds(one.idle_seconds)
        lines.add(
            one.name, one.engine or "does not answer", one.detail or "-", str(living), str(one.minimum),
            str(one.maximum), idle, one.node_pool,
        )  # fmt: skip
        for job in one.jobs:
            state = "serving" if job.connected and job.phase == "submitted" else job.phase
            left = "-" if job.seconds_left is None else show.seconds(job.seconds_left)
            engine = job.engine or "-"
            if job.starts_in is not None:
                engine = f"{engine}, starts in {show.seconds(job.starts_in)}"
            jobs.add(job.node, job.engine_job or "-", engine, state, left, job.why or job.reason or "-")
    return Group(lines, jobs) if jobs.count else lines
