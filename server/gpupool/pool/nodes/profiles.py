"""Device profiles in the pool: read from a node's hello, joined for a grant."""

from __future__ import annotations

from collections.abc import Sequence

from gpupool.model.events import OfferedDevice
from gpupool.node.profile import ProfileError, parse_profile
from gpupool.text import printable


def read_device(
    ordinal: int, profile: str, healthy: bool, health_reason: str, driver: str = ""
) -> OfferedDevice:
    """A device of a hello.

    Raises:
        ProfileError: the text is not the profile of exactly one device.
    """
    parsed = parse_profile(profile)
    if len(parsed.devices) != 1:
        raise ProfileError(f"the profile of device {ordinal} describes {len(parsed.devices)} devices, not 1")
    device = parsed.devices[0]
    return OfferedDevice(
        ordinal=ordinal,
        name=printable(device.name),
        uuid=device.uuid,
        software=device.software,
        total_mib=device.total_mib,
        profile=profile,
        healthy=healthy,
        health_reason=printable(health_reason[:200]),
        driver=printable(driver[:32]),
    )


def join(profiles: Sequence[str]) -> str:
    """One profile text of several devices, with ordinals 0.. as the session sees them.

    Those of several nodes may have several drivers: what the oldest can do all can.
    """
    text = ""
    parsed_all = [parse_profile(profile) for profile in profiles]
    oldest = min((parsed.driver_version for parsed in parsed_all), default=0)
    for ordinal, parsed in enumerate(parsed_all):
        encoded = parsed.devices[0].encode(oldest, ordinal)
        text += encoded if ordinal == 0 else encoded.partition("\n")[2]
    return text
