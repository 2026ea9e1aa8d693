"""`gpupool run`: a command with a share of a pooled GPU, for as long as it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from gpupool.cli.common import exits
from gpupool.cli.common.options import Endpoint, OnBehalfOf, TokenFile, WaitAgain, wait_seconds
from gpupool.cli.common.request_options import named_share, takes_request
from gpupool.request.gpu_request import GpuRequest


@takes_request(wait="0")
def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND [ARGUMENT]...", help="Command to run.")],
    asked: GpuRequest,
    wait_again: WaitAgain = "forever",  # type: ignore[assignment]
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
    from gpupool.cli.top.run_command import RunOptions, run_command

    options = RunOptions(
        command=tuple(command),
        request=named_share(asked),
        wait_again_seconds=wait_seconds(wait_again),
        on_behalf_of=user,
        endpoint=pool,
        token_file=token_file,
    )
    raise typer.Exit(exits.run_async(run_command(options)))
