"""Commands that copy the ledger and put a copy back: backup and restore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpupool.cli import exits, show
from gpupool.cli.options import Endpoint, Json, TokenFile
from gpupool.cli.times import local
from gpupool.client.endpoint import private_home

if TYPE_CHECKING:
    from gpupool.ledger.backup import BackupInfo
    from gpupool.pool.lifecycle.restore import Restored

_SECRET = "it holds the tokens of workers, so keep it as you keep the ledger"  # noqa: S105 (a sentence)


def backup(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Where the copy goes, made with mode 0600; or what --check reads."
        ),
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Make none: read this one from end to end and say what it holds.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Copy the pool's ledger, as it is at one moment, while the pool runs. For administrators.

    The copy holds the tokens of workers: it is as secret as the ledger.

    \b
    Examples:
      gpupool backup /backup/pool-monday.sqlite
      gpupool backup --check /backup/pool-monday.sqlite
    """
    from gpupool.ledger.backup import BackupError
    from gpupool.ledger.backup import check as check_file

    if not check and file.exists() and not force:
        exits.say(f"{file} exists; name another file, or replace it with --force")
        raise typer.Exit(exits.FAILED)
    try:
        if check:
            with exits.clear_errors():
                info = check_file(file)
        else:
            info = exits.run_async(_fetch(file, pool, token_file))
    except BackupError as error:
        exits.say(str(error))
        raise typer.Exit(exits.FAILED) from None
    _tell(file, info, json)


async def _fetch(file: Path, pool: str | None, token_file: Path | None) -> BackupInfo:
    from gpupool.client.maintenance import MaintenanceClient
    from gpupool.ledger.backup import PrivateFile
    from gpupool.ledger.backup import check as check_file

    target = PrivateFile(file)
    try:
        async with MaintenanceClient(pool, token_file) as client:
            await client.backup(target.write)
        info = check_file(target.part)
        target.keep()
    finally:
        target.discard()
    return info


def _tell(file: Path, info: BackupInfo, json: bool) -> None:
    if json:
        show.as_json({"file": str(file), **_plain(info)})
        return
    taken = "-" if info.taken_unix is None else local(info.taken_unix)
    print(
        f"{file}: {info.size} bytes, schema version {info.version}, last line of {info.lines} at {taken}, "
        f"{info.leases} lease(s) held, {info.sessions} session(s)"
    )
    print(f"sha256 {info.sha256}")
    exits.say(_SECRET)


def restore(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The backup.", show_default=False)
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Move a ledger that is there aside, and go on from the backup.")
    ] = False,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Instead of FILE: a PostgreSQL database into which you have restored a dump; makes it fit to go on.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Put a backup in the place of the ledger. The pool server must be stopped.

    What was granted after the backup was taken is not in it: leases end, sessions are parked and go on, and the pool
    waits for 30 seconds at its next start until workers of before have ended their leases.

    \b
    Examples:
      gpupool restore --force /backup/pool-monday.sqlite
    """
    from sqlalchemy.exc import SQLAlchemyError

    from gpupool.ledger.backup import BackupError
    from gpupool.ledger.ledger import LedgerError
    from gpupool.pool.access.listening import ServeError
    from gpupool.pool.server import only_server

    if (file is None) == (ledger is None):
        raise typer.BadParameter("name either the backup, or --ledger")
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
        show.as_json(_plain(done) | {"aside": None if done.aside is None else str(done.aside)})
        return
    print(
        f"restored: {done.sessions} session(s), {done.ended} lease(s) end, new epochs are above {done.epoch}"
    )
    if done.aside is not None:
        print(f"the ledger of before is {done.aside}")
    exits.say("tokens that were revoked after the backup are valid again: see `gpupool token list`")


def _restore_file(file: Path, force: bool) -> Restored:
    from gpupool.pool.lifecycle.restore import restore as put_back
    from gpupool.pool.server import LEDGER_NAME

    return put_back(file, private_home() / LEDGER_NAME, force=force)


def _restored_database(url: str) -> Restored:
    from gpupool.ledger.ledger import Ledger
    from gpupool.model.clock import Clock
    from gpupool.pool.lifecycle.restore import begin_anew

    with Ledger(url, Clock.start(), exclusive=True) as opened:
        return begin_anew(opened)


def _plain(value: object) -> dict[str, object]:
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}  # type: ignore[attr-defined]
