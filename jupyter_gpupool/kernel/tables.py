"""The answers of ``%gpu status`` and ``%gpu list`` as text and HTML."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any, Final

from gpupool.amounts import amount
from gpupool.client.runtime import Counters
from gpupool.device_names import device_name
from gpupool.shares import format_milli, format_share

from jupyter_gpupool.kernel.failed import HOW_TO_GO_ON
from jupyter_gpupool.kernel.failures import failure_name
from jupyter_gpupool.kernel.out_of_memory import told_of


def kernel_lines(
    kernel: dict[str, Any], *, failed: bool = False, reading: Counters | None = None
) -> Iterator[str]:
    """What a kernel has and uses.

    Args:
        kernel: its state, as the server tells it.
        failed: that its session failed has been said.
        reading: what the kernel's own process counts now; the server's figures are those of the last report.
    """
    usage = kernel.get("usage") or {}
    if not failed and (error := int(usage.get("failure") or 0)):
        cell = f" in cell {usage['failed_cell']}" if usage.get("failed_cell") else ""
        yield f"This kernel's GPU session failed{cell} ({failure_name(error)}). {HOW_TO_GO_ON}"
    yield f"state: {_state_text(kernel)}"
    if kernel.get("description"):
        yield f"share: {kernel['description']}"
    if queue := kernel.get("queue"):
        place = f"place {queue['place']}. " if queue.get("place") else ""
        yield f"queue: {place}{queue.get('reason') or ''}".rstrip()
        explanation = queue.get("explanation") or {}
        for help_ in explanation.get("helps", []):
            yield f"  would help: {help_['said']['text']}"
    if notice := kernel.get("notice"):
        after = " It asks again by itself; calls wait meanwhile." if notice.get("returns") else ""
        yield f"asked back: in {notice['seconds_left']} s, what is in GPU memory is kept.{after}"
    if memory := kernel.get("memory"):
        yield from memory_lines(memory, parked=kernel.get("state") == "parked")
    if auto := kernel.get("auto"):
        yield f"auto: on, attaches {auto_text(auto)} by itself"
    if not kernel.get("notice") and (idle := kernel.get("idle")) and idle.get("countdown") is not None:
        yield f"idle: goes back in {idle['countdown']} s (%gpu keep puts it off)"
    if usage.get("work") in _WORKS:
        what = usage.get("kernel") or "a copy or a fill"
        yield f"{_WORKS[usage['work']]}: {what}, since {usage.get('work_seconds') or 0:.0f} s"
    if used := _used(usage, reading):
        yield used
    if trouble := told_of(kernel.get("usage"), "resize" if _holds(kernel) else "cell"):
        yield trouble.text()
    if kernel.get("message"):
        yield str(kernel["message"])


def _used(usage: dict[str, Any], reading: Counters | None) -> str:
    """What the kernel has used; empty: nothing yet."""
    if reading is not None and reading.worker is not None:
        worker = reading.worker
        seconds, used, peak = worker.device_seconds, sum(worker.memory_used), sum(worker.memory_peak)
        calls, asks = reading.calls, reading.asks
    elif usage:
        seconds, used, peak = usage["device_seconds"], usage["memory_bytes"], usage["memory_peak_bytes"]
        calls, asks = usage["calls"], usage["asks"]
    else:
        return ""
    return (
        f"used: {seconds:.2f} s device time, {calls:,} calls, {asks:,} waits for the GPU, {amount(used)} memory "
        f"(peak {amount(peak)})"
    )


#: States that are not said by their names.
_STATES: Final = {
    "none": "no GPU",
    "queued": "waits in the queue",
    "warned": "attached, goes back soon",
    "parked": "no GPU, memory kept",
}


#: Why a share went back, where its id says too little.
_SINCE: Final = {
    "exit": "since the cell ended",
    "release": "since it was detached",
    "idle": "since it was not used",
}


def _state_text(kernel: dict[str, Any]) -> str:
    """``no GPU, memory kept (since the cell ended)``."""
    state, reason = str(kernel.get("state")), str(kernel.get("reason") or "")
    why = _SINCE.get(reason, reason)
    return _STATES.get(state, state) + (f" ({why})" if why else "")


#: What a session's devices do, in words.
_WORKS: Final = {
    "running": "running",
    "draining": "still running without a lease, for a few seconds at most",
    "stopped": "stopped, goes on with the next %%gpu cell",
}


def _holds(kernel: dict[str, Any]) -> bool:
    return kernel.get("state") in ("attached", "warned")


#: Where parked memory is, in words.
_PLACES: Final = {
    "device": "on the device, until somebody needs the room",
    "host": "in host memory of its node",
    "image": "on disk of its node",
}
_ACTIVITIES: Final = {
    "parking": "it is being moved off its device",
    "resuming": "it is being brought back to a device",
    "moving": "it is being moved to another node",
}


#: How the compute share is kept, in words.
_ENFORCEMENTS: Final = {"soft": "enforced in turns", "hard": "enforced hard", "mps": "enforced by MPS"}


def memory_lines(memory: dict[str, Any], *, parked: bool) -> Iterator[str]:
    """Where a session's memory lies, how its share is enforced, and what cannot be done with it."""
    place = _PLACES.get(str(memory.get("place")))
    activity = _ACTIVITIES.get(str(memory.get("activity")))
    if memory.get("activity") == "parking" and memory.get("place") == "host":
        activity = "it is being moved from host memory to disk"
    if place and (parked or activity):
        yield f"memory: {activity or place}"
    if not parked and (enforcement := _ENFORCEMENTS.get(str(memory.get("enforcement")))):
        cap = ", a hard cap (--strict)" if memory.get("strict") else ""
        yield f"compute share: {enforcement}{cap}"
    yield from (str(said["text"]) for said in memory.get("obstacles") or ())


