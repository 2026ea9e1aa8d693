"""A node from its options to its end: driver, engine, agent, signals."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from gpupool.client.endpoint import home, private_directory
from gpupool.client.native import native_file
from gpupool.engines import mps, mps_clients
from gpupool.engines.image_caches import DEFAULT_USER_MIB, ImageCaches
from gpupool.engines.local import LocalEngine
from gpupool.engines.records import DeviceInventory, EngineError
from gpupool.engines.turn_books import TurnBooks
from gpupool.names import NAME_RULE, is_name
from gpupool.node import math_libraries
from gpupool.node.agent import Agent
from gpupool.node.agent_settings import AgentError, AgentSettings
from gpupool.node.answers import Answers
from gpupool.node.context_reserve import context_reserve_mib
from gpupool.node.doors import Doors
from gpupool.node.driver import COMPUTE_MODE, Driver, SoftwareGpuSettings, choose_driver
from gpupool.node.driver_version import driver_version
from gpupool.node.health import NvmlHealth, nvml_uuid, open_health
from gpupool.node.health_watch import HealthWatch
from gpupool.node.meter import ANY_PORT, Meter
from gpupool.node.park_budget import default_park_memory_mib
from gpupool.node.ports import PortRange
from gpupool.node.recent_log import RecentLog
from gpupool.node.selfcheck import NodeFacts
from gpupool.node.session_images import SessionImages

#: Compute modes of a device in which not every process may use it, as `nvidia-smi` calls them.
_EXCLUSIVE_PROCESS: Final = 3
_MODES: Final = {1: "exclusive thread", 2: "prohibited", _EXCLUSIVE_PROCESS: "exclusive process"}

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What ``gpupool node start`` is told.

    Attributes:
        driver: ``auto``, ``software``, ``nvidia`` or a path.
        listen_host: address that workers listen on; ``agent.advertise_host`` is what clients dial.
        listen_ports: the ports of that address that they, and measurements of the network, may use.
        tls: ``on``, ``off``, or ``auto``: encrypt unless workers listen on loopback.
        worker_command: the worker's program; empty: the installed one.
        image_cache_mib: module images kept on the node per user; 0: none.
        warm_workers: workers started ahead; None: one, none for software GPUs, which take a few milliseconds.
        park_memory_mib: host memory for parked sessions; None: a quarter of the machine's.
        park_disk_mib: disk for images of parked sessions; 0: none are written.
        context_reserve_mib: of each share, for what the driver takes for a context itself; None: what
            :mod:`gpupool.node.context_reserve` finds.
        mps: ``off``, ``auto`` or ``require``: whether workers are clients of NVIDIA's Multi-Process Service.
        math_libraries: folders with NVIDIA's; empty: wheels beside this program, else the system's.
        log: sees what the agent logs, for ``gpupool node logs``; None: nothing is kept.
    """

    agent: AgentSettings
    driver: str = "auto"
    software: SoftwareGpuSettings | None = None
    listen_host: str = "127.0.0.1"
    listen_ports: PortRange = ANY_PORT
    tls: str = "auto"
    worker_command: tuple[str, ...] = ()
    image_cache_mib: int = DEFAULT_USER_MIB
    warm_workers: int | None = None
    park_memory_mib: int | None = None
    park_disk_mib: int = 0
    context_reserve_mib: int | None = None
    mps: str = "off"
    math_libraries: tuple[Path, ...] = ()
    allow_host_access: bool = False
    log: RecentLog | None = None


