"""The types of the page, from the table: ``python -m gpupool.request.typescript FILE``.

Runs before anything of the front end is compiled or tested, with Python's standard library alone. The file is never
committed, and is written only where something changed, so that nothing is built again for nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from gpupool.request.forms import schema
from gpupool.request.gpu_request import GpuRequest
from gpupool.request.option import Place
from gpupool.request.values import Schema

_HEAD = "// Made from server/gpupool/request by `jlpm generate`: change it there, not here."
_PLAIN = {"integer": "number", "number": "number", "boolean": "boolean", "string": "string"}


def typescript(record: type[GpuRequest] = GpuRequest) -> str:
    """The text of the module."""
    lines = [_HEAD, "", "/** One request for GPUs, as it travels. */", "export interface IGpuRequest {"]
    for key, described in schema(Place.BODY, record).items():
        lines += [f"  /** {described['description']} */", f"  {key}?: {_type(described)};"]
    options = json.dumps(schema(Place.PAGE, record), indent=2, ensure_ascii=False)
    lines += [
        "}",
        "",
        "/** What commands may say of a request: JSON Schema of each property. */",
        f"export const REQUEST_OPTIONS = {options} as const;",
    ]
    return "\n".join(lines) + "\n"


def write(path: Path, record: type[GpuRequest] = GpuRequest) -> bool:
    """Whether the file had to be written."""
    text = typescript(record)
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    path.write_text(text, encoding="utf-8")
    return True


def _type(described: Schema) -> str:
    if "enum" in described:
        return " | ".join(f"'{name}'" for name in described["enum"])
    if described["type"] == "array":
        items: dict[str, Any] = described["items"]
        return f"{_type(items)}[]"
    return _PLAIN[described["type"]]


if __name__ == "__main__":
    write(Path(sys.argv[1]))
