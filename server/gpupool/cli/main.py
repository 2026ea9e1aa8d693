"""Entry point of the command line."""

from __future__ import annotations

import typer

from gpupool.cli import (
    audit,
    backup,
    bench,
    completion,
    exits,
    explain,
    health,
    history,
    kernel_packs,
    leases,
    lists,
    netperf,
    nodes,
    projects,
    providers,
    quotas,
    replay,
    report,
    run,
    services,
    simulate,
    smi,
    softgpu,
    tokens,
)
from gpupool.cli.options import Json
from gpupool.cli.watch import WatchCommand

app = typer.Typer(
    name="gpupool",
    help="Shares of GPUs that are somewhere else.",
    epilog=exits.HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command("serve", epilog=exits.HELP)(services.serve)
app.command("node", epilog=exits.HELP)(services.node)
# What follows the command's name is the command's own, with or without `--`.
app.command("run", epilog=exits.HELP, context_settings={"allow_interspersed_args": False})(run.run)
app.command("softgpu", epilog=softgpu.HELP, context_settings={"allow_interspersed_args": False})(
    softgpu.softgpu
)
app.command("request", epilog=exits.HELP)(leases.request)
app.command("release", epilog=exits.HELP)(leases.release)
app.command("resize", epilog=exits.HELP)(leases.resize)
app.command("list-gpus", cls=WatchCommand, epilog=exits.HELP)(lists.list_gpus)
app.command("smi", cls=WatchCommand, epilog=exits.HELP)(smi.smi)
app.command("leases", cls=WatchCommand, epilog=exits.HELP)(lists.leases)
app.command("sessions", cls=WatchCommand, epilog=exits.HELP)(lists.sessions)
app.command("queue", cls=WatchCommand, epilog=exits.HELP)(lists.queue)
app.command("explain", cls=WatchCommand, epilog=exits.HELP)(explain.explain)
app.command("health", cls=WatchCommand, epilog=exits.HELP)(health.health)
app.command("nodes", cls=WatchCommand, epilog=exits.HELP)(nodes.nodes)
app.command("drain", epilog=exits.HELP)(nodes.drain)
app.command("providers", cls=WatchCommand, epilog=exits.HELP)(providers.providers)
app.command("scale", epilog=exits.HELP)(providers.scale)
app.command("logs", cls=WatchCommand, epilog=exits.HELP)(nodes.logs)
app.command("netperf", epilog=exits.HELP)(netperf.netperf)
app.command("completion", epilog=exits.HELP)(completion.completion)
app.command("stats", cls=WatchCommand, epilog=exits.HELP)(report.stats)
app.command("history", epilog=exits.HELP)(history.history)
app.command("report", epilog=exits.HELP)(report.report)
app.command("audit", epilog=exits.HELP)(audit.audit)
app.command("backup", epilog=exits.HELP)(backup.backup)
app.command("restore", epilog=exits.HELP)(backup.restore)
app.command("replay", epilog=exits.HELP)(replay.replay)
app.command("simulate", epilog=exits.HELP)(simulate.simulate)
app.add_typer(projects.app, name="project")
app.add_typer(quotas.app, name="quota")
app.add_typer(tokens.app, name="token")
app.add_typer(kernel_packs.app, name="kernel-packs")
app.add_typer(bench.app, name="bench")


@app.command(epilog=exits.HELP)
def version(json: Json = False) -> None:
    """Print the version.

    \b
    Examples:
      gpupool version --json
    """
    from gpupool.cli import show
    from gpupool.client.agreement import own_version

    number = own_version()
    if json:
        show.as_json({"version": number})
    else:
        print(number)


def _with_exit_codes(group: typer.Typer) -> None:
    """Every command's help ends with what its exit code means."""
    for command in group.registered_commands:
        command.epilog = command.epilog or exits.HELP
    for below in group.registered_groups:
        if below.typer_instance is not None:
            _with_exit_codes(below.typer_instance)


_with_exit_codes(app)

if __name__ == "__main__":
    app(prog_name="gpupool")
