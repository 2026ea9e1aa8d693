"""The sentences of CUresult numbers, for every library of ours that answers cuGetErrorString."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path


@functools.cache
def _known() -> dict[str, str]:
    return tomllib.loads((Path(__file__).with_name("error_texts.toml")).read_text(encoding="utf-8"))


def error_text(name: str) -> str:
    """What is said of an error; CUDA_ERROR_ARRAY_IS_MAPPED → array is mapped where nothing else is known."""
    return _known().get(name) or name.removeprefix("CUDA_ERROR_").replace("_", " ").lower()
