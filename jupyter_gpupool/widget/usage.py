"""The widget's Python half: it tells the page which kernel it is about, and nothing else.

Live numbers travel from the server to the page, never through the kernel: a kernel that
computes cannot answer, and each message of it would count as activity and keep an idle GPU.
"""

from __future__ import annotations

import os
import time
from html import escape
from pathlib import Path
from typing import Any, Final

import anywidget
import traitlets

from jupyter_gpupool.kernel import device
from jupyter_gpupool.kernel.broker import connect
from jupyter_gpupool.kernel.errors import GpuError
from jupyter_gpupool.kernel.tables import kernel_lines

#: What `jlpm build` makes of labextension/src/widget.
STATIC: Final = Path(__file__).parent / "static"

#: Our JupyterLab extension shows this in place of the widget: a saved notebook has no widget any more.
MIME_TYPE: Final = "application/vnd.gpupool.usage+json"


def built(name: str) -> str:
    """Return the text of a file that the front end's build makes.

    Raises:
        ImportError: the front end has not been built.
    """
    try:
        return (STATIC / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ImportError(f"The widget is not built: {STATIC / name} is missing. Run `make build`.") from None


class GpuUsage(anywidget.AnyWidget):
    """Bars, a chart of the last five minutes, the state, and buttons: Keep, Detach, Attach, Undo.

    Shows the kernel that it is made in. In a page without the Jupyter server's API (a saved
    notebook, VS Code) the last text stands in its place, with a button that asks the kernel for another.
    """

    _esm = built("usage.js")
    _css = built("usage.css")

    #: The kernel whose use is shown.
    kernel_id = traitlets.Unicode("").tag(sync=True)
    #: What is shown where the page cannot ask the server.
    summary = traitlets.Unicode("").tag(sync=True)
    #: When that was true, Unix time in seconds.
    taken_at = traitlets.Float(0.0).tag(sync=True)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            kernel_id=os.environ.get("GPUPOOL_KERNEL_ID", ""),
            summary=_summary(),
            taken_at=time.time(),
            **kwargs,
        )
        self.on_msg(self._asked)

    def refresh(self) -> None:
        """Takes the text anew; pages that cannot ask the server show it."""
        with self.hold_sync():
            self.summary = _summary()
            self.taken_at = time.time()

    def _asked(self, _widget: object, content: object, _buffers: object) -> None:
        """A page's Refresh button; never a timer, for messages of a kernel keep an idle GPU."""
        if isinstance(content, dict) and content.get("type") == "refresh":
            self.refresh()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget; its last text for pages that cannot run it, and for a notebook that is opened again."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
        data = {
            **data,
            MIME_TYPE: {"summary": self.summary, "taken_at": self.taken_at},
            "text/plain": f"GPU of this kernel\n{self.summary}",
            "text/html": f"<pre>GPU of this kernel\n{escape(self.summary)}</pre>",
        }
        return (data, *rest) if rest else data


def gpupool_widget() -> GpuUsage:
    """The widget of this kernel; the same as ``GpuUsage()``."""
    return GpuUsage()


def _summary() -> str:
    try:
        return "\n".join(kernel_lines(connect().call("GET", "self/status"), reading=device.read()))
    except GpuError as error:
        return str(error)
