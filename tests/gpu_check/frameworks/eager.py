"""Eager PyTorch: a perceptron, an image network and a transformer learn for some steps."""

from __future__ import annotations

import json
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

from tests.conformance.torch_train_program import MODELS, train


def main() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.allow_tf32 = False
    found = {name: train(name, os.environ.get("GPU_CHECK_DEVICE", "cuda")) for name in MODELS}
    figures = {f"{name}, {key}": found[name][key] for name in MODELS for key in ("first_s", "step_ms")}
    losses = {name: found[name]["losses"] for name in MODELS}
    print(json.dumps({"result": losses, "figures": figures, "version": torch.__version__}))


if __name__ == "__main__":
    main()