async def run_node(options: NodeOptions) -> None:
    """Runs a node until SIGTERM or SIGINT.

    Raises:
        AgentError: no device, no worker program, another agent of this name, or a refusal.
    """
    node = options.agent.node
    if not is_name(node):
        raise AgentError(f"{node[:80]!r} is no node name: use {NAME_RULE}.")
    directory = private_directory(private_directory(home() / "run") / node)
    lock = _lock(directory / "agent.lock", node)
    try:
        command = options.worker_command or (str(native_file("bin", "gpupool-worker")),)
        # Before the driver is asked: its probe, too, becomes a client of the daemon that it finds.
        daemon = _mps_daemon(options.mps, software=options.driver == "software")
        of_mps = daemon.environment() if daemon is not None else mps.without_mps(directory)
        try:
            driver = await choose_driver(options.driver, command, options.software, of_mps)
        except EngineError as error:
            raise AgentError(str(error)) from error
        logger.info("driver", path=driver.path, devices=len(driver.profile.devices), software=driver.software)

        check_host_access(driver, allowed=options.allow_host_access)

        if driver.software and daemon is not None:
            # Only the driver could say that there is no NVIDIA GPU.
            daemon, of_mps = _mps_daemon(options.mps, software=True), mps.without_mps(directory)
        check_compute_modes(driver, has_mps=daemon is not None)

        libraries = await _math_libraries(
            options.math_libraries, driver.profile.driver_version, software=driver.software
        )

        version = await asyncio.to_thread(driver_version, software=driver.software)
        reserve_mib = await context_reserve_mib(
            options.context_reserve_mib,
            driver.path,
            {**driver.environment, **of_mps},
            software=driver.software,
        )

        async def inventory() -> tuple[DeviceInventory, ...]:
            return driver.inventory(version)

        engine = LocalEngine(
            run_directory=directory / "workers",
            worker_command=command,
            driver=driver.path,
            inventory=inventory,
            environment={**driver.environment, **of_mps, **libraries.environment()},
            listen_host=options.listen_host,
            listen_ports=str(options.listen_ports),
            advertise_host=options.agent.advertise_host,
            tls=options.tls,
            image_caches=(
                ImageCaches(directory / "images", options.image_cache_mib)
                if options.image_cache_mib
                else None
            ),
            context_reserve_mib=reserve_mib,
            turn_books=TurnBooks(directory / "turns"),
            warm_workers=(
                (0 if driver.software else 1) if options.warm_workers is None else options.warm_workers
            ),
            mps_daemon=daemon,
            most_mps_clients=mps_clients.most_clients(driver.profile.driver_version),
        )
        health = open_health(software=driver.software)
        park_memory_mib = options.park_memory_mib
        if park_memory_mib is None:
            park_memory_mib = default_park_memory_mib()
        logger.info("room for parked sessions", host_mib=park_memory_mib, disk_mib=options.park_disk_mib)
        settings = replace(
            options.agent,
            park_memory_mib=park_memory_mib,
            park_disk_mib=options.park_disk_mib,
            worker_ports=options.listen_ports.count,
            # Also without room for new ones: those of before are resumed.
            images=SessionImages(directory / "sessions"),
        )
        facts = NodeFacts(
            directory=directory,
            endpoint=options.agent.endpoint,
            advertise_host=options.agent.advertise_host,
            software=driver.software,
            watched_by_nvml=isinstance(health, NvmlHealth),
            park_memory_mib=park_memory_mib,
            park_disk_mib=options.park_disk_mib,
            mps_mode=options.mps,
            daemon=daemon,
            math_libraries=libraries,
            reaches_host_memory=driver.reaches_host_memory,
        )
        answers = Answers(
            facts,
            directory / "workers",
            Meter(options.listen_host, options.listen_ports),
            Doors(options.listen_host, options.listen_ports),
            options.log or RecentLog(),
        )
        watch = HealthWatch(health)
        agent = Agent(settings, engine, watch, answers)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, agent.stop)
        try:
            await agent.run()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            watch.close()
    finally:
        os.close(lock)


def check_host_access(driver: Driver, *, allowed: bool) -> None:
    """Raises AgentError where users' kernels could read and write the memory of workers, unless that is allowed."""
    if driver.reaches_host_memory and not allowed:
        raise AgentError(
            "A kernel on this machine can read and write all memory of its worker, so a user's kernel could act as "
            "the user of this agent. Turn that off in the driver (`options nvidia-uvm uvm_disable_hmm=1` in "
            "/etc/modprobe.d, and load the module again), or allow it with --allow-host-access."
        )


def check_compute_modes(driver: Driver, *, has_mps: bool) -> None:
    """Raises AgentError where a device lets no second process in.

    The second session of such a device would have no context, and its user would read the number of an error. With MPS
    all sessions reach a device through one process, the server.
    """
    modes = [
        (device, device.attributes.get(COMPUTE_MODE, 0))
        for device in driver.profile.devices
        if not device.software
    ]
    closed = [
        (device, mode) for device, mode in modes if mode and not (has_mps and mode == _EXCLUSIVE_PROCESS)
    ]
    if not closed:
        return
    said = "; ".join(
        f"device {device.ordinal} ({device.name}) is in compute mode {mode} ({_MODES.get(mode, 'unknown')})"
        for device, mode in closed
    )
    commands = " and ".join(f"`nvidia-smi -i {nvml_uuid(device.uuid)} -c DEFAULT`" for device, _ in closed)
    with_mps = all(mode == _EXCLUSIVE_PROCESS for _, mode in closed)
    raise AgentError(
        f"Sessions can't share the GPUs of this machine: {said}. Run {commands}"
        f"{', or start an MPS control daemon and use --mps require' if with_mps else ''}."
    )


def _mps_daemon(mode: str, *, software: bool) -> mps.MpsDaemon | None:
    """The MPS daemon that workers are clients of; None: of none."""
    if mode == "off":
        return None
    try:
        if software:
            raise mps.MpsUnusableError("software GPUs have no MPS")
        daemon = mps.find_daemon(mps.pipes_folder())
    except mps.MpsUnusableError as missing:
        if mode == "require":
            raise AgentError(f"--mps require: {missing}.") from None
        logger.info("workers are no clients of MPS", reason=str(missing))
        return None
    logger.info(
        "workers are clients of MPS: strict shares are parts of the multiprocessors, and parked memory stays on its device",
        pipes=str(daemon.pipes),
        pid=daemon.pid,
    )
    return daemon


async def _math_libraries(
    named: tuple[Path, ...], cuda: int, *, software: bool
) -> math_libraries.MathLibraries:
    """NVIDIA's math libraries for workers; software GPUs compute operations themselves unless folders are named."""
    if software and not named:
        return math_libraries.MathLibraries()
    try:
        found = await asyncio.to_thread(math_libraries.find, named, cuda=cuda)
    except math_libraries.FolderUnusableError as error:
        raise AgentError(f"--math-libraries: {error}.") from None
    logger.info("math libraries", found=dict(found.versions or {}), missing=found.missing)
    return found


def _lock(path: Path, node: str) -> int:
    """Two agents of one name would both adopt the same workers."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise AgentError(f"Another agent of node {node!r} runs on this machine.") from None
    return descriptor
