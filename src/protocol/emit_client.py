"""C++ of the client's exports: stubs, aliases, refusals, and the table of cuGetProcAddress."""

from __future__ import annotations

from emit_messages import BANNER
from emit_stub import check_stub, stub
from error_texts import error_text
from table import Export, Table


def _bases(table: Table) -> list[str]:
    """Names that cuda.h maps to their newest form; in generated code every name means itself."""
    return sorted({p.base for p in table.header.proc_addresses})


def _served(table: Table) -> list[Export]:
    return [e for e in sorted(table.exports.values(), key=lambda e: e.name) if e.kind != "unsupported"]


def api(table: Table) -> str:
    """Declarations of what the exports call: functions of C++, which may throw."""
    bases = _bases(table)
    lines = [BANNER, "#pragma once\n", "#include <cuda.h>\n"]
    lines += [f'#pragma push_macro("{name}")\n#undef {name}' for name in bases]
    lines += ["", "namespace gpupool::client::api {\n"]
    lines += [f"CUresult CUDAAPI {e.name}{e.prototype.declaration};" for e in _served(table)]
    lines += ["", "}  // namespace gpupool::client::api\n"]
    lines += [f'#pragma pop_macro("{name}")' for name in bases]
    return "\n".join(lines) + "\n"


def exports(table: Table) -> str:
    """The exported functions: no exception leaves one of them, and each is one call of its namesake."""
    lines = [BANNER, '#include "client/api/guard.h"', '#include "client/process/export.h"']
    lines += ['#include "generated/client_api.h"\n']
    lines += [f"#undef {name}" for name in _bases(table)]
    lines += ["", 'extern "C" {\n']
    for e in _served(table):
        call = f"api::{e.name}({', '.join(p.name for p in e.prototype.parameters)})"
        lines += [
            f"GPUPOOL_EXPORT CUresult CUDAAPI {e.name}{e.prototype.declaration} {{",
            f"  return gpupool::client::guarded([&] {{ return gpupool::client::{call}; }});",
            "}",
        ]
    lines.append('}  // extern "C"')
    return "\n".join(lines) + "\n"


def _alias(e: Export) -> list[str]:
    per_thread = e.name.endswith(("_ptsz", "_ptds"))
    lines = []
    arguments = []
    for p in e.prototype.parameters:
        if per_thread and p.type == "CUstream":
            arguments.append(f"client::per_thread({p.name})")
        elif per_thread and p.type == "const CUlaunchConfig *":
            lines.append(f"  if ({p.name} == nullptr) return CUDA_ERROR_INVALID_VALUE;")
            lines.append(f"  CUlaunchConfig changed = *{p.name};")
            lines.append("  changed.hStream = client::per_thread(changed.hStream);")
            arguments.append("&changed")
        else:
            arguments.append(p.name)
    head = f"CUresult CUDAAPI {e.name}{e.prototype.declaration} {{"
    return [head, *lines, f"  return api::{e.alias}({', '.join(arguments)});", "}", ""]


def stubs(table: Table) -> str:
    """Functions whose body follows from the table."""
    lines = [
        BANNER,
        "#include <cuda.h>\n",
        "#include <cstring>",
        "#include <type_traits>\n",
        '#include "client/call/call.h"',
        '#include "client/objects/plain_objects.h"',
    ]
    lines += ['#include "generated/client_api.h"', '#include "generated/messages.h"\n']
    lines += [f"#undef {name}" for name in _bases(table)]
    lines += ["", "namespace gpupool::client::api {\n"]
    for e in sorted(table.exports.values(), key=lambda e: e.name):
        if e.alias:
            lines += _alias(e)
        elif e.message is not None and not e.custom_client:
            check_stub(e)
            lines += stub(e, table)
    lines.append("}  // namespace gpupool::client::api")
    return "\n".join(lines) + "\n"


def refusals(table: Table) -> str:
    """Exports that are not supported. No cuda.h here: the C ABI lets a function ignore its arguments."""
    lines = [
        BANNER,
        '#include "client/process/export.h"',
        '#include "client/call/refuse.h"\n',
        'extern "C" {',
    ]
    for e in sorted(table.exports.values(), key=lambda e: e.name):
        if e.kind == "unsupported":
            lines.append(
                f'GPUPOOL_EXPORT int {e.name}() {{ return gpupool::client::refuse("{e.name}", "{e.reason}"); }}'
            )
    lines.append('}  // extern "C"')
    return "\n".join(lines) + "\n"


def proc_addresses(table: Table) -> str:
    """The rows of cuGetProcAddress, sorted by (base, suffix, version)."""
    lines = [BANNER, '#include "client/api/proc_address.h"\n', 'extern "C" {']
    lines += [f"int {name}();" for name in sorted(table.exports)]
    lines += ['}  // extern "C"\n', "namespace gpupool::client {\n", "const ProcAddress proc_addresses[] = {"]
    for p in sorted(table.header.proc_addresses):
        per_thread = "true" if p.suffix else "false"
        lines.append(
            f'    {{"{p.base}", {per_thread}, {p.version}, reinterpret_cast<void*>(&::{p.export})}},'
        )
    lines += [
        "};",
        "const std::size_t proc_address_count = sizeof(proc_addresses) / sizeof(proc_addresses[0]);\n",
    ]
    lines.append("}  // namespace gpupool::client")
    return "\n".join(lines) + "\n"


def errors(table: Table) -> str:
    """CUresult values with names, sorted by value."""
    lines = [
        BANNER,
        '#include "client/process/error_names.h"\n',
        "namespace gpupool::client {\n",
        "const ErrorName error_names[] = {",
    ]
    for name, value in sorted(table.header.errors.items(), key=lambda item: item[1]):
        lines.append(f'    {{{value}, "{name}", "{error_text(name)}"}},')
    lines += ["};", "const std::size_t error_name_count = sizeof(error_names) / sizeof(error_names[0]);\n"]
    lines.append(f"const int header_version = {table.header.version};\n\n}}  // namespace gpupool::client")
    return "\n".join(lines) + "\n"
