"""C++ of one handler of the worker: decode, check, translate, call the driver, encode."""

from __future__ import annotations

from roles import HANDLES, PACKED, Argument, packed_scalar
from table import Message, Table


def _base(a: Argument) -> str:
    """The type behind the parameter's pointer, not const."""
    return a.parameter.pointee


def _translation(a: Argument, table: Table, variable: str) -> list[str]:
    struct = table.structs.get(_base(a))
    if struct is None or not struct.translated:
        return []
    return [f"if (const CUresult bad = translate_in(x, {variable}); bad != CUDA_SUCCESS) return bad;"]


def _array(a: Argument, table: Table) -> tuple[list[str], str]:
    name, kind = a.name, f"wire::Kind::{a.handle}"
    count = f"static_cast<std::size_t>(m.{a.count})" if not a.count.isdigit() else a.count
    optional = f"m.has_{name} != 0" if a.flagged else ""
    actual = f"{optional} ? {name}.data() : nullptr" if optional else f"{name}.data()"
    lines = []
    if a.role == "out":
        lines += [
            f"  static thread_local std::vector<{_base(a)}> {name};  // the reply refers to it until it is encoded",
            f"  if (!make_elements({count}, {name})) return CUDA_ERROR_INVALID_VALUE;",
        ]
    elif a.role == "in":
        lines += [
            f"  std::vector<{HANDLES[a.handle]}> {name};",
            f"  if (!find_elements(x.handles, {kind}, m.{name}, {count}, {name})) return CUDA_ERROR_INVALID_HANDLE;",
        ]
    else:
        guard = f"m.has_{name} != 0 && " if optional else ""
        lines += [
            f"  std::vector<{_base(a)}> {name};",
            f"  if ({guard}!take_elements(m.{name}, {count}, {name})) return CUDA_ERROR_INVALID_VALUE;",
        ]
        if translation := _translation(a, table, "element"):
            lines += [f"  for (auto& element : {name}) {{", *(f"    {t}" for t in translation), "  }"]
    return lines, actual


def _argument(a: Argument, m: Message, table: Table) -> tuple[list[str], str]:
    name, ctype = a.name, a.parameter.type
    if a.count:
        return _array(a, table)
    kind = f"wire::Kind::{a.handle}"
    match a.role:
        case "in" | "drop" if a.by_value:
            return [
                f"  if (!x.handles.owns({kind}, m.{name})) return CUDA_ERROR_INVALID_HANDLE;"
            ], f"static_cast<{ctype}>(m.{name})"
        case "in" | "drop":
            test = f"m.{name} != 0 && " if a.optional else ""
            return [
                f"  {ctype} {name}{{}};",
                f"  if ({test}!x.handles.find({kind}, m.{name}, {name})) return CUDA_ERROR_INVALID_HANDLE;",
            ], name
        case "new" if a.by_value:
            return [f"  {HANDLES[a.handle]} {name}{{}};"], f"&{name}"
        case "new" | "get":
            return [
                f"  if (!x.handles.vacant({kind}, m.{name})) return CUDA_ERROR_INVALID_HANDLE;",
                f"  {HANDLES[a.handle]} {name}{{}};",
            ], f"&{name}"
        case "device":
            return [
                f"  CUdevice {name} = 0;",
                f"  if (!x.device(m.{name}, {name})) return CUDA_ERROR_INVALID_DEVICE;",
            ], name
        case "value":
            return [], f"static_cast<{ctype}>(m.{name})"
        case "number":
            return [], f"reinterpret_cast<{ctype}>(m.{name})"
        case "text":
            return [
                f"  const std::string {name}(reinterpret_cast<const char*>(m.{name}.data()), m.{name}.size());"
            ], f"{name}.c_str()"
        case "struct" | "inout":
            load = (
                f"std::memcpy(&{name}, m.{name}.data(), sizeof({name}));"
                if a.is_struct
                else f"{name} = static_cast<{_base(a)}>(m.{name});"
            )
            lines = [f"  {_base(a)} {name}{{}};", f"  {load}"]
            guard = f"if (m.has_{name} != 0) " if a.flagged else ""
            for line in _translation(a, table, name):
                lines.append(f"  {guard}{{ {line} }}")
            return lines, f"m.has_{name} != 0 ? &{name} : nullptr" if a.flagged else f"&{name}"
        case "out":
            return [
                f"  {_base(a)} {name}{{}};"
            ], f"m.has_{name} != 0 ? &{name} : nullptr" if a.flagged else f"&{name}"
        case "null":
            return [], "nullptr"
    raise AssertionError(f"{m.name}: {a.role}")


