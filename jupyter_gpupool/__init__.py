"""GPUs of a pool for Jupyter kernels: ``%%gpu 0.2`` above a cell attaches a share.

This package is imported in two places: in the Jupyter server (``jupyter_gpupool.server.extension``)
and in kernels (``jupyter_gpupool.kernel``). Importing it imports neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_gpupool.widget import GpuUsage

__all__ = ["GpuUsage", "load_ipython_extension", "unload_ipython_extension"]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Called by Jupyter Server to find the extension."""
    from jupyter_gpupool.server.extension import GpuPoolExtension

    return [{"module": "jupyter_gpupool", "app": GpuPoolExtension}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Called by JupyterLab to find the front end; the folder is made by the front-end build."""
    return [{"src": "labextension", "dest": "jupyter-gpupool"}]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """``%load_ext jupyter_gpupool``: for kernels into which it was not loaded at their start."""
    from jupyter_gpupool.kernel import load_ipython_extension as load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Ends what the magics hold and takes them out of the shell, as ``%unload_ext jupyter_gpupool`` does."""
    from jupyter_gpupool.kernel import unload_ipython_extension as unload

    unload(shell)


def __getattr__(name: str) -> Any:
    # The widget needs anywidget, which a kernel that only computes may lack.
    if name == "GpuUsage":
        from jupyter_gpupool.widget import GpuUsage

        return GpuUsage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
