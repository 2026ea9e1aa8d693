"""`gpupool node start`: lends this machine's GPUs to a pool."""

from __future__ import annotations

import asyncio
import enum
import socket
from pathlib import Path
from typing import Annotated

import typer

from gpupool.cli.common import exits
from gpupool.cli.common.options import TokenFile, duration, endpoint, whole
from gpupool.cli.node.port_range import port_range as read_port_range
from gpupool.client.software_gpu import MOST_DEVICES, MOST_MEMORY_MIB
from gpupool.names import is_label


class Tls(enum.Enum):
    """Whether the data plane is encrypted."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Mps(enum.Enum):
    """Whether workers are clients of NVIDIA's Multi-Process Service."""

    OFF = "off"
    AUTO = "auto"
    REQUIRE = "require"


class Sharing(enum.Enum):
    """What may be placed on a node's devices."""

    ISOLATED = "isolated"
    WHOLE = "whole"
    OPEN = "open"


def _labels(values: list[str]) -> dict[str, str]:
    labels = {}
    for value in values:
        name, equals, said = value.partition("=")
        if not equals or not is_label(name) or len(said) > 256 or "\n" in said:
            raise typer.BadParameter(f"{value[:80]!r} is no label; write NAME=VALUE, for example zone=a")
        labels[name] = said
    return labels


def _check_advertised(pool: str | None, listen_host: str | None, advertise_host: str | None) -> None:
    """A pool elsewhere means kernels elsewhere; they would dial themselves instead of this machine.

    A loopback address that was asked for stands, with a warning: a tunnel may end there.
    """
    from gpupool.client.worker_address import WorkerAddressError, checked_host
    from gpupool.node.address import DEFAULT_HOST, pool_host, reaches_only_here

    try:
        checked_host(advertise_host or listen_host or DEFAULT_HOST)
    except WorkerAddressError as error:
        option = "--listen-host" if advertise_host is None else "--advertise-host"
        raise typer.BadParameter(f"{option}: {error}") from None
    if listen_host is None and advertise_host is not None and not reaches_only_here(advertise_host):
        raise typer.BadParameter(
            f"kernels are told {advertise_host}, and workers listen on {DEFAULT_HOST}, which other machines cannot reach; "
            f"give this machine's address with --listen-host, or --listen-host {DEFAULT_HOST} where a tunnel ends here"
        )
    told = advertise_host or listen_host or DEFAULT_HOST
    elsewhere = pool_host(pool)
    if elsewhere is None or not reaches_only_here(told):
        return
    why = f"the pool is on another machine ({elsewhere}), and kernels there cannot reach this node at {told}"
    if advertise_host is None and listen_host in (None, "0.0.0.0", "::"):  # noqa: S104 (compared, not bound)
        option = "--listen-host" if listen_host is None else "--advertise-host"
        raise typer.BadParameter(f"{why}; give this machine's address with {option}")
    exits.say(f"warning: {why}, unless they run here too")


