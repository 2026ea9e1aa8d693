"""Entry point of the command line: the table of all its commands."""

from __future__ import annotations

import os
from typing import Annotated, Final

import typer

from gpupool.cli.common import first_process  # noqa: F401 (acts when imported, before the imports that take a second)

# gRPC writes each failed handshake to standard error in a form of its own; what failed is said by those who connect.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from gpupool.cli.common import exits
from gpupool.cli.common.groups import Group
from gpupool.cli.common.table import Row
from gpupool.cli.top import version

#: Headings of `gpupool --help`, in the order in which a newcomer needs them.
USE: Final = "Use a GPU"
LOOK: Final = "Look"
LEND: Final = "Run a pool"
ADMINISTER: Final = "Administer"
MORE: Final = "More"


class Program(Group):
    """All of it."""

    order = (USE, LOOK, LEND, ADMINISTER, MORE)
    rows = (
        Row("lab", "gpupool.cli.top.lab:lab", USE),
        Row("up", "gpupool.cli.top.up:up", USE),
        Row("run", "gpupool.cli.top.run:run", USE, passes_on=True),
        Row("softgpu", "gpupool.cli.top.softgpu:softgpu", USE, passes_on=True),
        Row("lease", "gpupool.cli.lease:app", USE),
        Row("smi", "gpupool.cli.top.smi:smi", LOOK, watches=True),
        Row("explain", "gpupool.cli.top.explain:explain", LOOK, watches=True),
        Row("health", "gpupool.cli.top.health:health", LOOK, watches=True),
        Row("gpu", "gpupool.cli.gpu:app", LOOK),
        Row("session", "gpupool.cli.session:app", LOOK),
        Row("report", "gpupool.cli.report.app:app", LOOK),
        Row("pool", "gpupool.cli.pool.app:app", LEND),
        Row("node", "gpupool.cli.node.app:app", LEND),
        Row("provider", "gpupool.cli.provider:app", LEND),
        Row("project", "gpupool.cli.project:app", ADMINISTER),
        Row("quota", "gpupool.cli.quota:app", ADMINISTER),
        Row("token", "gpupool.cli.token:app", ADMINISTER),
        Row("kernel-packs", "gpupool.cli.kernel_packs:app", MORE),
        Row("bench", "gpupool.cli.bench:app", MORE),
        Row("examples", "gpupool.cli.top.examples:examples", MORE),
        Row("completion", "gpupool.cli.top.completion:completion", MORE),
        Row("version", "gpupool.cli.top.version:version", MORE),
    )


app = typer.Typer(
    name="gpupool",
    cls=Program,
    epilog=exits.HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def program(
    version_wanted: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", is_eager=True, callback=version.print_and_exit
        ),
    ] = False,
) -> None:
    """Use and manage shares of GPUs on remote machines."""


if __name__ == "__main__":
    app(prog_name="gpupool")
