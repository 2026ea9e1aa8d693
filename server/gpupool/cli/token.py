"""`gpupool token`: who may call the pool over TCP. Works on the ledger of this machine, or on the pool that is named."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpupool.cli.common import exits, show
from gpupool.cli.common.options import Json, TokenFile, client, endpoint
from gpupool.client.admin import AdminClient
from gpupool.client.endpoint import ENDPOINT_VARIABLE, LEDGER_VARIABLE, private_home
from gpupool.client.types import Token

if TYPE_CHECKING:
    from gpupool.ledger.ledger import Ledger

OtherPool = Annotated[
    str | None,
    typer.Option(
        "--pool",
        parser=endpoint,
        metavar="ADDRESS",
        help="Work on the tokens of this pool, as an administrator: host:port, tls:host:port or unix:/path [default: the "
        "ledger of --ledger].",
        show_default=False,
    ),
]

InDatabase = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URL",
        envvar=LEDGER_VARIABLE,
        help="The ledger in PostgreSQL: postgresql+psycopg://user@host/database [default: $GPUPOOL_LEDGER or the file "
        "$GPUPOOL_HOME/pool.sqlite].",
        show_default=False,
        show_envvar=False,
    ),
]

app = typer.Typer(no_args_is_help=True, help="Make, list and revoke tokens for callers over TCP.")


def _needs_a_pool(token_file: Path | None) -> None:
    """A ledger is a file, for which no token counts: whoever names one means a pool."""
    if token_file is not None:
        raise typer.BadParameter("it counts with --pool ADDRESS only", param_hint="--token-file")


@contextlib.contextmanager
def _ledger(url: str | None, *, makes: bool = False) -> Iterator[Ledger]:
    """The ledger of this machine. `makes`: a new one if there is none; else only that is said."""
    from gpupool.ledger.ledger import Ledger, LedgerError
    from gpupool.model.clock import Clock
    from gpupool.pool.options import LEDGER_NAME

    try:
        with exits.clear_errors():
            place = url or private_home() / LEDGER_NAME
            elsewhere = os.environ.get(ENDPOINT_VARIABLE, "")
            if url is None and elsewhere and not elsewhere.startswith("unix:"):
                exits.say(
                    f"this is about the ledger {place}; ${ENDPOINT_VARIABLE} does not count here, name that pool with --pool"
                )
            if isinstance(place, Path) and not place.exists():
                if not makes:
                    exits.say(
                        f"there is no ledger {place}; name a pool with --pool, or a ledger with --ledger"
                    )
                    raise typer.Exit(exits.FAILED)
                # A pool may be started on it later. Otherwise it is the wrong user's, or that of another $GPUPOOL_HOME.
                exits.say(f"{place} is new: a pool that runs with another ledger does not know its tokens")
            with Ledger(place, Clock.start()) as ledger:
                yield ledger
    except LedgerError as error:
        exits.say(str(error))
        raise typer.Exit(exits.FAILED) from None


@app.command()
def create(
    user: Annotated[str, typer.Option(help="The user, or for a node its name.")],
    role: Annotated[str, typer.Option(help="Role of the token: user, node or admin.")] = "user",
    ledger_url: InDatabase = None,
    json: Json = False,
) -> None:
    """Make a token. It is shown once and stored as a hash.

    \b
    Examples:
      (umask 077; gpupool token create --user ann > ann.token)
    """
    from gpupool.pool.access import tokens

    with _ledger(ledger_url, makes=True) as ledger:
        try:
            made = tokens.create(ledger, user, role)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    if json:
        info = made.info
        show.as_json({"id": info.id, "subject": info.subject, "role": info.role, "token": made.secret})
    else:
        print(made.secret)
        exits.say(f"token {made.info.id} for {made.info.role} {made.info.subject}; it is not shown again")


@app.command("list", epilog=exits.HELP)
def list_(
    pool: OtherPool = None,
    token_file: TokenFile = None,
    ledger_url: InDatabase = None,
    json: Json = False,
) -> None:
    """List tokens, revoked ones too; never their text.

    \b
    Examples:
      gpupool token list --json | jq '.tokens[] | select(.revoked_unix == null)'
      gpupool token list --pool gpu-pool.example.org:7460 --token-file admin.token
    """
    from gpupool.pool.access import tokens

    async def ask() -> list[Token]:
        async with client(pool, token_file) as connection:
            return await AdminClient(connection).tokens()

    found: Sequence[Token | tokens.TokenInfo]
    if pool is not None:
        found = exits.run_async(ask())
    else:
        _needs_a_pool(token_file)
        with _ledger(ledger_url) as ledger:
            found = tokens.list_tokens(ledger)
    if json:
        show.as_json({"tokens": found})
        return
    lines = show.table("ID", "FOR", "ROLE", "MADE", "STATE")
    for token in found:
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(token.created_unix))
        lines.add(token.id, token.subject, token.role, made, "revoked" if token.revoked_unix else "live")
    show.console().print(lines)


@app.command(epilog=exits.HELP)
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="Id of the token, not its text.")],
    pool: OtherPool = None,
    token_file: TokenFile = None,
    ledger_url: InDatabase = None,
    json: Json = False,
) -> None:
    """End a token at once.

    \b
    Examples:
      gpupool token revoke 3f2a9c0b1d7e
    """
    from gpupool.pool.access import tokens

    async def ask() -> bool:
        async with client(pool, token_file) as connection:
            return await AdminClient(connection).revoke_token(token)

    if pool is not None:
        ended = exits.run_async(ask())
    else:
        _needs_a_pool(token_file)
        with _ledger(ledger_url) as ledger:
            ended = tokens.revoke(ledger, token)
    if json:
        show.as_json({"id": token[:12], "revoked": ended})
    if not ended:
        exits.say(f"there is no live token {token[:12]!r}")
        raise typer.Exit(exits.FAILED)
