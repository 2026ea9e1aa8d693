"""C++ of the worker: handles and devices inside structs, from the client's names to the driver's and back."""

from __future__ import annotations

from emit_messages import BANNER
from structs import Struct, StructField
from table import Table


def _guard(f: StructField, kind: str = "") -> str:
    conditions = [f.when] if f.when else []
    if f.optional:
        conditions = [f"({condition})" for condition in conditions]
        conditions.append(f"wire_value(s.{f.path}) != 0")
    return f"if ({' && '.join(conditions)}) " if conditions else ""


def _translate(struct: Struct) -> list[str]:
    lines = [
        f"/// Checks a {struct.name} from the wire and gives it the driver's handles.",
        f"inline CUresult translate_in([[maybe_unused]] Call& x, [[maybe_unused]] {struct.name}& s) {{",
    ]
    if struct.valid:
        lines.append(f"  if (!({struct.valid})) return CUDA_ERROR_INVALID_VALUE;")
    lines += [f"  if (s.{path} != nullptr) return CUDA_ERROR_INVALID_VALUE;" for path in struct.null]
    for f in struct.handles:
        lines.append(f"  {_guard(f)}{{")
        lines.append(
            f"    if (!x.handles.find(wire::Kind::{f.kind}, wire_value(s.{f.path}), s.{f.path}))"
            " return CUDA_ERROR_INVALID_HANDLE;"
        )
        lines.append("  }")
    for f in struct.devices:
        lines += [
            f"  {_guard(f)}{{",
            "    CUdevice device = 0;",
            f"    if (!x.device(s.{f.path}, device)) return CUDA_ERROR_INVALID_DEVICE;",
            f"    s.{f.path} = device;",
            "  }",
        ]
    lines += ["  return CUDA_SUCCESS;", "}", ""]
    lines += [
        f"/// Gives a {struct.name} of the driver the client's names; what has none becomes null.",
        f"inline void translate_out([[maybe_unused]] const Call& x, [[maybe_unused]] {struct.name}& s) {{",
    ]
    for f in struct.handles:
        guard = f"if ({f.when}) " if f.when else ""
        lines.append(
            f"  {guard}set_wire_value(s.{f.path}, x.handles.name_of(wire::Kind::{f.kind}, s.{f.path}));"
        )
    for f in struct.devices:
        guard = f"if ({f.when}) " if f.when else ""
        lines.append(f"  {guard}s.{f.path} = x.ordinal(s.{f.path});")
    lines += ["}", ""]
    return lines


def structs(table: Table) -> str:
    """Overloads of translate_in and translate_out."""
    lines = [
        BANNER,
        "#pragma once\n",
        "#include <cuda.h>\n",
        '#include "worker/conversation/call.h"',
        '#include "worker/objects/wire_value.h"\n',
    ]
    lines += ["namespace gpupool::worker {\n"]
    for struct in table.structs.values():
        lines += _translate(struct)
    return "\n".join([*lines, "}  // namespace gpupool::worker"]) + "\n"
