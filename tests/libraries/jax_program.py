"""What unmodified JAX computes on the GPU, beside the CPU. Prints JSON: ``errors``, by the name of a check.

Run by an interpreter with JAX; imports nothing of this project. Both sides are JAX's own, from the same values and seeds. An
error is relative to the largest number of the CPU's results; what fails has JAX's words in its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax.config.update("jax_default_matmul_precision", "highest")  # TF32 is JAX's own choice on GPUs

GENERATOR = np.random.default_rng(0)
GPU, CPU = jax.devices("cuda")[0], jax.devices("cpu")[0]
Check = tuple[str, Callable[..., Any], tuple[Any, ...]]


def draw(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return GENERATOR.standard_normal(shape).astype(dtype)


def weights(*shape: int) -> np.ndarray[Any, Any]:
    return draw(*shape) / np.float32(np.sqrt(np.prod(shape[:-1])))


def differentiated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The result, and the gradients of a sum that weighs each element of it."""

    def both(*arguments: Any) -> Any:
        def total(*inputs: Any) -> Any:
            result = function(*inputs)
            return jnp.sum(result * jnp.cos(result))

        return function(*arguments), jax.grad(total, tuple(range(len(arguments))))(*arguments)

    return both


def products() -> Iterator[Check]:
    a, b, words = draw(70, 90), draw(90, 50), draw(4, 9, 12)
    for name in ("float32", "float16", "bfloat16"):
        cast = jnp.dtype(name)
        yield f"matmul {name}", lambda x, y, cast=cast: x.astype(cast) @ y.astype(cast), (a, b)
    yield "matmul complex64", lambda x, y: lax.complex(x, x) @ lax.complex(y, -y), (a, b)
    yield "matmul of batches", differentiated(jnp.matmul), (words, draw(4, 12, 7))
    yield "einsum", lambda x, y: jnp.einsum("bti,ij,btj->bt", x, y, x), (words, draw(12, 12))
    yield "bias and activation", differentiated(lambda x, y, c: jax.nn.gelu(x @ y + c)), (a, b, draw(50))


