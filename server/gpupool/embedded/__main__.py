"""``python -m gpupool.embedded DESCRIPTOR OPTIONS``: a keeper; started by :mod:`gpupool.embedded.join` only."""

from __future__ import annotations

import asyncio
import sys

from gpupool.embedded.keeper import keep
from gpupool.embedded.options import EmbeddedOptions

if __name__ == "__main__":
    asyncio.run(keep(int(sys.argv[1]), EmbeddedOptions.from_json(sys.argv[2])))
