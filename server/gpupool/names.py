"""The names that people give to nodes, node pools, projects and labels: one rule each, for whoever reads one."""

from __future__ import annotations

import re
from typing import Final

#: What a name consists of, for messages.
NAME_RULE: Final = "letters, digits, '.', '_' and '-', at most 63, a letter or digit first and last"
#: Levels of a project's path.
MAXIMUM_DEPTH: Final = 8
#: Characters of a project's path.
MAXIMUM_PATH: Final = 200

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABEL: Final = re.compile(r"[A-Za-z0-9_.-]{1,63}", re.ASCII)


def is_name(text: str) -> bool:
    """Whether a node, a node pool or one level of a project's path can be called so."""
    return _NAME.fullmatch(text) is not None


def is_project(text: str) -> bool:
    """Whether this can be the path of a project: names, joined by ``/``."""
    parts = text.split("/")
    return len(text) <= MAXIMUM_PATH and len(parts) <= MAXIMUM_DEPTH and all(map(is_name, parts))


def is_label(text: str) -> bool:
    """Whether a label of a node can be called so; labels are compared, never shown as a path."""
    return _LABEL.fullmatch(text) is not None