def images() -> Iterator[Check]:
    image, filters, volume = draw(3, 17, 19, 8), draw(3, 3, 8, 16), draw(2, 7, 8, 9, 3)
    layout = ("NHWC", "HWIO", "NHWC")

    def convolved(**options: Any) -> Callable[..., Any]:
        chosen = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": layout, **options}
        return lambda x, w: lax.conv_general_dilated(x, w, **chosen)

    yield "convolution", differentiated(convolved()), (image, filters)
    yield "convolution with strides", differentiated(convolved(window_strides=(2, 2))), (image, filters)
    yield "convolution dilated", differentiated(convolved(rhs_dilation=(2, 2))), (image, filters)
    groups = convolved(feature_group_count=4)
    yield "convolution of groups", differentiated(groups), (image, draw(3, 3, 2, 16))
    in_space = lambda x, w: lax.conv_general_dilated(  # noqa: E731
        x, w, (1, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC")
    )
    yield "convolution of volumes", in_space, (volume, draw(3, 3, 3, 3, 4))
    largest = lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")  # noqa: E731
    yield "max pool", differentiated(largest), (image,)
    means = lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") / 9  # noqa: E731
    yield "average pool", differentiated(means), (image,)
    yield "resize", lambda x: jax.image.resize(x, (3, 30, 25, 8), "bilinear"), (image,)


def elements() -> Iterator[Check]:
    x, positive = draw(40, 33), np.abs(draw(40, 33)) + np.float32(0.1)
    for name in ("exp", "sin", "tanh", "arctan", "sinh", "expm1", "round", "cbrt"):
        yield name, differentiated(getattr(jnp, name)), (x,)
    for name in ("log", "sqrt", "log1p", "reciprocal"):
        yield name, differentiated(getattr(jnp, name)), (positive,)
    yield "erf", jax.scipy.special.erf, (x,)
    yield "lgamma", jax.scipy.special.gammaln, (positive,)
    yield "softmax", differentiated(jax.nn.softmax), (x,)
    yield "reductions", lambda x: (x.sum(), x.mean(0), x.max(1), x.std(), x.argmin(1)), (x,)
    yield "cumulative sums", lambda x: (jnp.cumsum(x, 0), jnp.cumprod(x, 1)), (x,)
    yield "sort", lambda x: (jnp.sort(x, 0), jnp.argsort(x, 1), lax.top_k(x, 5)), (x,)
    yield "where and gather", lambda x: (jnp.where(x > 0, x, -1), x[jnp.array([3, 1, 3])]), (x,)
    yield "scatter", lambda x: jnp.zeros((7, 33)).at[jnp.arange(40) % 7].add(x), (x,)
    yield "histogram", lambda x: jnp.bincount((jnp.abs(x) * 3).astype(int).ravel(), length=12), (x,)
    yield "random numbers of a seed", lambda: jax.random.normal(jax.random.key(3), (1000,)), ()
    yield "permutation", lambda: jax.random.permutation(jax.random.key(4), 500), ()


def algebra() -> Iterator[Check]:
    a = draw(24, 24)
    positive, batch = a @ a.T + 24 * np.eye(24, dtype=np.float32), draw(5, 6, 6)
    yield "solve", jnp.linalg.solve, (positive, a)
    yield "inverse of batches", jnp.linalg.inv, (batch + 4 * np.eye(6, dtype=np.float32),)
    yield "cholesky", differentiated(jnp.linalg.cholesky), (positive,)
    triangular = lambda x, y: jax.scipy.linalg.solve_triangular(x, y, lower=True)  # noqa: E731
    yield "triangular solve", triangular, (np.tril(positive), a)
    yield "determinant", lambda x: jnp.linalg.slogdet(x), (positive,)
    yield "singular values", lambda x: jnp.linalg.svd(x, compute_uv=False), (a,)
    yield "eigenvalues of a symmetric matrix", jnp.linalg.eigvalsh, (positive,)
    yield "eigenvalues", lambda x: jnp.sort(jnp.abs(jnp.linalg.eigvals(x))), (a,)
    yield "qr", lambda x: jnp.abs(jnp.linalg.qr(x)[1]), (a,)
    yield "lu", lambda x: jax.scipy.linalg.lu(x), (a,)
    yield "least squares", lambda x, y: jnp.linalg.lstsq(x, y)[0], (draw(30, 8), draw(30, 2))
    yield "expm", jax.scipy.linalg.expm, (a / 10,)
    yield "fft", lambda x: jnp.fft.fft2(x), (a,)
    yield "fft of real numbers", lambda x: (jnp.fft.rfft(x), jnp.fft.irfft(jnp.fft.rfft(x))), (a,)


def control() -> Iterator[Check]:
    a = draw(12, 12)
    yield "scan", lambda x: lax.scan(lambda c, r: (c * 0.9 + r, jnp.sin(c)), jnp.zeros(12), x), (a,)
    step = lambda c: (c[0] + 1, c[1] @ c[1] / 20)  # noqa: E731
    yield "while loop", lambda x: lax.while_loop(lambda c: c[0] < 5, step, (0, x)), (a,)
    yield "cond", lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), (a,)
    yield "vmap of a solve", jax.vmap(jnp.linalg.solve), (draw(3, 5, 5), draw(3, 5, 5))
    yield "second derivatives", jax.hessian(lambda x: jnp.sum(jnp.tanh(x) ** 3)), (draw(9),)
    yield "checkpointed", jax.grad(jax.checkpoint(lambda x: jnp.sum(jnp.sin(jnp.sin(x @ x))))), (a,)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1))


def perceptron(p: Any, batch: Any) -> Any:
    return cross_entropy(jnp.tanh(batch[0] @ p["in"] + p["bias"]) @ p["out"], batch[1])


