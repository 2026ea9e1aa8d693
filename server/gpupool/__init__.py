"""A pool of GPUs: server, node agent, client library and command line.

For programs: ``with gpupool.attach(0.2):`` and ``@gpupool.gpu(0.2)``; ``gpupool.reset()`` when the GPU session failed.

Importing this package imports nothing else; each part is imported by its own name
(``gpupool.client.pool``, ``gpupool.node.agent``, …) and pays for its own dependencies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpupool.client.attachment import Attachment, attach, gpu, reset
    from gpupool.client.lender import AttachError, prepare

__all__ = ["AttachError", "Attachment", "attach", "gpu", "prepare", "reset"]


def __getattr__(name: str) -> Any:
    if name in ("Attachment", "attach", "gpu", "reset"):
        from gpupool.client import attachment

        return getattr(attachment, name)
    if name in ("AttachError", "prepare"):
        from gpupool.client import lender

        return getattr(lender, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
