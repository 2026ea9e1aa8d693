"""Shares of a GPU: how people write them, and the integer rules that turn one into two numbers.

A share is named by compute (milli-GPU, 1..1000 of one device) or by memory (MiB). The
other number is derived per device, because devices differ in size:

* ``mib = floor(milli * usable / 1000)``: n equal shares of 1000/n never exceed the device;
* ``milli = ceil(mib * 1000 / usable)``: the compute that this much memory stands for;
* ``usable = total - reserve``, ``reserve = max(256 MiB, 3 %)``: what the driver and the
  contexts themselves take, so that the last share still fits.

Everything is integer: a fraction is never rounded to fit. This module imports nothing but
the standard library, so that a kernel environment can afford it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

#: Compute units of one whole device.
WHOLE_DEVICE_MILLI: Final = 1000
#: Smallest memory reserve of a device, MiB.
MINIMUM_RESERVE_MIB: Final = 256
#: Reserve in percent of the device's memory, when that is more.
RESERVE_PERCENT: Final = 3
#: Largest memory share that can be written, MiB (16 TiB: far above any device).
MAXIMUM_MIB: Final = 16 * 1024 * 1024
#: Most devices of one request.
MAXIMUM_DEVICES: Final = 8
#: On how many nodes the devices of one request may lie. `auto`: on one, if a node could ever serve it, else on any.
NODE_CHOICES: Final = ("auto", "one", "any")

#: What may be written; part of every error, so that the reader need not look it up.
ALLOWED: Final = (
    "write a part of one GPU such as 0.2 or 20% (more than 0, at most 1, in steps of 0.001), "
    "or memory such as 2560MiB or 2.5GiB"
)

# At most 12 digits on either side: longer input is never a share, and Decimal stays cheap.
_SHARE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?|\.[0-9]{1,12})\s*(%|mib|gib)?", re.IGNORECASE | re.ASCII)
_SHOWN_CHARACTERS = 40
#: What people write for a share: a number or a fraction, with a unit or what they take for one.
_LIKE_A_SHARE = re.compile(r"([0-9]{0,6}\.?[0-9]{1,6})(?:/([0-9]{1,4}))?([a-z%]{0,8})", re.ASCII)
#: And which unit it is; memory is counted in powers of two here.
_UNITS: Final = {
    **dict.fromkeys(("", "x", "gpu", "gpus"), ""),
    **dict.fromkeys(("%", "pct", "percent"), "%"),
    **dict.fromkeys(("m", "mb", "mib"), "MiB"),
    **dict.fromkeys(("g", "gb", "gib", "gig"), "GiB"),
}


class ShareError(ValueError):
    """A text is not a share. ``str()`` is one sentence: the offending value, and what is allowed."""

    def __init__(self, value: str, problem: str, guess: str = "") -> None:
        shown = value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…"
        way = f"did you mean {guess}? Or {ALLOWED}" if guess else ALLOWED
        super().__init__(f"{shown!r} {problem}: {way}.")
        self.value = value


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """A share on one concrete device: both numbers are known."""

    milli: int
    mib: int


@dataclass(frozen=True, slots=True)
class Share:
    """A share as asked for: exactly one of ``milli`` (1..1000) and ``mib`` (1..) is set.

    ``said``: the text that it was read from; two shares of the same size are equal however they were said.
    """

    milli: int | None = None
    mib: int | None = None
    said: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if (self.milli is None) == (self.mib is None):
            raise ValueError("a share names either milli or mib, not both and not neither")
        if self.milli is not None and not 1 <= self.milli <= WHOLE_DEVICE_MILLI:
            raise ShareError(str(self.milli / WHOLE_DEVICE_MILLI), "is not a share of a GPU")
        if self.mib is not None and not 1 <= self.mib <= MAXIMUM_MIB:
            raise ShareError(f"{self.mib}MiB", "is not a share of a GPU")

    @classmethod
    def parse(cls, text: str) -> Share:
        """Reads ``0.2``, ``20%``, ``2560MiB`` or ``2.5GiB``.

        Raises:
            ShareError: the text is something else, is zero, negative, above one whole GPU, or
                finer than one milli-GPU or one MiB.
        """
        written = text.strip()
        found = _read(written)
        if isinstance(found, str):
            raise ShareError(written, found, _meant(written))
        return cls(milli=found[0], mib=found[1], said=written)

    def on_device(self, usable: int) -> DeviceShare:
        """Both numbers of this share on a device with ``usable`` MiB.

        Raises:
            ShareError: the memory asked for is more than the device has, or the part is so
                small that it stands for no whole MiB.
        """
        if self.milli is not None:
            mib = mib_of_milli(self.milli, usable)
            if mib < 1:
                raise ShareError(str(self), f"is less than 1 MiB of a device with {usable} MiB")
            return DeviceShare(self.milli, mib)
        assert self.mib is not None
        if self.mib > usable:
            raise ShareError(str(self), f"is more than the {usable} MiB of this device")
        return DeviceShare(milli_of_mib(self.mib, usable), self.mib)

    @property
    def written(self) -> str:
        """As whoever asks for it has written it."""
        return self.said or str(self)

    def __str__(self) -> str:
        if self.milli is not None:
            return format_milli(self.milli)
        return f"{self.mib}MiB"


def _read(written: str) -> tuple[int | None, int | None] | str:
    """Milli or MiB of a share as it is written; a text: what is wrong with it."""
    match = _SHARE.fullmatch(written)
    if match is None:
        return "is not a share of a GPU"
    number = Decimal(match[1])
    unit = (match[2] or "").lower()
    if number == 0:
        return "is not a share of a GPU, it is nothing"
    if unit in ("mib", "gib"):
        mib = number * (1024 if unit == "gib" else 1)
        if mib != mib.to_integral_value():
            return "is not a whole number of MiB"
        return "is more memory than any GPU has" if mib > MAXIMUM_MIB else (None, int(mib))
    milli = number * (10 if unit == "%" else WHOLE_DEVICE_MILLI)
    if milli > WHOLE_DEVICE_MILLI:
        return f"is more than one whole GPU (ask for several with -n{_several(milli)})"
    return "is finer than 0.001 GPU" if milli != milli.to_integral_value() else (int(milli), None)


def _several(milli: Decimal) -> str:
    """``, such as 0.75 with -n 2``, where so much is an even share of as few GPUs as possible."""
    count = int(-(-milli // 1) + WHOLE_DEVICE_MILLI - 1) // WHOLE_DEVICE_MILLI
    each = milli / count
    if count > MAXIMUM_DEVICES or each != each.to_integral_value():
        return ""
    return f", such as {format_milli(int(each))} with -n {count}"


def _meant(written: str) -> str:
    """The share that a text which is none looks like: ``0,2`` → ``0.2``, ``20GB`` → ``20GiB``; empty: it looks like none."""
    tidy = "".join(written[:_SHOWN_CHARACTERS].split()).lower().replace(",", ".")
    tidy = re.sub(r"(?<![a-z])o(?=[.0-9])|(?<=[.0-9])o(?![a-z])", "0", tidy)
    match = _LIKE_A_SHARE.fullmatch(tidy)
    unit = _UNITS.get(match[3]) if match is not None else None
    if match is None or unit is None or match[2] in ("0", "00", "000", "0000"):
        return ""
    number = Decimal(match[1]) / int(match[2] or 1)
    if not unit and MAXIMUM_DEVICES < number <= 100:
        unit = "%"
    guess = f"{number:f}{unit}"
    return "" if guess == written or isinstance(_read(guess), str) else guess


def least_milli(usable_mib: Iterable[int], milli: int | None, mib: int | None, count: int) -> int:
    """What a wish for ``count`` even shares takes at least of devices of these sizes, milli-GPU.

    One that names memory takes the smallest part of the largest device; whole devices, if none is large enough.
    """
    if milli is not None:
        return milli * count
    room = max(usable_mib, default=0)
    if mib is None or not 0 < mib <= room:
        return WHOLE_DEVICE_MILLI * count
    return milli_of_mib(mib, room) * count


def format_share(milli: int) -> str:
    """Milli-GPU to be read, with two decimals at most: 799 → ``0.8``, below 0.01 exactly. What is typed is exact."""
    return format_milli(milli if milli < 10 else (milli + 5) // 10 * 10)


def offered_milli(milli: int) -> int:
    """The part of so much room that people are told to ask for: two decimals, and never more than there is."""
    return milli if milli < 10 else milli - milli % 10


def format_milli(milli: int) -> str:
    """Milli-GPU as people write it: 200 → ``0.2``, 1000 → ``1``."""
    text = f"{milli // WHOLE_DEVICE_MILLI}.{milli % WHOLE_DEVICE_MILLI:03d}"
    return text.rstrip("0").rstrip(".")


def reserve_mib(total: int) -> int:
    """MiB of a device with ``total`` MiB that are never handed out."""
    return max(MINIMUM_RESERVE_MIB, -(-total * RESERVE_PERCENT // 100))


def usable_mib(total: int) -> int:
    """MiB of a device with ``total`` MiB that shares are cut from (0 for a tiny device)."""
    return max(0, total - reserve_mib(total))


def mib_of_milli(milli: int, usable: int) -> int:
    """MiB that ``milli`` stands for on a device with ``usable`` MiB; rounded down."""
    return milli * usable // WHOLE_DEVICE_MILLI


def milli_of_mib(mib: int, usable: int) -> int:
    """Milli-GPU that ``mib`` stands for on a device with ``usable`` MiB; rounded up."""
    if usable < 1:
        raise ValueError(f"a device with {usable} usable MiB has no shares")
    return -(-mib * WHOLE_DEVICE_MILLI // usable)
