"""On what terms a GPU is asked for, beside how much: whose quota it counts against, and what it must be like."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

#: Whether a lease may be taken back for others; the pool says what each means.
KINDS: Final = ("interactive", "guaranteed", "preemptible")
MOST_PRIORITY: Final = 1000
#: Conditions, or node pools, in one request.
MOST_TERMS: Final = 16

_PATH = re.compile(r"[A-Za-z0-9_.-]{1,63}(/[A-Za-z0-9_.-]{1,63}){0,7}", re.ASCII)
_CONDITION = re.compile(r"[A-Za-z0-9_.-]{1,70}\s*(>=|<=|!=|=|>|<)\s*\S.{0,127}")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}", re.ASCII)


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
    if text and not _PATH.fullmatch(text):
        raise TermsError(f"{text[:40]!r} is no project; a project is a path such as research/vision.")
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
        if not _NAME.fullmatch(text):
            raise TermsError(f"{text[:40]!r} is no node pool; a node pool has a name such as a100.")
    return tuple(texts)


def _few(texts: list[str], what: str) -> list[str]:
    if len(texts) > MOST_TERMS:
        raise TermsError(f"At most {MOST_TERMS} {what} are looked at, {len(texts)} were given.")
    return texts
