"""JAX: a perceptron learns for twenty steps, compiled by XLA."""

from __future__ import annotations

import json
import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

#: How long each way of waiting is measured.
SECONDS = 1.0


def main() -> None:
    wanted = "cpu" if os.environ.get("GPU_CHECK_DEVICE") == "cpu" else "gpu"
    if jax.default_backend() != wanted:
        raise SystemExit(f"JAX computes on {jax.default_backend()}, and not on {wanted}")
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (256, 32))
    y = jnp.sin(x).sum(1, keepdims=True)
    weights = [
        0.1 * jax.random.normal(keys[1], (32, 64)),
        jnp.zeros(64),
        0.1 * jax.random.normal(keys[2], (64, 1)),
        jnp.zeros(1),
    ]

    def loss_of(weights):  # type: ignore[no-untyped-def]
        hidden = jnp.tanh(jnp.dot(x, weights[0], precision="highest") + weights[1])
        return jnp.mean((jnp.dot(hidden, weights[2], precision="highest") + weights[3] - y) ** 2)

    @jax.jit
    def step(weights):  # type: ignore[no-untyped-def]
        loss, gradients = jax.value_and_grad(loss_of)(weights)
        return loss, [w - 0.05 * g for w, g in zip(weights, gradients, strict=True)]

    losses = []
    began = time.monotonic()
    first = 0.0
    for number in range(20):
        loss, weights = step(weights)
        losses.append(float(loss))
        if number == 0:
            first = time.monotonic() - began
    figures = {"first_s": round(first, 2)}
    for name, wait in (("step_ms, each awaited", True), ("step_ms, awaited at the end", False)):
        began, count = time.monotonic(), 0
        while time.monotonic() - began < SECONDS:
            for _ in range(20):
                loss, weights = step(weights)
                if wait:
                    loss.block_until_ready()
            count += 20
            loss.block_until_ready()
        figures[name] = round((time.monotonic() - began) / count * 1e3, 4)
    print(json.dumps({"result": losses, "figures": figures, "version": jax.__version__}))


if __name__ == "__main__":
    main()
