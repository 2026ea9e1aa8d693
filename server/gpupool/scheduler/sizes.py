"""A share on one device, in both its numbers."""

from __future__ import annotations

from gpupool.scheduler.model import DeviceView, PlacedShare
from gpupool.shares import WHOLE_DEVICE_MILLI, Share, ShareError


def place_on(device: DeviceView, share: Share) -> PlacedShare | None:
    """``share`` in both numbers on ``device``; None when it cannot be placed there even if it is empty.

    On an ``open`` device a share names compute, and its MiB are all that there are: a limit, nothing reserved.
    """
    if device.sharing == "open":
        if share.milli is None or device.usable < 1:
            return None
        return PlacedShare(device.id, share.milli, device.usable)
    if device.sharing == "whole" and share.milli != WHOLE_DEVICE_MILLI:
        return None
    try:
        sized = share.on_device(device.usable)
    except (ShareError, ValueError):
        return None
    return PlacedShare(device.id, sized.milli, sized.mib)


def fits(device: DeviceView, placed: PlacedShare) -> bool:
    """Whether there is room for it now, on a device that serves."""
    return device.healthy and placed.milli <= device.free_milli and placed.mib <= device.free_mib
