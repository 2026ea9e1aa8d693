"""`python -m jupyter_gpupool.lab`."""

from __future__ import annotations

import sys

from jupyter_gpupool.lab.launcher import main

if __name__ == "__main__":
    sys.exit(main())
