"""`gpupool version`."""

from __future__ import annotations

from gpupool.cli.common import show
from gpupool.cli.common.options import Json


def version(json: Json = False) -> None:
    """Print the version.

    \b
    Examples:
      gpupool version --json
    """
    from gpupool.client.agreement import own_version

    number = own_version()
    if json:
        show.as_json({"version": number})
    else:
        print(number)
