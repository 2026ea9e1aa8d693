"""`gpupool bench`: what remoting costs here, what sessions get of a device, and what giving it up and coming back does."""

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


@app.command()
def roundtrips(json: Json = False) -> None:
    """Count how often PyTorch waits for the network, and measure what a longer way to the GPU costs.

    On a driver that executes nothing. GPUPOOL_TORCH_PYTHON names an interpreter with PyTorch, if this one has none.

    \b
    Examples:
      GPUPOOL_TORCH_PYTHON=~/torch/bin/python gpupool bench roundtrips --json
    """
    with exits.clear_errors():
        from gpupool.bench.roundtrips import main

        raise typer.Exit(main(json))


@app.command()
def fairness(json: Json = False) -> None:
    """Measure what sessions under full load get of one device beside their shares, alone and under hard caps.

    On the software GPU, for about a minute and a half. Other load on the machine changes the times, not the shares.

    \b
    Examples:
      gpupool bench fairness --json
    """
    with exits.clear_errors():
        from gpupool.bench.fairness import main

        raise typer.Exit(main(json))


@app.command()
def park(json: Json = False) -> None:
    """Measure what it costs to give a device up and to come back, and how soon a session's first kernel is done.

    On the software GPU, with 1 GiB of device memory; the pool and the node that it needs are its own.

    \b
    Examples:
      gpupool bench park --json
    """
    with exits.clear_errors():
        from gpupool.bench.park import main

        raise typer.Exit(main(json))
