"""C++ of the worker: the driver's function table, the handlers, and the table that dispatches to them."""

from __future__ import annotations

from emit_handler import handler
from emit_messages import BANNER
from table import Table


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


def dispatch(table: Table) -> str:
    lines = [
        BANNER,
        "#include <cuda.h>\n",
        "#include <cstring>",
        "#include <string>",
        "#include <vector>\n",
        '#include "generated/handlers.h"',
        '#include "generated/structs.h"',
    ]
    lines += [
        '#include "worker/conversation/dispatch.h"',
        '#include "worker/objects/elements.h"',
        '#include "worker/conversation/call.h"\n',
        "namespace gpupool::worker {\n",
    ]
    for m in table.messages:
        if not m.custom_worker:
            lines += handler(m, table)
    lines.append("const Dispatch dispatch_table[message_count] = {")
    for m in table.messages:
        flags = [
            str(not m.free).lower(),
            str(m.kind == "ask").lower(),
            str(m.bulk == "request").lower(),
            str(m.waits).lower(),
            f"Again::{m.behaviour.again}",
            str(m.behaviour.refused_by_push).lower(),
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
    lines.append("class Call;\n")
    for m in table.messages:
        lines.append(f"CUresult run_{m.name}(Call&, const messages::{m.name}&, replies::{m.name}&);")
    lines.append("\n}  // namespace gpupool::worker")
    return "\n".join(lines) + "\n"
