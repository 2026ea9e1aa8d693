"""`gpupool session`: processes with GPU memory in the pool."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import RenderableType

from gpupool.cli.common import completing, exits, show, watch
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client
from gpupool.cli.common.words import begun_with
from gpupool.client.errors import PoolRefusedError
from gpupool.client.types import SessionInfo
from gpupool.sentences import obstacles

app = typer.Typer(no_args_is_help=True, help="Sessions: GPU memory and work of one kernel or program.")


@app.command("list", cls=watch.WatchCommand, epilog=exits.HELP)
def list_(
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
    closed: Annotated[
        bool, typer.Option("--closed", help="Also sessions that ended in the last hour.")
    ] = False,
    every: watch.Watch = None,
) -> None:
    """List sessions, where their memory lies, and what keeps it from being moved.

    \b
    Examples:
      gpupool session list
      gpupool session list --json | jq '.sessions[] | {id, memory_place, park_obstacle}'
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            found = [s for s in await connection.sessions() if closed or s.state != "closed"]
        notes = [
            f"{session.id[:12]}: {sentence}"
            for session in found
            for sentence in obstacles.sentences(session.park_obstacle, session.move_obstacle)
        ]
        notes += [f"{session.id[:12]}: {session.notice.explanation}" for session in found if session.notice]
        return watch.Shown(_session_table(found), {"sessions": found}, tuple(notes))

    watch.look(work, as_json=json, every=every)


def _session_table(found: list[SessionInfo]) -> RenderableType:
    lines = show.table(
        *("SESSION", "USER", "PROJECT", "WHAT", "STATE", "GPU", "MEMORY", "LIES IN", "CAP"),
        right=("MEMORY",),
        wrapped=("GPU", "WHAT", "STATE"),
        less_wanted=("PROJECT", "CAP", "LIES IN", "MEMORY", "WHAT"),
    )
    for session in found:
        lines.add(
            session.id[:12],
            session.user,
            session.project or "-",
            session.label or session.holder or "-",
            show.session_state(session),
            ", ".join(session.device_ids) or "-",
            show.mib(sum(session.usage.memory_used) // show.MIB),
            session.memory_activity or session.memory_place,
            f"{session.enforcement}{', strict' if session.strict else ''}",
        )
    return lines if lines.count else "No session."


@app.command("close", epilog=exits.HELP)
def close(
    sessions: Annotated[
        list[str],
        typer.Argument(
            metavar="SESSION...",
            help="Ids of sessions, as `gpupool session list` shows them.",
            autocompletion=completing.sessions,
        ),
    ],
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """End sessions: what they have in GPU memory is lost, and shares that they hold are free. A refused one stops no other.

    The program or notebook goes on without; its CUDA calls fail until it attaches anew.

    \b
    Examples:
      gpupool session close 094f2ade0d6f
    """
    unknown: list[str] = []
    refused: dict[str, PoolRefusedError] = {}

    async def work() -> None:
        async with client(pool, token_file) as connection:
            there = [one.id for one in await connection.sessions() if one.state != "closed"]
            for said in sessions:
                session = begun_with(there, said)
                if session is None:
                    unknown.append(said)
                    continue
                try:
                    await connection.close_session(session, "release")
                except PoolRefusedError as error:
                    refused[said] = error

    exits.run_async(work())
    if json:
        show.as_json(
            {
                "closed": [said for said in sessions if said not in unknown and said not in refused],
                "unknown": unknown,
                "refused": {said: str(error) for said, error in refused.items()},
            }
        )
    for said, error in refused.items():
        exits.say(f"{said}: {error}")
    for said in unknown:
        exits.say(f"no session that is open has the id {said[:64]!r}; those that are: gpupool session list")
    if refused:
        raise typer.Exit(exits.code_of(next(iter(refused.values()))))
    if unknown:
        raise typer.Exit(exits.FAILED)
