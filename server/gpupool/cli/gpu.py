"""`gpupool gpu`: the devices of the pool."""

from __future__ import annotations

import typer
from rich.console import RenderableType

from gpupool.cli.common import exits, show, watch
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client
from gpupool.cli.common.words import NO_GPU
from gpupool.client.types import Device
from gpupool.shares import format_share

app = typer.Typer(no_args_is_help=True, help="The GPUs of the pool.")


@app.command("list", cls=watch.WatchCommand, epilog=exits.HELP)
def list_(
    pool: Endpoint = None, token_file: TokenFile = None, json: Json = False, every: watch.Watch = None
) -> None:
    """List the pool's GPUs and what is free of each.

    \b
    Examples:
      gpupool gpu list
      gpupool gpu list --json | jq '.devices[].free_milli'
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            devices = await connection.devices()
        return watch.Shown(_device_table(devices), {"devices": devices}, () if devices else (NO_GPU,))

    watch.look(work, as_json=json, every=every)


def _device_table(devices: list[Device]) -> RenderableType:
    figures = ("UTIL", "FREE", "FREE MEMORY", "PARKED", "MEMORY", "SHARES")
    lines = show.table(
        *("GPU", "NAME", "NODE POOL", *figures, "SHARING", "DRIVER", "HEALTH"),
        right=figures,
        wrapped=("NAME", "HEALTH"),
        less_wanted=("SHARING", "DRIVER", "NODE POOL", "PARKED", "SHARES"),
    )
    for device in devices:
        lines.add(
            device.id,
            show.device_name(device),
            device.node_pool,
            show.percent(device.busy),
            format_share(device.free_milli),
            show.mib(device.free_mib),
            show.mib(device.parked_mib),
            show.mib(device.usable_mib),
            str(len(device.shares)),
            device.sharing,
            device.driver or "-",
            "ok" if device.healthy else device.health_reason or "not well",
        )
    return lines if devices else "No GPU."
