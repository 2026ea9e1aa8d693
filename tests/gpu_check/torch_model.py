"""A PyTorch model that says what it computes, as often as a line comes; its state is on the device in between."""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys

import torch


def main() -> int:
    runtime = ctypes.CDLL("libcuda.so.1")
    torch.manual_seed(7)
    model = torch.nn.Sequential(
        torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024), torch.nn.LayerNorm(1024)
    ).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = torch.randn(256, 1024, device="cuda")
    torch.use_deterministic_algorithms(True, warn_only=True)
    for _ in range(5):
        optimizer.zero_grad()
        (model(data) - data).square().mean().backward()
        optimizer.step()
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        if line.strip() == "detach":
            runtime.gpupool_drain(5000)
            runtime.gpupool_detach()
            sys.stdout.write("{}\n")
        else:
            if hasattr(runtime, "gpupool_attach"):
                assert runtime.gpupool_attach() == 0
            with torch.no_grad():
                outputs = model(data).cpu().numpy().tobytes()
            moments = b"".join(state["exp_avg"].cpu().numpy().tobytes() for state in optimizer.state.values())
            digest = hashlib.sha256(outputs + moments).hexdigest()
            sys.stdout.write(
                json.dumps({"digest": digest, "mib": torch.cuda.memory_allocated() >> 20}) + "\n"
            )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
