"""`gpupool version`."""

from __future__ import annotations

import typer

from gpupool.cli.common import show
from gpupool.cli.common.options import Json
from gpupool.client.agreement import own_version


def print_and_exit(wanted: bool) -> None:
    """The same by ``gpupool --version``, which people type first."""
    if wanted:
        print(own_version())
        raise typer.Exit


def version(json: Json = False) -> None:
    """Print the version.

    \b
    Examples:
      gpupool version --json
    """
    number = own_version()
    if json:
        show.as_json({"version": number})
    else:
        print(number)
