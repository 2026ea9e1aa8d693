"""How commands about one node name it."""

from __future__ import annotations

from typing import Annotated

import typer

from gpupool.cli.common import completing

NodeName = Annotated[
    str, typer.Argument(metavar="NODE", help="Name of a node.", autocompletion=completing.nodes)
]
