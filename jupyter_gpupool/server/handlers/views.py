"""What front ends and kernels see of kernels and the pool, in the shapes of `server.rest`."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from gpupool.client import types
from gpupool.client.errors import GpupoolError
from gpupool.client.pool import queue_of
from gpupool.client.reasons import COMES_BACK
from gpupool.client.session.record import Session
from gpupool.client.session.state import HOLDING, State

from jupyter_gpupool.kernel.failures import failure_name
from jupyter_gpupool.server.handlers.explained import explanation_view, reason_text
from jupyter_gpupool.server.handlers.personal import Reader, personal
from jupyter_gpupool.server.handlers.said import said_view
from jupyter_gpupool.server.pool.connection import WrongSettingError
from jupyter_gpupool.server.rest.explanations import KernelQueuePlace, QueuePlace
from jupyter_gpupool.server.rest.kernels import (
    Activity,
    Auto,
    Enforcement,
    FreedShare,
    Holder,
    Idle,
    KeptMemory,
    Kernel,
    Memory,
    MemoryPlace,
    Notice,
    Released,
    Share,
    UsageAnswer,
)
from jupyter_gpupool.server.rest.pool import Device, DeviceShare, Pool, QueueEntry, Totals
from jupyter_gpupool.server.rest.usage import LargerShare, OutOfMemory, Usage, UsageSample, Work
from jupyter_gpupool.server.session.released import release_sentence, undo_seconds
from jupyter_gpupool.server.session.session import KernelSession
from jupyter_gpupool.server.session.shown import AutoMode, Lacking
from jupyter_gpupool.server.session.usage_history import Sample
from jupyter_gpupool.server.watching.idle import Verdict

if TYPE_CHECKING:
    from jupyter_gpupool.server.extension import GpuPoolExtension

#: A pool that takes longer to list its devices is shown as down, seconds.
POOL_SECONDS = 5.0


def kernel_view(extension: GpuPoolExtension, session: KernelSession, *, name: str, path: str) -> Kernel:
    """One kernel with GPU support: state, share, queue, idle ladder, usage."""
    record = session.record
    lease = record.lease
    return {
        **plain_kernel_view(extension, session.kernel_id, name=name, path=path),
        "session_id": record.session_id,
        "state": State.QUEUED if session.waiting else record.state,
        "held": record.held,
        "by": cast(Holder | None, record.by),
        "auto": auto_view(session.shown.auto),
        "memory": memory_view(session),
        "share": (
            Share(milli=lease.shares[0].milli, mib=lease.shares[0].mib, count=len(lease.shares))
            if lease is not None
            else None
        ),
        "device": lease.shares[0].device_id if lease is not None else None,
        "devices": [share.device_id for share in lease.shares] if lease is not None else [],
        "software": lease.software if lease is not None else None,
        "queue": queue_view(session, extension.reader),
        "idle": idle_view(extension, session),
        "released": released_view(session),
        "notice": notice_view(session, extension.reader),
        "returning": record.returning,
        "silent": bool(session.silence),
        "project": record.request.project if record.request is not None else None,
        "reason": record.reason,
        "message": session.silence or record.message,
        "usage": usage_view(session),
    }


def plain_kernel_view(
    extension: GpuPoolExtension, kernel_id: str, *, name: str, path: str, message: str | None = None
) -> Kernel:
    """A kernel that cannot attach; ``message`` says why."""
    return {
        "kernel_id": kernel_id,
        "name": name,
        "path": path,
        "label": label_of(path, name),
        "busy": extension.busy.busy(kernel_id),
        "session_id": None,
        "state": State.NONE,
        "held": False,
        "by": None,
        "auto": None,
        "memory": None,
        "share": None,
        "device": None,
        "devices": [],
        "software": None,
        "queue": None,
        "idle": None,
        "released": None,
        "notice": None,
        "returning": False,
        "silent": False,
        "project": None,
        "reason": None,
        "message": message,
        "usage": None,
    }


def auto_view(mode: AutoMode | None) -> Auto | None:
    return None if mode is None else {"share": mode.share, "count": mode.count, "strict": mode.strict}


def label_of(path: str, name: str) -> str:
    """What people call a kernel: its notebook's file name."""
    return path.rsplit("/", 1)[-1] or name


def queue_view(session: KernelSession, reader: Reader) -> KernelQueuePlace | None:
    """Where the kernel's request waits; ``takes``: it may take something else in its place, a cell too."""
    record = session.record
    if record.state is not State.QUEUED or record.queue is None or record.asking is None:
        return None
    request = record.asking.request
    return {
        **place_view(record.queue, reader),
        "takes": may_take(record),
        "cell": record.asking.scope is not None,
        "asked": {"share": request.share.written, "count": request.count, "project": request.project},
    }


def may_take(record: Session) -> bool:
    """Whether something else can be asked for in the place of what waits: not for a share that comes again by itself."""
    return record.waiting and record.asking is not None and not record.asking.again


