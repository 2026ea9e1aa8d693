"""`gpupool completion`: the script that teaches a shell to complete commands, options and names of the pool."""

from __future__ import annotations

import enum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined, unused-ignore]

PROGRAM = "gpupool"
VARIABLE = "_GPUPOOL_COMPLETE"


class Shell(enum.Enum):
    """Shells that can be taught."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="The shell: bash, zsh or fish.")],
) -> None:
    """Print the script that completes commands, options, and names of leases, nodes and projects.

    `gpupool --install-completion` puts it in place for the shell at hand.

    \b
    Examples:
      source <(gpupool completion bash)
      gpupool completion fish > ~/.config/fish/completions/gpupool.fish
    """
    print(get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell.value))
