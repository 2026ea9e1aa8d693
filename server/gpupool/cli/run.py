"""`gpupool run`: a command with a share of a pooled GPU, for as long as it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from gpupool.cli import exits
from gpupool.cli.options import (
    AskKind,
    Count,
    Endpoint,
    Filters,
    For,
    Kind,
    Memory,
    NodePools,
    Nodes,
    NoIsolation,
    OnBehalfOf,
    Part,
    Priority,
    Project,
    Strict,
    TokenFile,
    Wait,
    WaitAgain,
    share,
    wait_seconds,
)


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND [ARGUMENT]...", help="What to run.")],
    partial: Part = None,
    memory: Memory = None,
    num_gpus: Count = "1",  # type: ignore[assignment]
    nodes: Nodes = "auto",
    wait: Wait = "0",  # type: ignore[assignment]
    wait_again: WaitAgain = "forever",  # type: ignore[assignment]
    for_: For = "0",  # type: ignore[assignment]
    strict: Strict = False,
    filter_: Filters = None,
    node_pool: NodePools = None,
    project: Project = "",
    kind: AskKind = Kind.INTERACTIVE,
    priority: Priority = None,
    no_isolation: NoIsolation = False,
    user: OnBehalfOf = "",
    pool: Endpoint = None,
    token_file: TokenFile = None,
) -> None:
    """Run a command with a share of a GPU and give it back when the command ends, however it ends.

    The exit code is the command's; 128 + n when signal n ended it.

    \b
    Examples:
      gpupool run -p 0.2 -- python train.py
      gpupool run -m 4096 --wait 10m --for 2h -- python train.py
    """
    from gpupool.cli.run_command import RunOptions, run_command

    options = RunOptions(
        command=tuple(command),
        share=share(partial, memory),
        count=num_gpus,
        nodes=nodes,
        wait_seconds=wait_seconds(wait),
        wait_again_seconds=wait_seconds(wait_again),
        duration_seconds=for_,
        strict=strict,
        filters=tuple(filter_ or ()),
        pools=tuple(node_pool or ()),
        project=project,
        kind=kind.value,
        priority=priority or 0,
        isolated=not no_isolation,
        on_behalf_of=user,
        endpoint=pool,
        token_file=token_file,
    )
    raise typer.Exit(exits.run_async(run_command(options)))