def place_view(place: types.QueuePlace, reader: Reader) -> QueuePlace:
    return {
        "place": place.place,
        "reason": reason_text(place.reason, place.explanation, reader),
        "eta_seconds": place.eta_seconds,
        "explanation": explanation_view(place.explanation, reader),
    }


def notice_view(session: KernelSession, reader: Reader) -> Notice | None:
    """That the pool takes the lease back, when, and why."""
    notice = session.record.notice
    if notice is None:
        return None
    left = max(0, math.ceil(session.notice_until - time.monotonic()))
    return {
        "reason": notice.reason,
        "seconds_left": left,
        "explanation": notice.explanation,
        "said": said_view(personal(notice.said, reader)),
        "returns": session.record.returns and notice.reason in COMES_BACK,
    }


def idle_view(extension: GpuPoolExtension, session: KernelSession) -> Idle | None:
    """The ladder of a held lease, its two clocks apart; ``warn_at`` and ``release_at`` None: never."""
    if session.record.state not in HOLDING:
        return None
    limits = extension.idle_limits
    policy = limits.policy(session.idle_choice)
    verdict: Verdict = extension.watch.verdict(session)
    never = policy.idle_seconds <= 0
    if kept := session.kept_seconds:
        # As the idle clock will stand when it is kept no longer.
        policy = replace(policy, idle_seconds=max(policy.idle_seconds, verdict.idle_seconds + kept))
    return {
        "seconds": math.floor(verdict.idle_seconds),
        "kernel_seconds": math.floor(verdict.kernel_seconds),
        "gpu_seconds": math.floor(verdict.gpu_seconds) if verdict.gpu_seconds is not None else None,
        "warn_at": None if never else math.floor(policy.warn_at),
        "release_at": None if never else math.floor(policy.idle_seconds),
        "countdown": math.ceil(verdict.countdown) if verdict.countdown is not None else None,
        "choice_minutes": session.idle_choice / 60 if session.idle_choice is not None else None,
        "default_minutes": limits.default_seconds / 60,
    }


def released_view(session: KernelSession) -> Released | None:
    """The last release that nobody at this kernel asked for, or a Detach, until the next attach."""
    release, record = session.released, session.record
    if release is None or record.state in HOLDING or session.waiting:
        return None
    now = time.time()
    kept = release.session_id is not None and release.session_id == record.session_id
    place = session.shown.memory.place if session.shown.memory is not None else None
    return {
        "reason": release.reason,
        "message": release_sentence(
            release, record, place, draining=session.draining, usage=session.history.latest
        ),
        "draining": session.draining,
        "at": release.at,
        "age_seconds": math.floor(max(0.0, now - release.at)),
        "freed": FreedShare(
            milli=release.milli,
            mib=release.mib,
            count=len(release.devices),
            device=release.devices[0],
        ),
        "memory": KeptMemory(
            bytes=release.memory_bytes if kept else 0,
            place=cast(MemoryPlace, (place or "none") if kept else "none"),
        ),
        "undo_seconds": math.ceil(undo_seconds(release, record, now)),
    }


def usage_view(session: KernelSession) -> Usage | None:
    """What the session has used, what runs now, and what broke it."""
    usage, shown = session.history.latest, session.shown
    if usage is None:
        # What the kernel itself has told is known before the first report of its worker.
        if shown.out_of_memory is None:
            return None
        usage = types.Usage()
    return {
        "device_seconds": usage.device_seconds,
        "utilization": session.history.utilization if session.record.state in HOLDING else 0.0,
        "memory_bytes": sum(usage.memory_used),
        "memory_peak_bytes": sum(usage.memory_peak),
        "bytes_to_device": usage.bytes_to_device,
        "bytes_from_device": usage.bytes_from_device,
        "asks": usage.asks,
        "calls": usage.calls,
        "in_flight": usage.in_flight,
        "work": cast(Work, usage.work),
        "kernel": usage.kernel,
        "work_seconds": usage.work_seconds,
        "failure": usage.failure,
        "failure_name": failure_name(usage.failure),
        "failed_kernel": usage.failed_kernel,
        "failed_cell": shown.failed_cell,
        "out_of_memory": out_of_memory_view(shown.out_of_memory),
    }


def out_of_memory_view(lacking: Lacking | None) -> OutOfMemory | None:
    """The allocation that was refused, in bytes, and the share with room for it."""
    if lacking is None:
        return None
    refused, larger = lacking.refused, lacking.larger
    return {
        "asked": refused.asked,
        "share": refused.share,
        "used": refused.used,
        "largest_free": refused.largest_free,
        "needed": refused.needed,
        "device": refused.device,
        "larger_share": (
            LargerShare(share=larger.share or None, mib=larger.mib, free=larger.free, count=larger.count)
            if larger is not None
            else None
        ),
    }


def memory_view(session: KernelSession) -> Memory | None:
    """Where the session's memory lies, while there is a session."""
    memory = session.shown.memory
    if memory is None or session.record.session_id is None:
        return None
    return {
        "place": cast(MemoryPlace, memory.place),
        "activity": cast(Activity, memory.activity),
        "obstacles": list(map(said_view, memory.obstacles)),
        "enforcement": cast(Enforcement, memory.enforcement),
        "strict": memory.strict,
    }


