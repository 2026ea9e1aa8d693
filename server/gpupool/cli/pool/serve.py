"""`gpupool pool serve`: the pool server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from gpupool.cli.common import exits, quantities
from gpupool.cli.common.options import duration, refuse_options
from gpupool.cli.pool import serve_options
from gpupool.client.endpoint import LEDGER_VARIABLE
from gpupool.pool.model.consolidation import Consolidation


def serve(
    context: typer.Context,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Also listen on TCP. Every caller there needs a token.",
            show_default=False,
        ),
    ] = None,
    socket_path: Annotated[
        Path | None,
        typer.Option(
            "--socket",
            help="Unix socket [default: $GPUPOOL_HOME/pool.sock]. A missing directory is created. An "
            "existing one must be yours and closed to others (mode 0700), because every caller is an "
            "administrator.",
            show_default=False,
        ),
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            metavar="USER=GPUS",
            help="The largest number of GPUs that a user may hold at one time, such as ann=2 or ann=0.5. '*': all other users.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Address for Prometheus metrics (/metrics).", show_default=False
        ),
    ] = None,
    notice: Annotated[
        float,
        typer.Option(
            parser=duration,
            metavar="TIME",
            help="Warning time before a share is taken back for another request.",
        ),
    ] = "30s",  # type: ignore[assignment]
    drain: Annotated[
        float,
        typer.Option(
            parser=duration,
            metavar="TIME",
            help="Time for work that still runs when its lease ends. Then the work is stopped. If the "
            "driver can't stop it, its GPU session ends.",
        ),
    ] = "4s",  # type: ignore[assignment]
    min_run: Annotated[
        float,
        typer.Option(
            parser=duration,
            metavar="TIME",
            help="Time that every share runs before it may be taken back. A project may set its own.",
        ),
    ] = "60s",  # type: ignore[assignment]
    half_life: Annotated[
        float,
        typer.Option(
            parser=duration,
            metavar="TIME",
            help="Half-life of a project's past use.",
        ),
    ] = "7d",  # type: ignore[assignment]
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar=LEDGER_VARIABLE,
            help="Keep the ledger in PostgreSQL: postgresql+psycopg://user@host/database, the password in ~/.pgpass "
            "[default: $GPUPOOL_LEDGER or the file $GPUPOOL_HOME/pool.sqlite].",
            show_default=False,
            show_envvar=False,
        ),
    ] = None,
    standby: serve_options.Standby = False,
    journal_kept: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS",
            min=0,
            help="How long to keep the data that replays past decisions [default: forever]. The journal's "
            "lines stay.",
            show_default=False,
        ),
    ] = None,
    alert_percent: Annotated[
        int,
        typer.Option(
            metavar="PERCENT",
            min=1,
            max=100,
            help="Alert when a project or user has used this percentage of a quota.",
        ),
    ] = 95,
    policy: serve_options.Policy = None,
    consolidate: Annotated[
        Consolidation,
        typer.Option(
            help="Sessions that may move, with notice, to make room. idle: idle ones and those above their "
            "quota. any: also sessions that compute. off: none. Guaranteed shares never move."
        ),
    ] = Consolidation.IDLE,
    tls_certificate: serve_options.TlsCertificate = None,
    tls_key: serve_options.TlsKey = None,
    tls_self_signed: serve_options.TlsSelfSigned = False,
    hub_api_url: serve_options.HubApiUrl = None,
    hub_believed: serve_options.HubBelieved = "5m",  # type: ignore[assignment]
    hub_grace: serve_options.HubGrace = "30m",  # type: ignore[assignment]
    show_users: serve_options.ShowUsers = True,
    providers: serve_options.Providers = None,
    return_nodes: serve_options.ReturnNodes = False,
    timers_scale: Annotated[float, typer.Option(hidden=True, help="All timers times this (tests).")] = 1.0,
) -> None:
    """Run the pool server until it is told to end; leases and sessions survive its restart.

    \b
    Examples:
      gpupool pool serve
      gpupool pool serve --listen 10.0.0.5:7460 --quota '*=1'
      gpupool pool serve --notice 2m --min-run 10m
      gpupool pool serve --standby --ledger postgresql+psycopg://gpupool@db/gpupool --listen 10.0.0.5:7460
      gpupool pool serve --listen 10.0.0.5:7460 --tls-certificate pool.pem --tls-key pool.key \\
        --hub-api-url https://hub.example.org/hub/api
    """
    from gpupool.collector import collect_seldom
    from gpupool.ledger.database import is_url
    from gpupool.pool.access.listening import AddressError, ServeError
    from gpupool.pool.model.timers import MOST_DRAIN, Timers
    from gpupool.pool.options import ServeOptions
    from gpupool.pool.server import serve as serve_pool

    if not 0 < drain <= MOST_DRAIN:
        raise typer.BadParameter(f"--drain {drain:g}s is not between 0 and {MOST_DRAIN:g}s")
    if half_life <= 0:
        raise typer.BadParameter("the half-life is 0 s; it must be longer, for example 7d")
    if standby and not is_url(ledger or ""):
        raise typer.BadParameter(
            f"--standby needs a ledger in PostgreSQL, which several servers can reach; the ledger is {ledger or 'a file'}: "
            "add --ledger postgresql+psycopg://user@host/database"
        )
    if hub_api_url is None:
        refuse_options(context, ("hub_believed", "hub_grace"), "there is no --hub-api-url")
    from gpupool.scheduler.placement import DEFAULT_POLICY, POLICIES

    if policy is not None and policy not in POLICIES:
        raise typer.BadParameter(f"{policy[:40]!r} is not one of {', '.join(POLICIES)}")
    options = ServeOptions(
        socket=socket_path,
        listen=listen,
        quotas=dict(map(quantities.quota, quota or [])),
        metrics_listen=metrics,
        timers=Timers(notice=notice, min_run=min_run, half_life=half_life).draining(drain),
        timers_scale=timers_scale,
        ledger=ledger,
        standby=standby,
        journal_kept=journal_kept,
        alert_percent=alert_percent,
        policy=policy or DEFAULT_POLICY,
        consolidate=consolidate,
        tls=serve_options.tls_files(tls_certificate, tls_key),
        tls_self_signed=tls_self_signed,
        hub=serve_options.hub_options(hub_api_url, hub_believed, hub_grace),
        show_users=show_users,
        providers=providers,
        return_nodes=return_nodes,
    )
    exits.log_to_stderr()
    collect_seldom()
    with exits.clear_errors():
        try:
            asyncio.run(serve_pool(options))
        except ServeError as error:
            exits.say(str(error))
            raise typer.Exit(exits.USAGE if isinstance(error, AddressError) else exits.FAILED) from None
