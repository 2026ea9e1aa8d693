"""What an ask wants its devices to be like: ``name=*H100*|*A100*``, ``memory>=40GiB``, ``label.zone=a``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

#: Keys that a filter may name, besides ``label.<name>``.
KEYS: Final = ("name", "memory", "driver", "node", "software")
OPERATORS: Final = (">=", "<=", "!=", "=", ">", "<")
_FILTER = re.compile(
    r"(?P<key>label\.[A-Za-z0-9_.-]{1,63}|[a-z]{1,16})\s*(?P<operator>>=|<=|!=|=|>|<)\s*(?P<value>\S.{0,127})"
)


class FilterError(ValueError):
    """A text is no filter. ``str()`` is one sentence with the offending value."""


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition; see :func:`parse`."""

    key: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}{self.operator}{self.value}"


def parse(text: str) -> Filter:
    """The condition that ``text`` writes.

    Raises:
        FilterError: it writes none.
    """
    match = _FILTER.fullmatch(text.strip())
    if match is None or not (match["key"] in KEYS or match["key"].startswith("label.")):
        raise FilterError(
            f"{text[:40]!r} is no filter; write for example name=*H100*, memory>=40GiB, driver>=580, node=n1|n2, "
            "software=no or label.zone=a"
        )
    return Filter(match["key"], match["operator"], match["value"].strip())
