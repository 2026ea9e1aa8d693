"""Text that comes from other people: shown as it is written, never obeyed by a terminal.

Imports nothing but the standard library, for the command line and the pool alike.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# Control characters, invisible format characters (which may turn the direction of a line), line ends.
_ESCAPED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Joiners: parts of words in Persian and Hindi, and of emoji.
_KEPT: Final = frozenset("\u200c\u200d")
#: Short names of kernels, as workers write them.
_KERNEL: Final = re.compile(r"[A-Za-z0-9_.:<>~-]{1,80}")


def kernel_name(text: str) -> str:
    """``text`` if it can be the short name of a kernel; else nothing: the name is only shown."""
    return text if _KERNEL.fullmatch(text) else ""


def printable(text: str) -> str:
    r"""``text`` in one line, with what would steer a terminal written out, such as ``\x1b``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        ascii(c)[1:-1] if unicodedata.category(c) in _ESCAPED and c not in _KEPT else c for c in text
    )