def convolutional(p: Any, batch: Any) -> Any:
    x = batch[0]
    for name in ("first", "second"):
        x = jax.nn.relu(
            lax.conv_general_dilated(x, p[name], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        )
    return cross_entropy(x.mean((1, 2)) @ p["out"], batch[1])


def transformer(p: Any, batch: Any) -> Any:
    def normal(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    tokens = batch[0]
    x = p["words"][tokens] + p["places"]
    for layer in p["layers"]:
        q, k, v = jnp.moveaxis((normal(x) @ layer["qkv"]).reshape(*x.shape[:2], 3, 4, -1), 2, 0)
        x += jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ layer["out"]
        x += jax.nn.gelu(normal(x) @ layer["up"]) @ layer["down"]
    return cross_entropy(x @ p["words"].T, batch[1])


def losses(loss: Callable[..., Any], start: Any, batches: list[Any], device: Any) -> Any:
    """Adam for some steps."""
    with jax.default_device(device):

        @jax.jit
        def step(state: Any, batch: Any) -> Any:
            p, m, v, count = state
            value, g = jax.value_and_grad(loss)(p, batch)
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
            v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
            count += 1
            p = jax.tree.map(
                lambda p, m, v: (
                    p - 0.003 * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)
                ),
                p,
                m,
                v,
            )
            return value, (p, m, v, count)

        zeros = jax.tree.map(np.zeros_like, start)
        state = jax.device_put((start, zeros, zeros, np.float32(0)), device)
        values = []
        for batch in batches:
            value, state = step(state, jax.device_put(batch, device))
            values.append(float(value))
        return np.array(values)


def trained() -> Iterator[tuple[str, Any, Any, list[Any]]]:
    labels = [GENERATOR.integers(0, 10, 16) for _ in range(10)]
    flat = {"in": weights(64, 96), "bias": np.zeros(96, np.float32), "out": weights(96, 10)}
    yield "train a perceptron", perceptron, flat, [(draw(16, 64), label) for label in labels]
    deep = {"first": weights(3, 3, 3, 12), "second": weights(3, 3, 12, 24), "out": weights(24, 10)}
    yield (
        "train a convolutional network",
        convolutional,
        deep,
        [(draw(16, 16, 16, 3), label) for label in labels],
    )
    width, length, words = 32, 24, 40
    layer = lambda: {  # noqa: E731
        "qkv": weights(width, 3 * width),
        "out": weights(width, width),
        "up": weights(width, 4 * width),
        "down": weights(4 * width, width),
    }
    start = {
        "words": draw(words, width),
        "places": draw(length, width),
        "layers": [layer(), layer()],
    }
    texts = [GENERATOR.integers(0, words, (4, length + 1)) for _ in range(10)]
    yield "train a transformer", transformer, start, [(text[:, :-1], text[:, 1:]) for text in texts]


def apart(on_gpu: Any, on_cpu: Any) -> float:
    worst = 0.0
    for one, other in zip(jax.tree.leaves(on_gpu), jax.tree.leaves(on_cpu), strict=True):
        wide = np.complex128 if np.iscomplexobj(other) else np.float64
        a, b = np.asarray(one).astype(wide), np.asarray(other).astype(wide)
        worst = max(worst, float(np.max(np.abs(a - b)) / (np.max(np.abs(b)) + 1e-30)))
    return worst


def on(device: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    with jax.default_device(device):
        return jax.device_get(jax.jit(function)(*jax.device_put(arguments, device)))


def main() -> None:
    errors: dict[str, Any] = {}
    for group in (products, images, elements, algebra, control):
        for name, function, arguments in group():
            try:
                errors[name] = apart(on(GPU, function, arguments), on(CPU, function, arguments))
            except Exception as error:
                errors[name] = f"{type(error).__name__}: {error}"[:500]
    for name, loss, start, batches in trained():
        errors[name] = apart(losses(loss, start, batches, GPU), losses(loss, start, batches, CPU))
    try:
        with jax.default_device(GPU):
            jnp.ones((1 << 30,)).block_until_ready()
        gibibytes = "room"
    except jax.errors.JaxRuntimeError as error:
        gibibytes = "exhausted" if "RESOURCE_EXHAUSTED" in str(error) else str(error)[:500]
    print(json.dumps({"version": jax.__version__, "errors": errors, "four gibibytes": gibibytes}))


if __name__ == "__main__":
    main()
