"""Leases of one's own: request, resize and release."""

from __future__ import annotations

import getpass
import os
from typing import Annotated, Final

import typer

from gpupool.cli import completing, exits, show
from gpupool.cli.options import Endpoint, Json, Memory, OnBehalfOf, Part, TokenFile, client
from gpupool.cli.request_options import named_share, share, takes_request
from gpupool.client.reports import Reports
from gpupool.client.types import Grant, LeaseRequest, QueuePlace
from gpupool.request.gpu_request import GpuRequest

#: Digits of a session's id in lists.
_SHORTENED: Final = 12


@takes_request(wait="0")
def request(
    asked: GpuRequest,
    label: Annotated[str, typer.Option(help="Shown to others beside the share.")] = "reservation",
    user: OnBehalfOf = "",
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Reserve shares until they are released or --for has passed, and print the lease's id.

    \b
    Examples:
      gpupool request -p 0.5 --for 2h
      gpupool request -n 2 -p 1 --filter 'name=*H100*' --project research/vision --wait 10m
      gpupool release $(gpupool request -m 4096)
    """
    wanted = LeaseRequest.of(
        named_share(asked),
        label=label,
        on_behalf_of=user,
        holder=f"{getpass.getuser()}:request:{os.getpid()}",
        reservation=True,
    )

    async def work() -> Grant:
        async with client(pool, token_file) as connection:
            return await connection.request(wanted, on_queued=say_queued, wait_seconds=asked.patience)

    grant = exits.run_async(work())
    if json:
        show.as_json(grant)
    else:
        print(grant.lease_id)
        exits.say(f"reserved {show.shares(grant.shares)}; give it back: gpupool release {grant.lease_id}")


def release(
    leases: Annotated[
        list[str],
        typer.Argument(
            metavar="LEASE...",
            help="Ids of leases; with --close-session also of sessions, as `gpupool sessions` shows them.",
            autocompletion=completing.leases,
        ),
    ],
    close_session: Annotated[
        bool | None,
        typer.Option(
            "--close-session/--keep-session",
            help="End the session and its GPU memory, or park it [default: end that of a reservation, else park].",
            show_default=False,
        ),
    ] = None,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Give shares back. Releasing what is not held any more is no error; an id that was never a lease's is one.

    \b
    Examples:
      gpupool release l3fa94c0be1d2
      gpupool release --close-session l3fa94c0be1d2
      gpupool release --close-session 094f2ade0d6f
    """

    async def work() -> tuple[list[str], list[str]]:
        async with client(pool, token_file) as connection:
            known = {lease.id: lease for lease in await connection.leases()}
            open_sessions = [
                session.id for session in await connection.sessions() if session.state != "closed"
            ]
            sessions: list[str] = []
            for lease in leases:
                found = [] if lease in known else [one for one in open_sessions if _names(lease, one)]
                if len(found) == 1:
                    sessions.append(lease)
                    if close_session:
                        await connection.close_session(found[0], "release")
                    continue
                close = (
                    lease in known and known[lease].reservation if close_session is None else close_session
                )
                await connection.release(lease, close_session=close)
            # The pool lists leases for an hour after their end; the journal knows them for longer.
            reports = Reports(connection)
            rest = [lease for lease in leases if lease not in known and lease not in sessions]
            unknown = [lease for lease in rest if not await reports.ever_leased(lease)]
            return unknown, [] if close_session else sessions

    unknown, kept = exits.run_async(work())
    if json:
        refused = {*unknown, *kept}
        show.as_json(
            {"released": [one for one in leases if one not in refused], "unknown": unknown, "kept": kept}
        )
    for session in kept:
        exits.say(
            f"{session} is a session, which --close-session ends, and with it what it has in GPU memory; leases that are "
            "held: gpupool leases"
        )
    for lease in unknown:
        exits.say(f"the pool knows no lease {lease[:64]!r}; those that are held: gpupool leases")
    if unknown or kept:
        raise typer.Exit(exits.FAILED)


def _names(said: str, session: str) -> bool:
    """A session's id, whole or as lists shorten it."""
    return len(said) >= _SHORTENED and session.startswith(said)


def resize(
    lease: Annotated[
        str,
        typer.Argument(metavar="LEASE", help="Id of a lease that is held.", autocompletion=completing.leases),
    ],
    partial: Part = None,
    memory: Memory = None,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Change the size of a share while it is in use, where it is. Neighbours notice nothing.

    Refused with the numbers when there is no room, or when more memory is in use than would be left.

    \b
    Examples:
      gpupool resize l3fa94c0be1d2 -p 0.35
      gpupool resize l3fa94c0be1d2 -m 4096
    """

    async def work() -> Grant:
        async with client(pool, token_file) as connection:
            return await connection.resize(lease, share(partial, memory))

    grant = exits.run_async(work())
    if json:
        show.as_json(grant)
    else:
        print(f"{grant.lease_id} now holds {show.shares(grant.shares)}")


def say_queued(place: QueuePlace) -> None:
    """Tells on standard error, so that standard output stays what was asked for."""
    about = "" if place.eta_seconds is None else f", about {show.seconds(place.eta_seconds)}"
    exits.say(f"waiting at place {place.place}{about}: {place.reason}")