def _after(a: Argument, table: Table) -> list[str]:
    """What happens to the handle table, and what the reply says."""
    name, kind = a.name, f"wire::Kind::{a.handle}"
    match a.role:
        case "new" if a.by_value:
            return [
                "  if (outcome == CUDA_SUCCESS) {",
                f"    x.handles.adopt({kind}, {name});",
                f"    reply.{name} = {name};",
                "  }",
            ]
        case "new":
            return [f"  if (outcome == CUDA_SUCCESS) x.handles.bind({kind}, m.{name}, {name});"]
        case "get":
            return [
                f"  if (outcome == CUDA_SUCCESS) reply.{name} = x.handles.name_or_bind({kind}, m.{name}, {name});"
            ]
        case "drop" if a.by_value:
            return [f"  x.handles.disown({kind}, m.{name});"]
        case "drop":
            return [f"  x.handles.drop({kind}, m.{name});"]
        case "out" if a.count:
            struct = table.structs.get(_base(a))
            back = struct is not None and struct.translated
            lines = [f"  for (auto& element : {name}) translate_out(x, element);"] if back else []
            return [*lines, f"  reply.{name} = std::as_bytes(std::span({name}));"]
        case "out" | "inout":
            struct = table.structs.get(_base(a))
            lines = []
            if struct is not None and struct.translated:
                lines.append(f"  translate_out(x, {name});")
            if a.is_struct:
                lines.append(f"  std::memcpy(reply.{name}.data(), &{name}, reply.{name}.size());")
            else:
                assert packed_scalar(_base(a)) in PACKED
                lines.append(f"  reply.{name} = static_cast<decltype(reply.{name})>({name});")
            return lines
    return []


def handler(m: Message, table: Table) -> list[str]:
    """The definition of run_<message>."""
    reply = "reply" if m.reply else ""
    lines = [f"CUresult run_{m.name}(Call& x, const messages::{m.name}& m, replies::{m.name}& {reply}) {{"]
    if not m.fields:
        lines.append("  static_cast<void>(m);")
    actual = []
    for a in m.arguments:
        before, expression = _argument(a, m, table)
        lines += before
        actual.append(expression)
    if m.work:
        stream = "nullptr" if m.work == "null" else m.work
        lines.append(f"  if (const CUresult bad = x.submits({stream}); bad != CUDA_SUCCESS) return bad;")
    if m.waits:
        lines.append("  x.waits();")
        if all(a.role in {"in", "value", "device"} and not a.count for a in m.arguments):
            # Nothing but the result comes of it: a thread that may wait calls the driver.
            found = [a.name for a in m.arguments if a.role != "value" and not a.by_value]
            used = [a.name for a in m.arguments if a.role == "in" and not a.by_value]
            captured = ", ".join(["&api = x.api", *found, *(["m"] if len(found) < len(m.arguments) else [])])
            return [
                *lines,
                f"  x.leave({{[{captured}](Answer&) {{ return api.{m.name}_({', '.join(actual)}); }}, nullptr,",
                f"           {{{', '.join([*used, 'x.current()'])}}}, nullptr}});",
                "  return CUDA_SUCCESS;",
                "}",
                "",
            ]
    for a in m.arguments:
        if a.role == "drop" and not a.by_value:
            lines.append(f"  x.retires({a.name});")
    lines.append(f"  const CUresult outcome = x.api.{m.name}_({', '.join(actual)});")
    for a in m.arguments:
        lines += _after(a, table)
    return [*lines, "  return outcome;", "}", ""]
