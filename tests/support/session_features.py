"""What the session machine may expect of the product. A constant is changed together with the product."""

from __future__ import annotations

from typing import Final

#: A program learns of a new size of its share while it is attached, not only with its next lease.
RESIZE_IS_TOLD: Final = False