def auto_text(auto: dict[str, Any] | None) -> str:
    """What ``%gpu auto`` asks for: ``2 × 0.2 GPU``, or that it is as before."""
    share = (auto or {}).get("share")
    if not share:
        return "the share it had last"
    unit = share if share.upper().endswith("IB") else f"{share} GPU"
    count = (auto or {}).get("count") or 1
    cap = ", strictly" if (auto or {}).get("strict") else ""
    return (f"{count} × {unit}" if count > 1 else unit) + cap


def pool_lines(pool: dict[str, Any]) -> Iterator[str]:
    """Devices with their shares, then the queue."""
    for device in pool["devices"]:
        health = "" if device["healthy"] else "  takes no requests"
        yield (
            f"{device_name(device['id'])}  {device['name']}  free {format_share(device['free_milli'])} GPU, "
            f"{device['free_mib']} of {device['usable_mib']} MiB{health}"
        )
        for share in device["shares"]:
            yield f"    {_share_text(share)}"
    if not pool["devices"]:
        yield _no_devices(pool)
    for entry in pool["queue"]:
        yield f"queue {entry['place']}: {_who(entry)} wants {_wanted(entry)}. {entry['reason']}"
    if rest := _rest_of_queue(pool):
        yield rest


def _rest_of_queue(pool: dict[str, Any]) -> str:
    """What the list of those who wait lacks; empty: nothing."""
    rest = pool.get("queue_left_out", 0)
    return "the queue is not known now" if rest is None else f"queue: {rest} more" if rest else ""


def pool_html(pool: dict[str, Any]) -> str:
    """The same as an HTML list; all texts of other users are escaped."""
    items = []
    for device in pool["devices"]:
        shares = "".join(f"<li>{escape(_share_text(share))}</li>" for share in device["shares"])
        items.append(
            f"<li><b>{escape(device_name(device['id']))}</b> {escape(device['name'])}: free "
            f"{format_share(device['free_milli'])} GPU, {device['free_mib']} of {device['usable_mib']} MiB"
            f"{'' if device['healthy'] else ' <b>takes no requests</b>'}<ul>{shares}</ul></li>"
        )
    for entry in pool["queue"]:
        items.append(
            f"<li>queue {entry['place']}: {escape(_who(entry))} wants {_wanted(entry)}. "
            f"{escape(str(entry['reason']))}</li>"
        )
    if rest := _rest_of_queue(pool):
        items.append(f"<li>{escape(rest)}</li>")
    return f'<ul class="jp-gpupool-Pool">{"".join(items) or f"<li>{escape(_no_devices(pool))}</li>"}</ul>'


def _no_devices(pool: dict[str, Any]) -> str:
    lenders = " or ".join(pool["lenders"])
    return (
        f"No GPU is here now; {lenders} can lend one when it is needed."
        if lenders
        else "The pool has no devices."
    )


def _share_text(share: dict[str, Any]) -> str:
    use = "in use" if share["in_use"] else "idle"
    return f"{format_share(share['milli'])} GPU, {share['mib']} MiB: {_who(share)} ({use})"


def _wanted(entry: dict[str, Any]) -> str:
    """What a request asks for; by memory alone its part of a GPU is not known yet."""
    amount = f"{format_milli(entry['milli'])} GPU" if entry["milli"] else f"{entry['mib']} MiB"
    return f"{entry['count']} × {amount}" if entry.get("count", 1) > 1 else amount


def _who(owner: dict[str, Any]) -> str:
    name = "you" if owner.get("mine") else str(owner.get("user") or "somebody")
    return f"{name}, {owner['label']}" if owner.get("label") else name
