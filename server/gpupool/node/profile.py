"""The device profile: what a driver says about its devices, as ``key value`` lines.

The same text is printed by ``gpupool-worker --probe``, kept in the pool's inventory and
given to the client runtime before its first attach. One header, then a block per device
that ends with ``end``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: A profile has about 150 attributes of 20 bytes per device; 64 devices stay far below.
MAX_BYTES: Final = 1024 * 1024
MAX_DEVICES: Final = 64
_MAX_ATTRIBUTES: Final = 4096
_MAX_MIB: Final = 16 * 1024 * 1024

_UUID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)


class ProfileError(ValueError):
    """A text is not a device profile."""


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One device as its driver describes it; ``attributes`` maps CUdevice_attribute to value."""

    ordinal: int
    name: str
    uuid: str
    software: bool
    total_mib: int
    pci: str
    attributes: Mapping[int, int]

    def encode(self, driver_version: int, ordinal: int | None = None) -> str:
        """The text of a profile with this device alone, under another ordinal if given."""
        lines = [
            f"driver_version {driver_version}",
            f"device {self.ordinal if ordinal is None else ordinal}",
            f"name {self.name}",
            f"uuid {self.uuid}",
            f"software {int(self.software)}",
            f"total_mib {self.total_mib}",
            f"pci {self.pci}",
        ]
        lines += [f"attribute {key} {value}" for key, value in sorted(self.attributes.items())]
        return "\n".join([*lines, "end", ""])


@dataclass(frozen=True, slots=True)
class Profile:
    """All devices of one driver."""

    driver_version: int
    devices: tuple[DeviceProfile, ...]


def parse_profile(text: str) -> Profile:
    """Reads a profile; unknown keys are skipped.

    Raises:
        ProfileError: too large, truncated, or a value that is not what its key promises.
    """
    if len(text) > MAX_BYTES:
        raise ProfileError(f"a device profile has at most {MAX_BYTES} characters")
    driver_version = 0
    devices: list[DeviceProfile] = []
    fields: dict[str, str] | None = None
    attributes: dict[int, int] = {}
    for line in text.splitlines():
        key, _, value = line.strip().partition(" ")
        if fields is None:
            if key == "driver_version":
                driver_version = _integer(key, value, 0, 10**6)
            elif key == "device":
                if len(devices) == MAX_DEVICES:
                    raise ProfileError(f"a node has at most {MAX_DEVICES} devices")
                fields, attributes = {"device": value}, {}
        elif key == "attribute":
            number, _, setting = value.partition(" ")
            if len(attributes) == _MAX_ATTRIBUTES:
                raise ProfileError("a device with too many attributes")
            attributes[_integer(key, number, 1, 2**31 - 1)] = _integer(key, setting, -(2**31), 2**31 - 1)
        elif key == "end":
            devices.append(_device(fields, attributes))
            fields = None
        elif key:
            fields[key] = value
    if fields is not None:
        raise ProfileError("a device block without its end")
    return Profile(driver_version, tuple(devices))


def _device(fields: Mapping[str, str], attributes: dict[int, int]) -> DeviceProfile:
    uuid = fields.get("uuid", "").replace("-", "").lower()
    if not _UUID.fullmatch(uuid):
        raise ProfileError("a device whose uuid is not 32 hexadecimal digits")
    name = fields.get("name", "")
    if not name or len(name) > 256:
        raise ProfileError("a device without a name of at most 256 characters")
    return DeviceProfile(
        ordinal=_integer("device", fields["device"], 0, MAX_DEVICES - 1),
        name=name,
        uuid=uuid,
        software=fields.get("software") == "1",
        total_mib=_integer("total_mib", fields.get("total_mib", ""), 1, _MAX_MIB),
        pci=fields.get("pci", ""),
        attributes=attributes,
    )


def _integer(key: str, text: str, low: int, high: int) -> int:
    if not _INTEGER.fullmatch(text) or not low <= int(text) <= high:
        raise ProfileError(f"{key} is not a number from {low} to {high}")
    return int(text)