def samples_view(extension: GpuPoolExtension, session: KernelSession, since: float) -> UsageAnswer:
    view = kernel_view(extension, session, name="", path="")
    return {
        "session_id": view["session_id"],
        "notice": view["notice"],
        "returning": view["returning"],
        "silent": view["silent"],
        "state": view["state"],
        "share": view["share"],
        "project": view["project"],
        "device": view["device"],
        "software": view["software"],
        "held": view["held"],
        "idle": view["idle"],
        "released": view["released"],
        "queue": view["queue"],
        "message": view["message"],
        "usage": view["usage"],
        "memory": view["memory"],
        "samples": history_view(session, since),
    }


def history_view(session: KernelSession, since: float) -> list[UsageSample]:
    """What the session has used after Unix time ``since``, one sample a second, oldest first."""
    return [_sample_view(sample) for sample in session.history.since(since)]


def _sample_view(sample: Sample) -> UsageSample:
    return {
        "t": sample.t,
        "utilization": sample.utilization,
        "memory_bytes": sample.memory_bytes,
        "to_device_bps": sample.to_device_bps,
        "from_device_bps": sample.from_device_bps,
    }


async def pool_view(extension: GpuPoolExtension) -> Pool:
    """The whole pool; a pool that does not answer is a view too, with ``ok`` false."""
    silent: Pool = {
        "ok": False,
        "user": extension.known_user,
        "wrong_setting": None,
        "startable": "no",
        "devices": [],
        "lenders": [],
        "queue": [],
        "queue_left_out": None,
        "totals": {"milli": 0, "free_milli": 0},
    }
    try:
        pool = (await extension.sessions()).pool
        async with asyncio.timeout(POOL_SECONDS):
            user = await extension.pool_user()
            devices, queue = await asyncio.gather(pool.devices(), queue_of(pool))
            lenders = [] if devices else await pool.lenders()
    except GpupoolError as error:
        wrong = str(error) if isinstance(error, WrongSettingError) else extension.wrong_setting
        return {
            **silent,
            "error": str(error),
            "wrong_setting": wrong or None,
            "startable": extension.startable,
        }
    except TimeoutError:
        error_text = f"The GPU pool does not answer at {extension.pool_endpoint} (within {POOL_SECONDS:g} s)."
        return {**silent, "error": error_text}
    kernels = set(extension.server.kernel_manager.list_kernel_ids())
    usable = [device for device in devices if device.healthy]
    # The pool names others' notebooks to an administrator's token, for whomever the server asks with it.
    sees_labels = extension.is_admin
    return {
        "ok": True,
        "user": user,
        "wrong_setting": extension.wrong_setting or None,
        "startable": "no",
        "lenders": lenders,
        "devices": [_device_view(device, user, kernels, sees_labels) for device in devices],
        "queue": [_entry_view(entry, extension.reader, kernels, sees_labels) for entry in queue or ()],
        "queue_left_out": None if queue is None else queue.left_out,
        "totals": Totals(milli=1000 * len(usable), free_milli=sum(device.free_milli for device in usable)),
    }


def _device_view(device: types.Device, user: str, kernels: set[str], sees_labels: bool) -> Device:
    return {
        "id": device.id,
        "node": device.node,
        "name": device.name,
        "software": device.software,
        "healthy": device.healthy,
        "health_reason": device.health_reason,
        "drained": device.drained,
        "total_mib": device.total_mib,
        "usable_mib": device.usable_mib,
        "free_milli": device.free_milli,
        "free_mib": device.free_mib,
        "used_bytes": device.used_bytes,
        "shares": [_share_view(share, user, kernels, sees_labels) for share in device.shares],
    }


def _share_view(share: types.HeldShare, user: str, kernels: set[str], sees_labels: bool) -> DeviceShare:
    mine = share.user == user
    return {
        "lease_id": share.lease_id,
        "session_id": share.session_id,
        "user": share.user,
        "mine": mine,
        "kernel_id": share.holder if share.holder in kernels else None,
        "label": share.label if mine or sees_labels else "",
        "milli": share.milli,
        "mib": share.mib,
        "state": share.state,
        "in_use": share.in_use,
    }


def _entry_view(entry: types.QueueEntry, reader: Reader, kernels: set[str], sees_labels: bool) -> QueueEntry:
    mine = entry.user == reader.user
    return {
        "place": entry.place,
        "user": entry.user,
        "mine": mine,
        "kernel_id": entry.holder if entry.holder in kernels else None,
        "label": entry.label if mine or sees_labels else "",
        "milli": entry.milli,
        "mib": entry.mib,
        "count": entry.count,
        "reason": reason_text(entry.reason, entry.explanation, reader),
        "eta_seconds": entry.eta_seconds,
        "project": entry.project,
        "explanation": explanation_view(entry.explanation, reader),
        "wants": list(entry.wants),
    }
