"""`gpupool pool audit`: what was decided, when and why."""

from __future__ import annotations

import dataclasses
import json as json_text
from typing import Annotated

import typer

from gpupool.cli.common import completing, exits
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client
from gpupool.cli.common.sessions import whole_session
from gpupool.cli.common.times import moment, utc
from gpupool.client.reports import JournalLine, Reports
from gpupool.text import printable


def audit(
    from_: Annotated[
        float | None,
        typer.Option(
            "--from",
            parser=moment,
            metavar="TIME",
            help="Only lines after this time: 2h (ago), today, a date.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        float | None,
        typer.Option(
            "--to", parser=moment, metavar="TIME", help="Only lines before this time.", show_default=False
        ),
    ] = None,
    user: Annotated[str, typer.Option(help="Only this user.", show_default=False)] = "",
    lease: Annotated[
        str,
        typer.Option(
            metavar="LEASE",
            help="Only this lease.",
            show_default=False,
            autocompletion=completing.leases,
        ),
    ] = "",
    session: Annotated[
        str,
        typer.Option(
            metavar="SESSION",
            help="Only this session.",
            show_default=False,
            autocompletion=completing.sessions,
        ),
    ] = "",
    node: Annotated[
        str,
        typer.Option(
            metavar="NODE",
            help="Only this node.",
            show_default=False,
            autocompletion=completing.nodes,
        ),
    ] = "",
    kind: Annotated[
        str,
        typer.Option(
            help="Only lines of this kind: grant, queue, refuse, release, ended, notice, ….",
            show_default=False,
        ),
    ] = "",
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, max=1_000_000, help="Number of lines, the latest ones.")
    ] = 200,
    all_: Annotated[bool, typer.Option("--all", help="All lines.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Also show new lines, until Ctrl-C.")
    ] = False,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Print the pool's journal: every decision with its reason. If you aren't an administrator, you see only your own lines.

    With --json, one line of JSON for each line of the journal.

    \b
    Examples:
      gpupool pool audit --lease l3fa94c0be1d2
      gpupool pool audit --from today --kind refuse
      gpupool pool audit --follow --json | jq .explanation
    """

    async def work() -> int:
        count = 0
        async with client(pool, token_file) as connection:
            whole = await whole_session(connection.sessions, session) if session else ""
            found = Reports(connection).audit(
                from_unix=from_ or 0.0, to_unix=to or 0.0, user=user, lease_id=lease, session_id=whole,
                kind=kind, node=node, limit=-1 if all_ else lines, follow=follow,
            )  # fmt: skip
            async for line in found:
                print(as_json(line) if json else as_text(line), flush=follow)
                count += 1
        return count

    try:
        count = exits.run_async(work())
    except typer.Exit as end:
        # Ctrl-C is how one stops following.
        raise typer.Exit(
            exits.OK if follow and end.exit_code == exits.INTERRUPTED else end.exit_code
        ) from None
    if not count and not json:
        exits.say("the journal has no such line")
    if count == lines and from_ is not None and not all_ and not follow:
        exits.say(f"these are the latest {lines} lines; --all shows all of them")


def as_json(line: JournalLine) -> str:
    """One line, with the names of the fields of :class:`JournalLine`."""
    return json_text.dumps(dataclasses.asdict(line))


def as_text(line: JournalLine) -> str:
    """One line for people: when, what, who, about what, why."""
    about = " ".join(
        f"{name} {value}"
        for name, value in (
            ("lease", line.lease_id), ("session", line.session_id[:12]), ("node", line.node)
        )
        if value
    )  # fmt: skip
    parts = (
        f"{line.number:>7}",
        utc(int(line.at_unix)),
        f"{line.kind:<14}",
        f"{line.user or '-':<10}",
        line.explanation,
    )
    return printable("  ".join(parts) + (f"  ({about})" if about else ""))
