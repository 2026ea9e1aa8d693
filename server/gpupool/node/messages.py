"""Between the agent's values and the messages of ``gpupool.v1``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from gpupool.engines.records import UNKNOWN_STATUS, DeviceGrant, DeviceInventory, WorkerExited
from gpupool.node.worker_link import WorkerLink
from gpupool.proto import pool_pb2

# Messages are typed Any, as in gpupool.client.convert.


#: A worker that ends itself says why by its exit status: work ran on after its lease, and its driver cannot stop any.
STOPPED_STATUS: Final = 11


class BadInstructionError(ValueError):
    """The pool sent something that makes no sense on this node."""


def node_device(device: DeviceInventory) -> Any:
    """A device as the pool hears of it."""
    return pool_pb2.NodeDevice(
        ordinal=device.ordinal,
        profile=device.profile,
        healthy=device.healthy,
        health_reason=device.health_reason,
        driver=device.driver,
    )


def worker_report(link: WorkerLink) -> Any:
    """What a heartbeat says of one worker; its times are seconds here and nanoseconds in the worker."""
    stats = link.stats
    return pool_pb2.WorkerReport(
        session_id=link.session,
        epoch=link.epoch,
        state=stats.state,
        address=link.address,
        usage=pool_pb2.Usage(
            device_seconds=stats.device_ns / 1e9,
            kernels=stats.kernels,
            calls=stats.calls,
            posts=stats.posts,
            asks=stats.asks,
            ask_seconds=stats.ask_ns / 1e9,
            bytes_to_device=stats.bytes_in,
            bytes_from_device=stats.bytes_out,
            memory_used=stats.memory_used,
            memory_peak=stats.memory_peak,
            idle_seconds=link.idle_seconds,
            in_flight=stats.in_flight,
            client_connected=stats.client,
            state=stats.state,
            work=stats.work,
            kernel=stats.kernel,
            work_seconds=stats.work_ms / 1e3,
            failure=stats.failure,
            failed_kernel=stats.failed_kernel,
            busy=link.busy,
        ),
        memory_place=stats.place,
        park_obstacle=stats.park_obstacle,
        move_obstacle=stats.move_obstacle,
        enforcement=stats.enforcement,
        ordinals=[device.ordinal for device in link.devices],
    )


def device_grants(node: str, shares: Iterable[Any]) -> tuple[DeviceGrant, ...]:
    """The shares of an instruction on this node's devices, named by ordinal.

    Raises:
        BadInstructionError: a device of another node, or an amount that is no share.
    """
    grants = []
    for item in shares:
        owner, _, ordinal = item.device_id.rpartition("/")
        if owner != node or not (ordinal.isascii() and ordinal.isdigit() and len(ordinal) < 5):
            raise BadInstructionError(f"{item.device_id!r} is no device of node {node!r}")
        if not 1 <= item.share.milli <= 1000 or item.share.mib < 1:
            raise BadInstructionError(f"{item.share.milli} milli-GPU and {item.share.mib} MiB are no share")
        grants.append(DeviceGrant(int(ordinal), "", item.share.milli, item.share.mib))
    return tuple(grants)


def started(link: WorkerLink) -> Any:
    """A worker runs and can be reached."""
    message = pool_pb2.WorkerStarted(session_id=link.session, epoch=link.epoch, address=link.address)
    return pool_pb2.FromNode(started=message)


def exited(event: WorkerExited, link: WorkerLink | None = None) -> Any:
    """A worker has ended.

    Args:
        event: what the engine saw.
        link: what was heard of it last; None: nothing.
    """
    reason = event.reason
    if event.exit_status == STOPPED_STATUS and link is not None:
        reason = _ran_on(link)
    message = pool_pb2.WorkerExited(
        session_id=event.session,
        exit_status=UNKNOWN_STATUS if event.exit_status is None else event.exit_status,
        reason=reason,
        worker=worker_report(link) if link is not None else None,
    )
    return pool_pb2.FromNode(exited=message)


def _ran_on(link: WorkerLink) -> str:
    kernel = f"kernel {link.stats.kernel}" if link.stats.kernel else "work without a name"
    return (
        f"{kernel} ran on after the lease had ended, for {link.stats.work_ms / 1e3:.0f} s in all, and the driver of "
        "this device cannot stop it"
    )
