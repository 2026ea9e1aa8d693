"""The pool's contract, `gpupool.v1`: messages in `pool_pb2`, stubs and servicers in `pool_pb2_grpc`.

The two modules are made from `gpupool/v1/pool.proto` by `python -m gpupool.proto.generate`. They are
imported on first use, so that the generator itself runs before they exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from gpupool.proto.gpupool.v1 import pool_pb2, pool_pb2_grpc

__all__ = ["pool_pb2", "pool_pb2_grpc"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return import_module(f"{__name__}.gpupool.v1.{name}")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error}. If the module is not generated yet, run: python -m gpupool.proto.generate"
        ) from error
