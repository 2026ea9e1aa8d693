"""C++ of the worker: how the effect of each message, and the objects of each kind, come along to another worker."""

from __future__ import annotations

from emit_messages import BANNER
from kinds import KINDS, OBSTACLES
from moves import Move, decide
from table import Message, Table


def _obstacle(effect: str) -> str:
    return f"MoveObstacle::{effect.replace('-', '_')}" if effect in OBSTACLES else "MoveObstacle::none"


def _names(m: Message, move: Move) -> list[str]:
    """A function that takes the handles, and what may be replaced, out of a message's body."""
    lines = [
        f"bool names_{m.name}(std::span<const std::byte> body, MoveNames& out) {{",
        f"  messages::{m.name} m;",
        "  wire::Reader in(body);",
        f"  if (!messages::{m.name}::decode(in, m)) return false;",
    ]
    if move.handles:
        lines.append(f"  out.handles = {{{', '.join(f'm.{name}' for name in move.handles)}}};")
    if move.made:
        lines.append(f"  out.made = m.{move.made};")
    if move.same is not None:
        lines.append("  out.replaces = true;")
        lines += [f"  out.also_same(m.{name});" for name in move.same]
    return [*lines, "  return true;", "}"]


def move_rules(table: Table) -> str:
    lines = [BANNER, '#include "worker/image/move_rules.h"\n', '#include "generated/messages.h"\n']
    lines += ["namespace gpupool::worker {", "namespace {\n"]
    rows = []
    for m in table.messages:
        move = decide(m)
        assert move is not None, m.name
        names = "nullptr"
        if move.effect != "none":
            lines += _names(m, move)
            names = f"&names_{m.name}"
        rows.append(f"    {{{_obstacle(move.effect)}, {names}}},")
    lines += ["}  // namespace\n", "const MoveRule move_rules[message_count] = {", *rows, "};\n"]
    lines += ["MoveObstacle obstacle_of(wire::Kind kind) {", "  switch (kind) {"]
    for kind in KINDS.values():
        lines += [f"    case wire::Kind::{kind.name}:", f"      return {_obstacle(kind.move)};"]
    lines += ["    case wire::Kind::none:", "    case wire::Kind::count:", "      break;", "  }"]
    lines += ["  return MoveObstacle::none;", "}\n", "}  // namespace gpupool::worker"]
    return "\n".join(lines) + "\n"
