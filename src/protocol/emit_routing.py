"""What a message names, from which the client finds the worker it goes to where a session has several."""

from __future__ import annotations

from emit_messages import BANNER
from routes import named
from table import Message, Table


def _body(calls: list[str]) -> str:
    return f"{{ {' '.join(calls)} }}" if calls else "{}"


def _is(m: Message, routes: str) -> str:
    return str(m.routes == routes).lower()


def _rules(m: Message) -> list[str]:
    handles, devices, addresses = named(m)
    owners = [f"owners.handle(wire::Kind::{kind}, m.{name});" for name, kind in handles]
    owners += [f"owners.device(m.{name});" for name in devices]
    owners += [f"owners.address(m.{name});" for name in addresses]
    changes = [f"worker.context(m.{name});" for name, kind in handles if kind == "context"]
    changes += [f"worker.device(m.{name});" for name in devices]
    unnamed = "[[maybe_unused]] "
    return [
        "template <>",
        f"struct Routing<messages::{m.name}> {{",
        f"  static constexpr bool one_worker_only = {_is(m, 'one_worker')};",
        f"  static constexpr bool goes_to_memory = {_is(m, 'memory')};",
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
