"""`gpupool pool backup`: copies the ledger while the pool runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpupool.cli.common import exits, show
from gpupool.cli.common.options import Endpoint, Json, TokenFile
from gpupool.cli.common.times import utc

if TYPE_CHECKING:
    from gpupool.ledger.backup import BackupInfo

_SECRET = "it holds the tokens of workers, so keep it as you keep the ledger"  # noqa: S105 (a sentence)


def backup(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="File for the copy, made with mode 0600; or the file that --check reads."
        ),
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Make no backup. Read FILE completely and show what it contains.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Copy the pool's ledger, as it is at one moment, while the pool runs. For administrators.

    The copy holds the tokens of workers: it is as secret as the ledger.

    \b
    Examples:
      gpupool pool backup /backup/pool-monday.sqlite
      gpupool pool backup --check /backup/pool-monday.sqlite
    """
    from gpupool.ledger.backup import BackupError
    from gpupool.ledger.backup import check as check_file

    with exits.clear_errors():
        taken = not check and not force and file.exists()
    if taken:
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
    from gpupool.client import maintenance
    from gpupool.client.pool import PoolClient
    from gpupool.ledger.backup import PrivateFile
    from gpupool.ledger.backup import check as check_file

    target = PrivateFile(file)
    try:
        async with PoolClient(pool, token_file) as client:
            await maintenance.backup(client, target.write)
        info = check_file(target.part)
        target.keep()
    finally:
        target.discard()
    return info


def _tell(file: Path, info: BackupInfo, json: bool) -> None:
    if json:
        show.as_json({"file": str(file), **show.fields(info)})
        return
    taken = "-" if info.taken_unix is None else utc(int(info.taken_unix))
    print(
        f"{file}: {info.size} bytes, schema version {info.version}, last line of {info.lines} at {taken}, "
        f"{info.leases} lease(s) held, {info.sessions} session(s)"
    )
    print(f"sha256 {info.sha256}")
    exits.say(_SECRET)
