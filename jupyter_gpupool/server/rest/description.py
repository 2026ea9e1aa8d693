"""The description of the REST interface, as the build has made it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("openapi.json")


def description() -> bytes:
    """OpenAPI 3.1, as JSON.

    Raises:
        FileNotFoundError: the front end was not built; ``jlpm generate`` makes the file.
    """
    return FILE.read_bytes()
