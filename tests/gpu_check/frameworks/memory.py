"""PyTorch takes memory until there is none: how much it was told, how much it had, and what the error says."""

from __future__ import annotations

import json

import torch

PIECE = 256 << 20


def main() -> None:
    free, total = torch.cuda.mem_get_info()
    held: list[torch.Tensor] = []
    said = ""
    while not said:
        try:
            held.append(torch.empty(PIECE, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError as error:
            said = str(error)
    pieces = len(held)
    held.clear()
    torch.cuda.empty_cache()
    # It goes on: what was freed can be had again.
    again = torch.ones(PIECE // 4, device="cuda").sum().item() == PIECE // 4
    print(
        json.dumps(
            {
                "result": {"again": again},
                "figures": {
                    "total_mib": total >> 20,
                    "free_mib": free >> 20,
                    "taken_mib": pieces * (PIECE >> 20),
                },
                "said": said[:600],
                "version": torch.__version__,
            }
        )
    )


if __name__ == "__main__":
    main()
