"""What a message names, from which the client finds the worker it goes to where a session has several."""

from __future__ import annotations

from emit_messages import BANNER
from roles import VALUES, Argument
from table import Message, Table

# Families that a session with devices on several nodes does not offer: their objects are numbers of one worker.
_ONE_WORKER_ONLY = ("GreenCtx", "DevResource", "DevSm")
# They may be sent to where their memory is, although the context is another node's: the client then waits for them.
_GO_TO_THE_MEMORY = ("cuMemset", "cuMemcpyDtoD", "CopyFromHost", "CopyToHost", "CopyRows")
# Objects that the message makes: they are where it goes, and say nothing about that.
_MADE = {
    ("CaptureInfo", "graph"),
    ("CreateContext", "context"),
    ("CreatePhysical", "memory"),
    ("GraphAddAllocation", "node"),
    ("GraphAddNode", "node"),
    ("GraphClone", "clone"),
    ("GraphOfChild", "graph"),
    ("ImportEvent", "event"),
    ("ImportMemory", "memory"),
}
# Fields of messages that have no export of their own.
_KINDS = {
    "array": "array",
    "context": "context",
    "event": "event",
    "exec": "graph_exec",
    "function": "function",
    "graph": "graph",
    "image": "module",
    "kernel": "kernel",
    "library": "library",
    "memory": "allocation",
    "module": "module",
    "node": "graph_node",
    "stream": "stream",
}
_DEVICES = {"device", "place"}
_ADDRESSES = {"address", "destination", "source"}


def _is_address(a: Argument) -> bool:
    return a.role == "value" and a.parameter.type == "CUdeviceptr"


def _named(m: Message) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    """Handles with their kinds, devices, addresses."""
    if m.arguments:
        single = [a for a in m.arguments if not a.count]
        handles = [
            (a.name, a.handle)
            for a in single
            if a.role in {"in", "drop"} and a.handle not in VALUES and (m.name, a.name) not in _MADE
        ]
        devices = [a.name for a in single if a.role == "device"]
        addresses = [a.name for a in single if _is_address(a)]
    else:
        wide = [f.name for f in m.fields if f.packed == "u64"]
        handles = [(n, _KINDS[n]) for n in wide if n in _KINDS and (m.name, n) not in _MADE]
        devices = [f.name for f in m.fields if f.name in _DEVICES and f.packed == "i32"]
        addresses = [n for n in wide if n in _ADDRESSES]
    # A device says where the address is, also of one that nothing is mapped at.
    return handles, devices, [] if devices else addresses


def _body(calls: list[str]) -> str:
    return f"{{ {' '.join(calls)} }}" if calls else "{}"


def _rules(m: Message) -> list[str]:
    handles, devices, addresses = _named(m)
    owners = [f"owners.handle(wire::Kind::{kind}, m.{name});" for name, kind in handles]
    owners += [f"owners.device(m.{name});" for name in devices]
    owners += [f"owners.address(m.{name});" for name in addresses]
    changes = [f"worker.context(m.{name});" for name, kind in handles if kind == "context"]
    changes += [f"worker.device(m.{name});" for name in devices]
    only_one = any(part in m.name for part in _ONE_WORKER_ONLY)
    unnamed = "[[maybe_unused]] "
    return [
        "template <>",
        f"struct Routing<messages::{m.name}> {{",
        f"  static constexpr bool one_worker_only = {str(only_one).lower()};",
        f"  static constexpr bool goes_to_memory = {str(m.name.startswith(_GO_TO_THE_MEMORY)).lower()};",
        "  template <class Owners>",
        f"  static void name_owners({unnamed}const messages::{m.name}& m, {unnamed}Owners& owners) {_body(owners)}",
        "  template <class Worker>",
        f"  static void put_for({unnamed}messages::{m.name}& m, {unnamed}const Worker& worker) {_body(changes)}",
        "};",
    ]


def message_routing(table: Table) -> str:
    """A header of the client's own, so that its rules concern nobody else."""
    lines = [
        BANNER,
        "#pragma once\n",
        '#include "generated/messages.h"',
        '#include "wire/handle.h"\n',
        "namespace gpupool {\n",
        "/// `name_owners` tells what a message names; `put_for` makes contexts and devices those of a worker.",
        "template <class Message>",
        "struct Routing;\n",
    ]
    for m in table.messages:
        lines += [*_rules(m), ""]
    lines.append("}  // namespace gpupool")
    return "\n".join(lines) + "\n"
