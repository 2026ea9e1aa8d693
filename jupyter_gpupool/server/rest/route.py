"""One route: what is asked, what is answered, what is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

_KERNEL_ID: Final = r"[A-Za-z0-9_-]{1,128}"
#: What may stand for a name in a path.
PATH_PARAMETERS: Final = {"kernel_id": (_KERNEL_ID, "The id of a kernel of this Jupyter server.")}

JSON: Final = "application/json"
#: JSON objects, one a line.
LINES: Final = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter behind the ``?``; all may be left out. ``type`` is JSON Schema's."""

    name: str
    says: str
    type: str = "string"


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path below ``<base_url>/gpupool/``.

    Attributes:
        does: one sentence, for the description and the documentation.
        answer: the shape of what is answered with ``status``.
        body: shapes of what is sent, all of which hold for it; empty: no body is read.
        refusals: statuses with which it is refused; the body is then a ``Refusal``.
    """

    method: str
    path: str
    does: str
    answer: Any
    body: Sequence[Any] = ()
    query: Sequence[Query] = ()
    refusals: frozenset[HTTPStatus] = frozenset()
    status: HTTPStatus = HTTPStatus.OK
    media: str = JSON

    @property
    def parameters(self) -> list[str]:
        """Names in its path."""
        return re.findall(r"\{(\w+)\}", self.path)

    @property
    def of_kernel(self) -> bool:
        """Kernels ask it for themselves, with their own secret."""
        return self.path.startswith("self/")


def pattern_of(path: str) -> str:
    """The regular expression by which the server finds a path."""
    return "/gpupool/" + re.sub(
        r"\{(\w+)\}",
        lambda found: f"(?P<{found[1]}>{PATH_PARAMETERS[found[1]][0]})",
        re.escape(path).replace(r"\{", "{").replace(r"\}", "}"),
    )
