"""`gpupool examples`: the example notebooks, copied to where one can write."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpupool.cli.common import exits


def examples(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]", help="Target folder; created if it doesn't exist.", show_default=True
        ),
    ] = Path("gpupool-examples"),
    force: Annotated[
        bool, typer.Option("--force", help="Replace existing notebooks of the same name.")
    ] = False,
) -> None:
    """Copy the example notebooks into a folder.

    \b
    Examples:
      gpupool examples
      gpupool examples notebooks --force
    """
    from gpupool.embedded.examples import NoExamplesError, copy, notebooks

    with exits.clear_errors():
        try:
            found = notebooks()
        except NoExamplesError as error:
            exits.say(str(error))
            raise typer.Exit(exits.FAILED) from None
        folder.mkdir(parents=True, exist_ok=True)
        kept = [path.name for path in found if not copy(path, folder, over=force)]
    if kept:
        exits.say(f"kept as they are: {', '.join(kept)}; --force replaces them")
    print(f"{len(found) - len(kept)} notebooks in {folder}; gpupool lab --root-dir {folder} opens them")
