"""C++ of the worker: the driver's function table, the handlers, and the table that dispatches to them."""

from __future__ import annotations

from emit_messages import BANNER
from table import HANDLES, PACKED, Argument, Message, Table


def driver_api(table: Table) -> str:
    """A struct of function pointers, filled by dlsym."""
    called = {m.name for m in table.messages if m.name in table.exports} | set(table.needs)
    names = sorted(called)
    lines = [
        BANNER,
        "#pragma once\n",
        "#include <cuda.h>\n",
        "#include <cstddef>\n",
        "namespace gpupool::worker {\n",
    ]
    lines += [
        "/// The driver's functions by export name. Never null: what a driver lacks answers CUDA_ERROR_NOT_SUPPORTED."
    ]
    lines += ["struct DriverApi {"]
    for name in names:
        types = ", ".join(p.type for p in table.header.functions[name].parameters)
        lines.append(f"  CUresult (*{name}_)({types}) = nullptr;")
    lines += ["};\n", "struct DriverSymbol {", "  const char* name;", "  std::size_t offset;", "};"]
    lines.append("inline constexpr DriverSymbol driver_symbols[] = {")
    lines += [f'    {{"{name}", offsetof(DriverApi, {name}_)}},' for name in names]
    lines += ["};\n", "}  // namespace gpupool::worker"]
    return "\n".join(lines) + "\n"


def _argument(a: Argument, m: Message) -> tuple[list[str], str]:
    name, ctype = a.name, a.parameter.type
    match a.role:
        case "in" | "drop":
            find = f"  {ctype} {name} = nullptr;\n"
            find += f"  if (!x.handles.find(wire::Kind::{a.handle}, m.{name}, {name})) return CUDA_ERROR_INVALID_HANDLE;"
            return [find], name
        case "new":
            return [
                f"  if (!x.handles.vacant(wire::Kind::{a.handle}, m.{name})) return CUDA_ERROR_INVALID_HANDLE;",
                f"  {HANDLES[a.handle]} {name}{{}};",
            ], f"&{name}"
        case "device":
            return [
                f"  CUdevice {name} = 0;",
                f"  if (!x.device(m.{name}, {name})) return CUDA_ERROR_INVALID_DEVICE;",
            ], name
        case "value":
            return [], f"static_cast<{ctype}>(m.{name})"
        case "text":
            return [
                f"  const std::string {name}(reinterpret_cast<const char*>(m.{name}.data()), m.{name}.size());"
            ], f"{name}.c_str()"
        case "struct":
            pointee = a.parameter.pointee
            return [
                f"  {pointee} {name};",
                f"  std::memcpy(&{name}, m.{name}.data(), sizeof({name}));",
            ], f"&{name}"
        case "out":
            return [f"  {a.parameter.pointee} {name}{{}};"], f"&{name}"
    raise AssertionError(f"{m.name}: {a.role}")


def _handler(m: Message) -> list[str]:
    reply = "reply" if any(a.role == "out" for a in m.arguments) else ""
    lines = [
        f"CUresult run_{m.name}(Executor& x, const messages::{m.name}& m, replies::{m.name}& {reply}) {{"
    ]
    if not m.fields:
        lines.append("  static_cast<void>(m);")
    actual = []
    for a in m.arguments:
        before, expression = _argument(a, m)
        lines += before
        actual.append(expression)
    if m.work:
        lines.append(f"  x.submits({'nullptr' if m.work == 'null' else m.work});")
    if m.waits:
        lines.append("  x.waits();")
    lines.append(f"  const CUresult result = x.api.{m.name}_({', '.join(actual)});")
    lines += [
        f"  if (result == CUDA_SUCCESS) x.handles.bind(wire::Kind::{a.handle}, m.{a.name}, {a.name});"
        for a in m.arguments
        if a.role == "new"
    ]
    lines += [
        f"  x.handles.drop(wire::Kind::{a.handle}, m.{a.name});" for a in m.arguments if a.role == "drop"
    ]
    packed = {f.name: f for f in m.reply}
    for a in m.arguments:
        if a.role != "out":
            continue
        if packed[a.name].packed in PACKED:
            lines.append(f"  reply.{a.name} = static_cast<decltype(reply.{a.name})>({a.name});")
        else:
            lines.append(f"  std::memcpy(reply.{a.name}.data(), &{a.name}, reply.{a.name}.size());")
    return [*lines, "  return result;", "}", ""]


def dispatch(table: Table) -> str:
    lines = [
        BANNER,
        "#include <cuda.h>\n",
        "#include <cstring>",
        "#include <string>\n",
        '#include "generated/handlers.h"',
    ]
    lines += [
        '#include "worker/dispatch.h"',
        '#include "worker/executor.h"\n',
        "namespace gpupool::worker {\n",
    ]
    for m in table.messages:
        if not m.custom_worker:
            lines += _handler(m)
    lines.append("const Dispatch dispatch_table[message_count] = {")
    for m in table.messages:
        flags = [
            str(not m.free).lower(),
            str(m.kind == "ask").lower(),
            str(m.bulk == "request").lower(),
            str(m.waits).lower(),
        ]
        lines.append(f'    {{"{m.name}", &handle<messages::{m.name}, &run_{m.name}>, {", ".join(flags)}}},')
    lines += ["};\n", "}  // namespace gpupool::worker"]
    return "\n".join(lines) + "\n"


def handlers(table: Table) -> str:
    lines = [
        BANNER,
        "#pragma once\n",
        "#include <cuda.h>\n",
        '#include "generated/messages.h"\n',
        "namespace gpupool::worker {\n",
    ]
    lines.append("class Executor;\n")
    for m in table.messages:
        lines.append(f"CUresult run_{m.name}(Executor&, const messages::{m.name}&, replies::{m.name}&);")
    lines.append("\n}  // namespace gpupool::worker")
    return "\n".join(lines) + "\n"
