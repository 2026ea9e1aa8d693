"""`gpupool bench`: how fast the wire is here."""

from __future__ import annotations

import typer

from gpupool.cli import exits
from gpupool.cli.options import Json

app = typer.Typer(no_args_is_help=True, help="Measure this installation.")


@app.callback()
def bench() -> None:
    """Measure this installation."""


@app.command()
def wire(json: Json = False) -> None:
    """Measure calls, posts and copies over loopback against raw sockets, in one run.

    \b
    Examples:
      gpupool bench wire --json
    """
    with exits.clear_errors():
        from gpupool.bench.wire import main

        raise typer.Exit(main(json))
