"""Entry point of the command line: the table of all its commands."""

from __future__ import annotations

import os
from typing import Annotated, Final

import typer

from gpupool.cli.common import first_process  # noqa: F401 (acts when imported, before the imports that take a second)

# gRPC writes each failed handshake to standard error in a form of its own; what failed is said by those who connect.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from gpupool.cli import bench, gpu, kernel_packs, lease, project, provider, quota, session, token
from gpupool.cli.common import exits
from gpupool.cli.common.groups import Group
from gpupool.cli.common.watch import WatchCommand
from gpupool.cli.node.app import app as node
from gpupool.cli.pool.app import app as pool
from gpupool.cli.report.app import app as report
from gpupool.cli.top import completion, examples, explain, health, lab, run, smi, softgpu, up, version

#: Headings of `gpupool --help`, in the order in which a newcomer needs them.
USE: Final = "Use a GPU"
LOOK: Final = "Look"
LEND: Final = "Run a pool"
ADMINISTER: Final = "Administer"
MORE: Final = "More"


class Program(Group):
    """All of it."""

    order = (USE, LOOK, LEND, ADMINISTER, MORE)


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


# What follows the name of these two is the command's own, with or without `--`.
_WHOLE = {"allow_interspersed_args": False}
app.command("lab", rich_help_panel=USE)(lab.lab)
app.command("up", rich_help_panel=USE)(up.up)
app.command("run", rich_help_panel=USE, context_settings=_WHOLE)(run.run)
app.command("softgpu", rich_help_panel=USE, epilog=softgpu.HELP, context_settings=_WHOLE)(softgpu.softgpu)
app.add_typer(lease.app, name="lease", rich_help_panel=USE)

app.command("smi", cls=WatchCommand, rich_help_panel=LOOK)(smi.smi)
app.command("explain", cls=WatchCommand, rich_help_panel=LOOK)(explain.explain)
app.command("health", cls=WatchCommand, rich_help_panel=LOOK)(health.health)
app.add_typer(gpu.app, name="gpu", rich_help_panel=LOOK)
app.add_typer(session.app, name="session", rich_help_panel=LOOK)
app.add_typer(report, name="report", rich_help_panel=LOOK)

app.add_typer(pool, name="pool", rich_help_panel=LEND)
app.add_typer(node, name="node", rich_help_panel=LEND)
app.add_typer(provider.app, name="provider", rich_help_panel=LEND)

app.add_typer(project.app, name="project", rich_help_panel=ADMINISTER)
app.add_typer(quota.app, name="quota", rich_help_panel=ADMINISTER)
app.add_typer(token.app, name="token", rich_help_panel=ADMINISTER)

app.add_typer(kernel_packs.app, name="kernel-packs", rich_help_panel=MORE)
app.add_typer(bench.app, name="bench", rich_help_panel=MORE)
app.command("examples", rich_help_panel=MORE)(examples.examples)
app.command("completion", rich_help_panel=MORE)(completion.completion)
app.command("version", rich_help_panel=MORE)(version.version)


def _alike(group: typer.Typer) -> None:
    """Every command's help ends with what its exit code means, and every group says what was meant by a wrong word."""
    for command in group.registered_commands:
        command.epilog = command.epilog or exits.HELP
    for below in group.registered_groups:
        if below.typer_instance is not None:
            below.typer_instance.info.cls = Group
            _alike(below.typer_instance)


_alike(app)

if __name__ == "__main__":
    app(prog_name="gpupool")
