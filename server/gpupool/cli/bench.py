"""`gpupool bench`: what remoting, sharing a device and giving it up cost here, and how placement fills a pool.

The measurements are in `benchmarks/` of a checkout; an installation has only these commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import typer

from gpupool.cli.common import exits
from gpupool.cli.common.options import Json
from gpupool.cli.measurements import measurement
from gpupool.pool.model.consolidation import Consolidation
from gpupool.simulation.quiet import only_warnings

#: Written down here too: to list them must not cost the import of what computes.
_POLICIES: Final = "shadow_price, fgd, best_fit, binpack, gpu_packing, dot_product, spread, random"

app = typer.Typer(no_args_is_help=True, help="Measure this machine, from a checkout.")


@app.callback()
def bench() -> None:
    """Measure this machine, from a checkout of jupyter-gpupool."""


@app.command()
def wire(json: Json = False) -> None:
    """Measure calls, posts and copies over loopback against raw sockets, in one run.

    \b
    Examples:
      gpupool bench wire --json
    """
    with exits.clear_errors():
        raise typer.Exit(measurement("wire").main(json))


@app.command()
def roundtrips(json: Json = False) -> None:
    """Count how often PyTorch waits for the network, and measure what a longer way to the GPU costs.

    On a driver that executes nothing. GPUPOOL_TORCH_PYTHON names an interpreter with PyTorch, if this one has none.

    \b
    Examples:
      GPUPOOL_TORCH_PYTHON=~/torch/bin/python gpupool bench roundtrips --json
    """
    with exits.clear_errors():
        raise typer.Exit(measurement("roundtrips").main(json))


@app.command()
def step(json: Json = False) -> None:
    """Measure one training step of an MLP, a ResNet and GPT-2 in eager PyTorch beside the same step without a pool.

    On a driver that executes nothing. GPUPOOL_TORCH_PYTHON names an interpreter with PyTorch, if this one has none.

    \b
    Examples:
      GPUPOOL_TORCH_PYTHON=~/torch/bin/python gpupool bench step --json
    """
    with exits.clear_errors():
        raise typer.Exit(measurement("step").main(json))


@app.command()
def operations(json: Json = False) -> None:
    """Measure products, convolutions and FFTs of the software GPU beside the same in PyTorch on the CPU.

    GPUPOOL_TORCH_PYTHON names an interpreter with PyTorch, if this one has none.

    \b
    Examples:
      GPUPOOL_TORCH_PYTHON=~/torch/bin/python gpupool bench operations --json
    """
    with exits.clear_errors():
        raise typer.Exit(measurement("operations").main(json))


@app.command()
def fairness(json: Json = False) -> None:
    """Measure what sessions under full load get of one device beside their shares, alone and under hard caps.

    On the software GPU, for about six minutes. Other load on the machine changes the times, not the shares.

    \b
    Examples:
      gpupool bench fairness --json
    """
    with exits.clear_errors():
        raise typer.Exit(measurement("fairness").main(json))


@app.command()
def softgpu(json: Json = False) -> None:
    """Measure how fast the software GPU runs kernels, as ratios to what gcc makes of the plain C loops.

    For about a minute, without a pool. GPUPOOL_NUMBA_PYTHON names an interpreter with numba-cuda for its simulator,
    if this one has none.

    \b
    Examples:
      gpupool bench softgpu --json
    """
    with exits.clear_errors():
        raise typer.Exit(measurement("softgpu").main(json))


@app.command()
def park(json: Json = False) -> None:
    """Measure what it costs to give a device up and to come back, and how soon a session's first kernel is done.

    On the software GPU, with 1 GiB of device memory; the pool and the node that it needs are its own.

    \b
    Examples:
      gpupool bench park --json
    """
    with exits.clear_errors():
        raise typer.Exit(measurement("park").main(json))


@app.command()
def notebook(json: Json = False) -> None:
    """Measure a click on Attach, what %%gpu adds to a cell, and what pages cost server and browser.

    On the software GPU, in Chromium, for about five minutes; pool, node and JupyterLab are its own. Other load on
    the machine is in the figures.

    \b
    Examples:
      gpupool bench notebook --json
    """
    with exits.clear_errors():
        raise typer.Exit(measurement("notebook.main").main(json))


@app.command()
def openb(
    policy: str | None = typer.Option(
        None, help=f"Placement policy: {_POLICIES}. Without it the default, the first."
    ),
    seeds: str = typer.Option("42-51", help="Orders of arrival: 42, 42-51 or 42,44,46."),
    nodes: Path | None = typer.Option(None, help="Another list of nodes (CSV)."),
    pods: Path | None = typer.Option(None, help="Another list of tasks (CSV)."),
    node_order: int | None = typer.Option(None, help="Shuffle the nodes by this number."),
    move_percent: float = typer.Option(
        0.0, min=0.0, max=100.0, help="Shares that may be moved to make room, in percent."
    ),
    growth: bool = typer.Option(False, "--growth", help="Also in clusters up to 16 times as large."),
    through_pool: bool = typer.Option(
        False,
        "--through-pool",
        help="Also through the pool's records, view and explanations, with the first seed.",
    ),
    json: Json = False,
) -> None:
    """Measure how much of a cluster a placement policy fills, and how fast it decides, on the openb trace.

    GPUPOOL_OPENB names the folder of the trace. Ten seeds take about twenty seconds.

    \b
    Examples:
      gpupool bench openb --json
      gpupool bench openb --policy fgd --seeds 42-51 --node-order 7
      gpupool bench openb --move-percent 5
      gpupool bench openb --seeds 42 --growth --through-pool
    """
    with exits.clear_errors():
        from gpupool.scheduler.placement import DEFAULT_POLICY, POLICIES

        if policy is not None and policy not in POLICIES:
            raise typer.BadParameter(f"{policy!r} is not one of {', '.join(POLICIES)}")
        raise typer.Exit(
            measurement("openb").main(
                json,
                policy or DEFAULT_POLICY,
                _numbers(seeds),
                nodes,
                pods,
                node_order,
                move_percent,
                growth,
                through_pool,
            )
        )


@app.command()
def replay(
    devices: str = typer.Option("32,36,40,48", help="Sizes of the pool: 40, 32,48 or 32-48."),
    mode: str = typer.Option("both", help="shares: as asked; whole: a whole device for each share; or both."),
    pods: Path | None = typer.Option(
        None, help="Another list of tasks (CSV), of openb's columns or your own."
    ),
    nodes: Path | None = typer.Option(
        None, help="A list of nodes (CSV) that is the pool, instead of --devices."
    ),
    per_node: int = typer.Option(8, min=1, max=64, help="Devices of a node."),
    policy: str | None = typer.Option(
        None, help=f"Placement policy: {_POLICIES}. Without it the default, the first."
    ),
    consolidate: Consolidation = typer.Option(
        Consolidation.IDLE,
        help="Sessions that may move to make room. Here no session is ever idle.",
    ),
    most_devices: int | None = typer.Option(None, min=1, help="Leave out tasks of more devices than this."),
    hints: bool = typer.Option(False, "--hints", help="Every task states its duration, as with --for."),
    series: bool = typer.Option(
        False, "--series", help="Also, in JSON, hourly means and quantiles for plots."
    ),
    json: Json = False,
) -> None:
    """Measure how long people wait: the openb trace in true time, on pools that it keeps busy.

    The tasks arrive and last as they did; the pool is the real one, its nodes and its time are simulated.

    \b
    Examples:
      gpupool bench replay --json
      gpupool bench replay --devices 40 --mode shares --hints
    """
    with exits.clear_errors():
        from gpupool.scheduler.placement import DEFAULT_POLICY, POLICIES

        if policy is not None and policy not in POLICIES:
            raise typer.BadParameter(f"{policy!r} is not one of {', '.join(POLICIES)}")
        bench_of_replays = measurement("replay")
        if mode not in (*bench_of_replays.MODES, "both"):
            raise typer.BadParameter(f"{mode!r} is not one of {', '.join(bench_of_replays.MODES)}, both")
        modes = bench_of_replays.MODES if mode == "both" else (mode,)
        sizes = _numbers(devices)
        if not all(1 <= size <= 4096 for size in sizes):
            raise typer.BadParameter(f"{devices!r} are not numbers of devices from 1 to 4096")
        raise typer.Exit(
            bench_of_replays.main(
                json,
                sizes,
                modes,
                pods,
                nodes,
                per_node,
                policy or DEFAULT_POLICY,
                hints,
                series,
                most_devices,
                consolidate,
            )
        )


@app.command()
def elasticity(
    gpus: int = typer.Option(
        400, min=8, max=16384, help="Devices of the largest fixed pool; at most so many are borrowed."
    ),
    days: float = typer.Option(28.0, min=0.1, max=366.0, help="How long the month is."),
    seed: int = typer.Option(1, min=0, help="Which month."),
    minutes: float = typer.Option(20.0, min=1.0, help="Half of the people are done after so many."),
    look: float = typer.Option(30.0, min=1.0, help="Seconds between two looks at what has to be borrowed."),
    sizes: str = typer.Option("100,80,70,60,50", help="Fixed pools, in percent of the largest."),
    idle: str = typer.Option(
        "5,20,60", help="Pools that borrow: minutes after which a node that nobody needs goes back."
    ),
    jobs: int = typer.Option(1, min=1, max=64, help="So many pools at the same time."),
    plot: str = typer.Option("", metavar="FILE", help="Also draw the first week (SVG)."),
    json: Json = False,
) -> None:
    """Measure what borrowing nodes saves: a made-up month, on fixed pools and on pools that borrow.

    The pool and its loop of providers are the real ones; nodes, people and time are simulated.

    \b
    Examples:
      gpupool bench elasticity
      gpupool bench elasticity --gpus 1000 --days 7 --json
      gpupool bench elasticity --gpus 10000 --days 30 --minutes 60 --sizes 100,80,70 --idle 20 --jobs 2
    """
    with exits.clear_errors():
        only_warnings()
        bench = measurement("elasticity")
        month = bench.Month(gpus, days, seed, minutes * 60.0, look)
        parts = [percent / 100.0 for percent in _numbers(sizes)]
        seconds = [number * 60.0 for number in _numbers(idle)]
        raise typer.Exit(bench.main(json, month, parts, seconds, jobs, plot))


@app.command()
def look(
    nodes: int = typer.Option(1250, min=10, max=10_000, help="Nodes of eight devices."), json: Json = False
) -> None:
    """Measure what a decision costs in a full pool where requests wait, and how that grows with the pool.

    
    Examples:
      gpupool bench look
      gpupool bench look --nodes 250 --json
    """
    with exits.clear_errors():
        only_warnings()
        raise typer.Exit(measurement("look").main(json, nodes))


@app.command()
def crowd(
    agents: int = typer.Option(1000, min=1, max=20_000, help="Node agents."),
    workers: int = typer.Option(8, min=1, max=64, help="Devices of each, with a worker on each."),
    seconds: float = typer.Option(60.0, min=1.0, max=3600.0, help="How long the server is watched."),
    json: Json = False,
) -> None:
    """Measure what a large pool costs its server: all ask at once, then all renew.

    The server is a real one. Agents and holders speak the protocol, and have no GPUs.

    \b
    Examples:
      gpupool bench crowd
      gpupool bench crowd --agents 100 --seconds 20 --json
    """
    with exits.clear_errors():
        raise typer.Exit(measurement("crowd").main(json, agents, workers, seconds))


def _numbers(text: str) -> list[int]:
    """42, 42-51 or 42,44-46 as numbers."""
    numbers: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            numbers += range(int(first), int(last if dash else first) + 1)
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 1000:
        raise typer.BadParameter(f"{text!r} is not a list of whole numbers such as 42-51 or 42,44")
    return numbers
