"""On what terms a GPU is asked for, beside how much: whose quota it counts against, and what it must be like."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gpupool.names import MAXIMUM_DEPTH, MAXIMUM_PATH, NAME_RULE, is_name, is_project

#: What a request says of being taken back. ``interactive``: not while its project is within what it deserves, and with
#: notice above that; ``guaranteed``: never, and refused above what is deserved; ``preemptible``: with notice, always.
KINDS: Final = ("interactive", "guaranteed", "preemptible")
#: Priorities inside a project that a request may name: 1 up to this.
MOST_PRIORITY: Final = 1000
#: Conditions, or node pools, in one request.
MOST_TERMS: Final = 16

_CONDITION = re.compile(r"[A-Za-z0-9_.-]{1,70}\s*(>=|<=|!=|=|>|<)\s*\S.{0,127}")
_DEVICE = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9 ._*?()-]{0,62}", re.ASCII)


class TermsError(ValueError):
    """A value makes no sense; ``str()`` is one sentence with it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What :class:`gpupool.client.types.Ask` says of project, kind, priority, filters and node pools."""

    project: str = ""
    kind: str = "interactive"
    priority: int = 0
    filters: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()


def checked_project(text: str) -> str:
    """A path such as ``research/vision``; empty: the user's only project, else ``default``."""
    if text and not is_project(text):
        raise TermsError(
            f"{text[:40]!r} is no project; a project is a path such as research/vision: names of {NAME_RULE}, "
            f"joined by '/', at most {MAXIMUM_DEPTH} of them and {MAXIMUM_PATH} characters."
        )
    return text


def checked_kind(text: str) -> str:
    if text not in KINDS:
        raise TermsError(f"A kind is one of {', '.join(KINDS)}, {text[:40]!r} is not.")
    return text


def checked_filters(texts: list[str]) -> tuple[str, ...]:
    """Conditions as the pool reads them; here only what cannot be one is found."""
    for text in _few(texts, "conditions"):
        if not _CONDITION.fullmatch(text.strip()):
            raise TermsError(
                f"{text[:40]!r} is no condition for GPUs; write for example name=*H100*, memory>=40GiB or "
                "label.zone=a."
            )
    return tuple(text.strip() for text in texts)


def checked_pools(texts: list[str]) -> tuple[str, ...]:
    for text in _few(texts, "node pools"):
        if not is_name(text):
            raise TermsError(f"{text[:40]!r} is no node pool; a node pool has a name such as a100.")
    return tuple(texts)


def checked_type(text: str) -> str:
    """``H100|A100`` as a condition on the device's name; without a wildcard (``*``, ``?``) it is a part of the name."""
    names = text.split("|")
    if not all(_DEVICE.fullmatch(name) for name in names):
        raise TermsError(
            f"{text[:40]!r} is no type of GPU; write a part of its name such as H100, or H100|A100."
        )
    return "name=" + "|".join(name if "*" in name or "?" in name else f"*{name}*" for name in names)


def _few(texts: list[str], what: str) -> list[str]:
    if len(texts) > MOST_TERMS:
        raise TermsError(f"At most {MOST_TERMS} {what} are looked at, {len(texts)} were given.")
    return texts
