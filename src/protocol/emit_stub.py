"""C++ of one export of the client whose body follows from the roles of its parameters."""

from __future__ import annotations

from kinds import KINDS, TableError
from roles import Argument
from table import Export, Message, Table


def _null_check(a: Argument) -> list[str]:
    if a.flagged:
        return [f"  m.has_{a.name} = {a.name} != nullptr;"]
    return [f"  if ({a.name} == nullptr) return CUDA_ERROR_INVALID_VALUE;"]


def _count(a: Argument) -> str:
    # Below zero it is no count that fits.
    return f"static_cast<std::size_t>({a.count})"


def _load(a: Argument) -> list[str]:
    name, kind = a.name, f"wire::Kind::{a.handle}"
    if a.count:
        # A null array of no elements is what a program without any gives.
        check = [f"  if (!client::fits({name}, {_count(a)})) return CUDA_ERROR_INVALID_VALUE;"]
        if a.flagged:
            check = [
                f"  m.has_{name} = {name} != nullptr;",
                f"  if ({name} != nullptr && !client::fits({name}, {_count(a)})) return CUDA_ERROR_INVALID_VALUE;",
            ]
        if a.role == "out":
            return check
        if a.role == "in":
            check += [
                f"  if (!client::all_known({kind}, {name}, {_count(a)})) return client::bad_handle({kind});"
            ]
        source = f"client::elements({name}, {_count(a)})"
        return [*check, f"  m.{name} = {source};"]
    match a.role:
        case "in" | "drop" if a.by_value:
            return [f"  m.{name} = client::raw({name});"]
        case "in" | "drop":
            test = f"client::raw({name}) != 0 && " if a.optional else ""
            return [
                f"  if ({test}!client::known({kind}, {name})) return client::bad_handle({kind});",
                f"  m.{name} = client::raw({name});",
            ]
        case "new" | "get" if not a.by_value:
            return [
                f"  if ({name} == nullptr) return CUDA_ERROR_INVALID_VALUE;",
                f"  client::Minted<{kind}> made_{name};",
                f"  if (made_{name}.value() == 0) return CUDA_ERROR_OUT_OF_MEMORY;",
                f"  m.{name} = made_{name}.value();",
            ]
        case "new":
            return [f"  if ({name} == nullptr) return CUDA_ERROR_INVALID_VALUE;"]
        case "value" | "device":
            return [f"  m.{name} = static_cast<decltype(m.{name})>({name});"]
        case "number":
            return [f"  m.{name} = reinterpret_cast<std::uint64_t>({name});"]
        case "text":
            return [
                f"  if ({name} == nullptr) return CUDA_ERROR_INVALID_VALUE;",
                f"  m.{name} = client::text({name});",
            ]
        case "struct" | "inout":
            copy = f"std::memcpy(&m.{name}, {name}, sizeof(m.{name}));"
            if a.flagged:
                copy = f"if ({name} != nullptr) {copy}"
            return [*_null_check(a), f"  {copy}"]
        case "out":
            return _null_check(a)
        case "null":
            return [f"  if ({name} != nullptr) return CUDA_ERROR_INVALID_VALUE;"]
    raise AssertionError(a.role)


def _store(a: Argument) -> list[str]:
    name = a.name
    guard = f"if ({name} != nullptr) " if a.flagged else ""
    match a.role:
        case "new" if a.by_value:
            return [f"  *{name} = reply.{name};"]
        case "new":
            return [
                f"  *{name} = client::handle_as<std::remove_reference_t<decltype(*{name})>>(made_{name}.keep());"
            ]
        case "get":
            return [
                f"  *{name} = client::handle_as<std::remove_reference_t<decltype(*{name})>>(made_{name}.keep_if(reply.{name}));"
            ]
        case "out" if a.count:
            return [f"  {guard}client::store_elements({name}, {_count(a)}, reply.{name});"]
        case "out" | "inout" if a.is_struct:
            return [f"  {guard}std::memcpy({name}, reply.{name}.data(), reply.{name}.size());"]
        case "out" | "inout":
            return [
                f"  {guard}*{name} = static_cast<std::remove_reference_t<decltype(*{name})>>(reply.{name});"
            ]
    return []


def _undo(m: Message, table: Table) -> list[str]:
    """What the worker has made although the program hears of an earlier error goes again."""
    lines = []
    for a in m.arguments:
        if a.role != "new":
            continue
        end = table.dropper(a.handle)
        if end is None:
            continue
        field = end.arguments[0].name
        made = f"reply.{a.name}" if a.by_value else f"made_{a.name}.keep()"
        send = (
            "client::end_value(end)"
            if a.by_value
            else f"client::end_object<wire::Kind::{a.handle}>(end.{field}, end)"
        )
        lines += [
            "    if (own == CUDA_SUCCESS) {",
            f"      messages::{end.name} end;",
            f"      end.{field} = {made};",
            f"      static_cast<void>({send});",
            "    }",
        ]
    return lines


def check_stub(e: Export) -> None:
    """Raises TableError where a stub cannot be made from the table."""
    assert e.message is not None
    for a in e.message.arguments:
        if a.role in {"new", "get", "drop"} and KINDS[a.handle].client == "table":
            raise TableError(
                f'{e.name}: a {a.handle} has an object of its own, so client = "custom" is needed'
            )


def stub(e: Export, table: Table) -> list[str]:
    """The export's definition."""
    m = e.message
    assert m is not None
    lines = [
        f"CUresult CUDAAPI {e.name}{e.prototype.declaration} {{",
        "  client::runtime().begin_if_over();",
        f"  messages::{m.name} m;",
    ]
    for a in m.arguments:
        lines += _load(a)
    dropped = [a for a in m.arguments if a.role == "drop" and not a.by_value]
    context = "client::any_context" if m.any_context else "its_context"
    if dropped:
        (a,) = dropped
        return [*lines, f"  return client::end_object<wire::Kind::{a.handle}>(m.{a.name}, m);", "}", ""]
    if not m.any_context:
        lines += [
            "  std::uint64_t its_context = 0;",
            "  if (const CUresult bad = client::in_current_context(its_context); bad != CUDA_SUCCESS) return bad;",
        ]
    stores = [line for a in m.arguments for line in _store(a)]
    if m.kind == "post":
        if not stores:
            return [*lines, f"  return client::post(m, {context});", "}", ""]
        lines += [
            f"  if (const CUresult bad = client::post(m, {context}); bad != CUDA_SUCCESS) return bad;",
            *stores,
            "  return CUDA_SUCCESS;",
        ]
        return [*lines, "}", ""]
    undo = _undo(m, table)
    lines += [f"  replies::{m.name} reply;", "  std::vector<std::byte> reply_bytes;"]
    if undo:
        lines += ["  CUresult own = CUDA_ERROR_UNKNOWN;"]
    own = "&own" if undo else "nullptr"
    call = f"client::ask(m, reply, {context}, reply_bytes, {{}}, nullptr, {own})"
    if not stores:
        return [*lines, f"  return {call};", "}", ""]
    lines += [
        f"  const CUresult told = {call};",
        "  if (told != CUDA_SUCCESS) {",
        *undo,
        "    return told;",
        "  }",
    ]
    for a in m.arguments:
        if a.role == "out" and a.count:
            condition = f"!client::holds({a.name}, {_count(a)}, reply.{a.name})"
            if a.flagged:
                condition = f"{a.name} != nullptr && {condition}"
            lines.append(f"  if ({condition}) return CUDA_ERROR_UNKNOWN;")
    return [*lines, *stores, "  return CUDA_SUCCESS;", "}", ""]
