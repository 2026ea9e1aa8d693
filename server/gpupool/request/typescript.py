"""What the commands of the page may say, from the table: ``python -m gpupool.request.typescript FILE``.

Runs before anything of the front end is compiled or tested, with Python's standard library alone. The file is never
committed, and is written only where something changed, so that nothing is built again for nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gpupool.generated import write_changed
from gpupool.request.forms import schema
from gpupool.request.gpu_request import GpuRequest
from gpupool.request.option import Place

_HEAD = "// Made from server/gpupool/request by `jlpm generate`: change it there, not here."


def typescript(record: type[GpuRequest] = GpuRequest) -> str:
    """The text of the module."""
    options = json.dumps(schema(Place.PAGE, record), indent=2, ensure_ascii=False)
    lines = [
        _HEAD,
        "",
        "/** What commands may say of a request: JSON Schema of each property. */",
        f"export const REQUEST_OPTIONS = {options} as const;",
    ]
    return "\n".join(lines) + "\n"


def write(path: Path, record: type[GpuRequest] = GpuRequest) -> bool:
    """Whether the file had to be written."""
    return write_changed(path, typescript(record))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
