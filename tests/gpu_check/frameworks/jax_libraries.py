"""Libraries that people build on JAX: each makes a few steps.

`JAX_PLATFORMS=cpu GPU_CHECK_DEVICE=cpu` tries the program itself.
"""

from __future__ import annotations

import json
import os
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

from tests.gpu_check.each_library import numbers, tried

STEPS = 4


def flax() -> list[float]:
    """A convolutional network with optax's optimiser."""
    import optax
    from flax import linen

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            x = linen.relu(linen.Conv(8, (3, 3))(x))
            x = linen.avg_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
            return linen.Dense(4)(linen.LayerNorm()(x))

    keys = jax.random.split(jax.random.key(3), 2)
    x = jax.random.normal(keys[0], (16, 8, 8, 3))
    y = jnp.arange(16) % 4
    network = Network()
    weights = network.init(keys[1], x)
    optimizer = optax.adam(1e-3)
    state = optimizer.init(weights)

    @jax.jit
    def step(weights: Any, state: Any) -> Any:
        def of(weights: Any) -> Any:
            return optax.softmax_cross_entropy_with_integer_labels(network.apply(weights, x), y).mean()

        loss, gradients = jax.value_and_grad(of)(weights)
        updates, state = optimizer.update(gradients, state)
        return loss, optax.apply_updates(weights, updates), state

    losses = []
    for _ in range(STEPS):
        loss, weights, state = step(weights, state)
        losses.append(loss)
    return numbers(*losses)


def equinox() -> list[float]:
    """Equinox with diffrax: a differential equation, in double precision."""
    import diffrax
    import equinox as library

    network = library.nn.MLP(2, 2, 16, 1, key=jax.random.key(1))

    @library.filter_jit
    def end(network: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, args: network(y))
        return diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.1, jnp.array([1.0, -1.0])).ys[-1]

    return numbers(*end(network))


def numpyro() -> list[float]:
    """A chain of NUTS."""
    import numpyro as library
    from numpyro import distributions
    from numpyro.infer import MCMC, NUTS

    seen = jnp.linspace(-1, 2, 30)

    def model() -> None:
        mean = library.sample("mean", distributions.Normal(0, 3))
        spread = library.sample("spread", distributions.HalfNormal(2))
        library.sample("seen", distributions.Normal(mean, spread), obs=seen)

    chain = MCMC(NUTS(model), num_warmup=50, num_samples=50, progress_bar=False)
    chain.run(jax.random.key(5))
    return [float(abs(float(chain.get_samples()["mean"].mean()) - 0.5) < 0.3)]


PARTS = (flax, equinox, numpyro)


def main() -> None:
    wanted = "cpu" if os.environ.get("GPU_CHECK_DEVICE") == "cpu" else "gpu"
    if jax.default_backend() != wanted:
        raise SystemExit(f"JAX computes on {jax.default_backend()}, and not on {wanted}")
    print(json.dumps({**tried(PARTS, begin=jax.clear_caches), "version": jax.__version__}))


if __name__ == "__main__":
    main()
