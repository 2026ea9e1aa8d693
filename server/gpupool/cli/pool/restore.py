"""`gpupool pool restore`: puts a copy of the ledger in its place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpupool.cli.common import exits, show
from gpupool.cli.common.options import Json, refuse_options
from gpupool.client.endpoint import private_home

if TYPE_CHECKING:
    from gpupool.pool.lifecycle.restore import Restored


def restore(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The backup.", show_default=False)
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Rename an existing ledger, and use the backup instead.")
    ] = False,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Instead of FILE: a PostgreSQL database into which you have restored a dump. Prepares it "
            "for use.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Put a backup in the place of the ledger. The pool server must be stopped.

    The backup doesn't have what was granted later: those leases end, and sessions are parked and resume. At its next
    start the pool waits for 30 seconds until earlier workers have stopped.

    \b
    Examples:
      gpupool pool restore --force /backup/pool-monday.sqlite
    """
    from sqlalchemy.exc import SQLAlchemyError

    from gpupool.ledger.backup import BackupError
    from gpupool.ledger.ledger import LedgerError
    from gpupool.pool.access.listening import ServeError
    from gpupool.pool.server import only_server

    if (file is None) == (ledger is None):
        raise typer.BadParameter("name either the backup, or --ledger")
    if file is None:
        refuse_options(context, ("force",), "--ledger is prepared where it is")
    with exits.clear_errors():
        try:
            with only_server(private_home()):
                done = _restore_file(file, force) if file is not None else _restored_database(str(ledger))
        except ServeError as error:
            exits.say(f"a pool server runs; stop it first ({error})")
            raise typer.Exit(exits.FAILED) from None
        except (BackupError, LedgerError, SQLAlchemyError) as error:
            exits.say(str(error).splitlines()[0])
            raise typer.Exit(exits.FAILED) from None
    if json:
        show.as_json(show.fields(done) | {"aside": None if done.aside is None else str(done.aside)})
        return
    print(
        f"restored: {done.sessions} session(s), {done.ended} lease(s) end, new epochs are above {done.epoch}"
    )
    if done.aside is not None:
        print(f"the ledger of before is {done.aside}")
    exits.say("tokens that were revoked after the backup are valid again: see `gpupool token list`")


def _restore_file(file: Path, force: bool) -> Restored:
    from gpupool.pool.lifecycle.restore import restore as put_back
    from gpupool.pool.options import LEDGER_NAME

    return put_back(file, private_home() / LEDGER_NAME, force=force)


def _restored_database(url: str) -> Restored:
    from gpupool.ledger.ledger import Ledger
    from gpupool.ledger.servers import ServerIdentity
    from gpupool.model.clock import Clock
    from gpupool.pool.lifecycle.restore import begin_anew

    with Ledger(url, Clock.start(), leader=ServerIdentity("gpupool pool restore")) as opened:
        return begin_anew(opened)
