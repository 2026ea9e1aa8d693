"""C++ of the client's exports: stubs, aliases, refusals, and the table of cuGetProcAddress."""

from __future__ import annotations

from emit_messages import BANNER
from emit_stub import check_stub, stub
from table import Export, Table


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
    head = f"GPUPOOL_EXPORT CUresult CUDAAPI {e.name}{e.prototype.declaration} {{"
    return [head, *lines, f"  return {e.alias}({', '.join(arguments)});", "}", ""]


def stubs(table: Table) -> str:
    """Exports whose body follows from the table."""
    lines = [
        BANNER,
        "#include <cuda.h>\n",
        "#include <cstring>",
        "#include <type_traits>\n",
        '#include "client/call.h"',
        '#include "client/plain_objects.h"',
    ]
    lines += ['#include "client/export.h"', '#include "generated/messages.h"\n']
    # cuda.h maps plain names to their newest form; here every name means itself.
    bases = sorted({p.base for p in table.header.proc_addresses})
    lines += [f"#undef {name}" for name in bases]
    lines += ["", "using namespace gpupool;", 'extern "C" {\n']
    # Forms that cuda.h declares only for internal use are declared here.
    for e in table.exports.values():
        if (
            e.alias
            or (e.message and not e.custom_client)
            or any(o.alias == e.name for o in table.exports.values())
        ):
            lines.append(f"CUresult CUDAAPI {e.name}{e.prototype.declaration};")
    lines.append("")
    for e in sorted(table.exports.values(), key=lambda e: e.name):
        if e.alias:
            lines += _alias(e)
        elif e.message is not None and not e.custom_client:
            check_stub(e)
            lines += stub(e, table)
    lines.append('}  // extern "C"')
    return "\n".join(lines) + "\n"


def refusals(table: Table) -> str:
    """Exports that are not supported. No cuda.h here: the C ABI lets a function ignore its arguments."""
    lines = [BANNER, '#include "client/export.h"', '#include "client/refuse.h"\n', 'extern "C" {']
    for e in sorted(table.exports.values(), key=lambda e: e.name):
        if e.kind == "unsupported":
            lines.append(
                f'GPUPOOL_EXPORT int {e.name}() {{ return gpupool::client::refuse("{e.name}", "{e.reason}"); }}'
            )
    lines.append('}  // extern "C"')
    return "\n".join(lines) + "\n"


def proc_addresses(table: Table) -> str:
    """The rows of cuGetProcAddress, sorted by (base, suffix, version)."""
    lines = [BANNER, '#include "client/proc_address.h"\n', 'extern "C" {']
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
        '#include "client/error_names.h"\n',
        "namespace gpupool::client {\n",
        "const ErrorName error_names[] = {",
    ]
    for name, value in sorted(table.header.errors.items(), key=lambda item: item[1]):
        text = name.removeprefix("CUDA_ERROR_").replace("_", " ").lower() if value else "no error"
        lines.append(f'    {{{value}, "{name}", "{text}"}},')
    lines += ["};", "const std::size_t error_name_count = sizeof(error_names) / sizeof(error_names[0]);\n"]
    lines.append(f"const int header_version = {table.header.version};\n\n}}  // namespace gpupool::client")
    return "\n".join(lines) + "\n"
