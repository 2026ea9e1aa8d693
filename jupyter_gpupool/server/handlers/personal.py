"""The pool's sentences as their reader would say them: "you", notebooks in the place of leases, GPUs by their number.

The pool speaks to everybody, and to programs; who reads a page or a cell is one person, with notebooks of her own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpupool.device_names import device_name
from gpupool.sentences import Sentence, param
from gpupool.sentences.param import Param
from gpupool.sentences.render import catalogue, render

if TYPE_CHECKING:
    from jupyter_gpupool.server.session.sessions import Sessions


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads.

    Attributes:
        user: as the pool knows them; empty: not known.
        notebooks: lease id → (kernel id, what people call it), of the kernels of this server.
    """

    user: str
    notebooks: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def kernels(self, said: Sentence) -> list[tuple[str, str]]:
        """The kernels whose leases a help speaks of, (id, name); empty: not all of them are of this server."""
        leases = said.params.get("leases")
        if leases is None or leases.kind != "list":
            return []
        found = [self.notebooks.get(str(item.value)) for item in leases.value]
        return [kernel for kernel in found if kernel is not None] if all(found) else []


def reader_of(user: str, sessions: Sessions | None) -> Reader:
    """``user`` with what the kernels of this server hold."""
    held = {
        session.record.lease.lease_id: (session.kernel_id, session.label)
        for session in sessions or ()
        if session.record.lease is not None and session.label
    }
    return Reader(user, held)


def personal(said: Sentence, reader: Reader) -> Sentence:
    """The same sentence for its reader; where the catalogue has a form for one's own things (``….mine``), that one."""
    params = {name: _personal(value, reader) for name, value in said.params.items()}
    code, mine = said.code, f"{said.code}.mine"
    if mine in catalogue():
        user = said.params.get("user")
        if user is not None and user.value and user.value == reader.user:
            code = mine
        elif kernels := reader.kernels(said):
            code, params["leases"] = mine, Param("list", tuple(param.text(name) for _, name in kernels))
    return Sentence(code, params)


def said_to(reader: Reader, said: Sentence) -> str:
    """The words of a sentence for its reader."""
    return render(personal(said, reader))


def _personal(value: Param, reader: Reader) -> Param:
    match value.kind:
        case "device":
            return param.device(device_name(str(value.value)))
        case "sentence":
            return Param("sentence", personal(value.value, reader))
        case "list":
            return Param("list", tuple(_personal(item, reader) for item in value.value))
        case _:
            return value
