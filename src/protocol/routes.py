"""How the client finds the worker that a message goes to where a session has several.

A message goes to the worker of the objects, devices or addresses that it names; where it names none, to that of the
context it is sent in. Its fields say what they name (roles.py); the key `routes` says the rest.
"""

from __future__ import annotations

from kinds import KINDS, TableError
from table import Message, Table

ROUTES = {
    "memory": "goes to where its memory is, although its context is another node's: the client then waits for it",
    "context": "stays with its context: memory of another node is refused",
    "one_worker": "is not offered where a session has several: its objects are numbers of one worker",
}


def named(m: Message) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    """Handles with their kinds, devices, addresses. What the message makes says nothing about where it goes."""
    handles = [
        (f.name, f.handle) for f in m.fields if f.role in {"in", "drop"} and not KINDS[f.handle].by_value
    ]
    devices = [f.name for f in m.fields if f.role == "device"]
    addresses = [f.name for f in m.fields if f.role == "address"]
    # A device says where the address is, also of one that nothing is mapped at.
    return handles, devices, [] if devices else addresses


def check_routes(table: Table) -> None:
    """Raises TableError for a message of which it is not decided, or contradictory, where it goes."""
    for m in table.messages:
        if m.routes and m.routes not in ROUTES:
            raise TableError(f"{m.name}: unknown routes {m.routes!r}")
        numbers = [f.handle for f in m.fields if f.handle and KINDS[f.handle].one_worker]
        if numbers and m.routes != "one_worker":
            raise TableError(f'{m.name}: a {numbers[0]} is a number of one worker, so routes = "one_worker"')
        addresses = named(m)[2]
        if addresses and not m.routes:
            raise TableError(f"{m.name}: may it go to where {addresses[0]} is? Say `routes`")
        if m.routes in {"memory", "context"} and not addresses:
            raise TableError(f"{m.name}: routes = {m.routes!r} is for what names memory")