def start(
    driver: Annotated[
        str,
        typer.Option(
            help="GPUs to lend: nvidia; software; auto: NVIDIA GPUs if there are any, else as many as "
            "--software-gpus; or the path of a libcuda.so.1."
        ),
    ] = "auto",
    software_gpus: Annotated[
        int | None,
        typer.Option(
            parser=whole(1, MOST_DEVICES),
            metavar="NUMBER",
            help="How many software GPUs to lend where there is no NVIDIA GPU, or with --driver software, at most "
            f"{MOST_DEVICES} [default: none, with --driver software 1].",
            show_default=False,
        ),
    ] = None,
    memory_mib: Annotated[
        int,
        typer.Option(parser=whole(512, MOST_MEMORY_MIB), metavar="MIB", help="Memory of each software GPU."),
    ] = 8192,
    pool: Annotated[
        str | None,
        typer.Option(
            parser=endpoint,
            metavar="ADDRESS",
            help="Address of the pool: host:port, tls:host:port or unix:/path, with standby servers several, separated by "
            "commas [default: the local socket].",
            show_default=False,
        ),
    ] = None,
    token_file: TokenFile = None,
    name: Annotated[
        str | None, typer.Option(help="This node's name [default: the host's].", show_default=False)
    ] = None,
    listen_host: Annotated[
        str | None,
        typer.Option(
            help="Address of this machine that workers listen on. Needed if kernels run on other machines "
            "[default: 127.0.0.1].",
            show_default=False,
        ),
    ] = None,
    advertise_host: Annotated[
        str | None,
        typer.Option(
            help="Address or name that kernels connect to [default: the listen address].",
            show_default=False,
        ),
    ] = None,
    port_range: Annotated[
        str | None,
        typer.Option(
            parser=read_port_range,
            metavar="FIRST-LAST",
            help="TCP ports for workers, for a firewall. Each session, each worker that is started ahead, "
            "and `gpupool node netperf` take one [default: the system chooses].",
            show_default=False,
        ),
    ] = None,
    tls: Annotated[
        Tls,
        typer.Option(
            help="Encrypt the connection of kernels and workers. auto: unless workers listen on loopback."
        ),
    ] = Tls.AUTO,
    worker: Annotated[
        Path | None,
        typer.Option(help="Program that serves a session [default: the installed one].", show_default=False),
    ] = None,
    leave_workers: Annotated[
        bool,
        typer.Option(
            "--leave-workers",
            help="When the agent ends, leave its workers running. The next agent adopts them.",
        ),
    ] = False,
    drain_wait: Annotated[
        float,
        typer.Option(
            parser=duration,
            metavar="TIME",
            help="When told to end (SIGTERM), tell the pool, and give sessions so long to continue in other nodes, or to go "
            "to disk (--park-disk-mib). A second signal ends it at once.",
        ),
    ] = "0s",  # type: ignore[assignment]
    leave_after: Annotated[
        float | None,
        typer.Option(
            parser=duration,
            metavar="TIME",
            help="End if the pool hasn't answered for this long, so that the engine gets its GPUs back [default: never].",
            show_default=False,
        ),
    ] = None,
    image_cache_mib: Annotated[
        int,
        typer.Option(
            min=0,
            help="Size of the cache of module images for each user, so that each image is sent only once. "
            "0: no cache.",
        ),
    ] = 4096,
    warm_workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=64,
            help="Workers started ahead, with the driver initialised [default: 1, on software GPUs 0].",
            show_default=False,
        ),
    ] = None,
    park_memory_mib: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Host memory for parked sessions, used when another session needs their GPU memory "
            "[default: a quarter of the machine's].",
            show_default=False,
        ),
    ] = None,
    park_disk_mib: Annotated[
        int,
        typer.Option(min=0, help="Disk space for parked sessions, used when host memory is full. 0: none."),
    ] = 0,
    context_reserve_mib: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Of each share, what the driver takes for a context itself "
            "[default: measured at the start, software GPUs 0].",
            show_default=False,
        ),
    ] = None,
    mps: Annotated[
        Mps,
        typer.Option(
            help="Make workers clients of NVIDIA's Multi-Process Service. Its control daemon must run. "
            "--strict shares are then parts of the multiprocessors, and parked memory can't leave its "
            "device."
        ),
    ] = Mps.OFF,
    math_libraries: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder with NVIDIA's cuBLAS, cuDNN, cuFFT, cuRAND, cuSOLVER and cuSPARSE. May be "
            "repeated [default: the wheels of the extras cuda12 and cuda13, else the system's library "
            "path].",
            show_default=False,
        ),
    ] = None,
    allow_host_access: Annotated[
        bool,
        typer.Option(
            "--allow-host-access",
            help="Lend GPUs although their kernels reach all memory of the worker that launches them: heterogeneous "
            "memory management (HMM) is on.",
        ),
    ] = False,
    node_pool: Annotated[
        str, typer.Option(metavar="NAME", help="Node pool that this machine belongs to.")
    ] = "default",
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A property of this machine that requests can filter by: --filter label.NAME=VALUE. May "
            "be repeated.",
            show_default=False,
        ),
    ] = None,
    sharing: Annotated[
        Sharing,
        typer.Option(
            help="isolated: shares with memory of their own, and whole GPUs. whole: whole GPUs only. open: "
            "shares without walls between their memory, for requests with --no-isolation."
        ),
    ] = Sharing.ISOLATED,
    heartbeat_seconds: Annotated[float, typer.Option(min=0.01, help="Time between heartbeats.")] = 5.0,
) -> None:
    """Lend this machine's GPUs to a pool until told to end.

    Lends NVIDIA GPUs. Software GPUs, which compute on the CPU, are lent only where somebody asks for them.

    \b
    Examples:
      gpupool node start
      gpupool node start --software-gpus 2
      gpupool node start --node-pool training --label zone=a --sharing whole
      gpupool node start --pool 10.0.0.5:7460 --token-file node.token --listen-host 10.0.0.6
    """
    from gpupool.node.address import DEFAULT_HOST
    from gpupool.node.agent_settings import MOST_HEARTBEAT, AgentError, AgentSettings
    from gpupool.node.driver import SoftwareGpuSettings
    from gpupool.node.ports import PortRange
    from gpupool.node.recent_log import RecentLog
    from gpupool.node.service import NodeOptions, run_node

    if heartbeat_seconds > MOST_HEARTBEAT:
        raise typer.BadParameter(
            f"--heartbeat-seconds {heartbeat_seconds:g} is more than {MOST_HEARTBEAT:g}: after a single heartbeat that is "
            "lost the pool would take this node for silent"
        )
    if driver == "nvidia" and software_gpus is not None:
        raise typer.BadParameter(
            "--driver nvidia lends no software GPUs; leave --software-gpus out, or say --driver software"
        )
    asked = software_gpus is not None or driver != "auto"
    software = SoftwareGpuSettings(software_gpus or 1, memory_mib) if asked else None
    log = RecentLog()
    with exits.clear_errors():
        _check_advertised(pool, listen_host, advertise_host)
    listen_host = listen_host or DEFAULT_HOST
    settings = AgentSettings(
        node=name or socket.gethostname().split(".")[0] or "node",
        endpoint=pool,
        token_file=token_file,
        advertise_host=advertise_host or listen_host,
        heartbeat_seconds=heartbeat_seconds,
        leave_workers=leave_workers,
        drain_wait=drain_wait,
        leave_after=leave_after,
        node_pool=node_pool,
        sharing=sharing.value,
        labels=_labels(label or []),
    )
    options = NodeOptions(
        agent=settings,
        driver=driver,
        software=software,
        listen_host=listen_host,
        listen_ports=PortRange.parse(port_range) if port_range else PortRange(),
        tls=tls.value,
        worker_command=(str(worker.absolute()),) if worker else (),
        image_cache_mib=image_cache_mib,
        warm_workers=warm_workers,
        park_memory_mib=park_memory_mib,
        park_disk_mib=park_disk_mib,
        context_reserve_mib=context_reserve_mib,
        mps=mps.value,
        math_libraries=tuple(math_libraries or ()),
        allow_host_access=allow_host_access,
        log=log,
    )
    exits.log_to_stderr(seen_by=log)
    with exits.clear_errors():
        try:
            asyncio.run(run_node(options))
        except AgentError as error:
            exits.say(str(error))
            raise typer.Exit(exits.FAILED) from None
