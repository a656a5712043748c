"""The hosts of morphogenesis in JAX: one host's training and validation as functions, `vmap`ped and compiled.

Runs in a Python that has JAX alone. Reads lines: `check` answers what the steps of the inputs' indices gave,
`run COUNT` the CPU seconds of as many steps more. Inputs are what the benchmark saved with numpy.

    python tests/bench/peers/jax_hosts.py INPUTS_NPZ
"""

# ruff: noqa: ANN001, ANN201 plain array code for another Python

import functools
import json
import os
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import jax.numpy as jnp
import numpy as np

RATE, BETA_1, BETA_2, EPS_ROOT = 0.03, 0.9, 0.999, 1e-16

given = dict(np.load(sys.argv[1]))
train_x, train_y, valid_x, valid_y = (jnp.asarray(given[name]) for name in ("tx", "ty", "vx", "vy"))


def network(weights, x, floor):
    """Logits S C of one network."""
    first, bias, last, last_bias = weights
    return jnp.maximum(x @ first + bias, floor) @ last + last_bias


def term(algorithm, host, z):
    """What joins the host's logits, times alpha: add, multiply, gate."""
    return jnp.where(algorithm == 0, z, jnp.where(algorithm == 1, host * z, z * jax.nn.sigmoid(z)))


def entropy(logits, y):
    """Cross-entropy S."""
    return jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, y[:, None], -1)[:, 0]


def outputs(weights, x, wiring):
    """Logits of the host S C and of its branches K S C."""
    host, branches = weights
    seen = (branches[0] * wiring["seen"], *branches[1:])
    return network(host, x, 0.0), jax.vmap(network, (0, None, 0))(seen, x, wiring["floor"])


def losses(weights, x, y, wiring):
    """Sum of the host's loss and those of isolated branches."""
    host, z = outputs(weights, x, wiring)
    terms = jax.vmap(term, (0, None, 0))(wiring["algorithm"], host, z)
    total = host + jnp.einsum("k,ksc->sc", wiring["alpha"], terms)
    fixed = jax.lax.stop_gradient(host)
    alone = jax.lax.stop_gradient(total) + jax.vmap(term, (0, None, 0))(wiring["algorithm"], fixed, z)
    own = entropy(total, y).mean()
    apart = jax.vmap(entropy, (0, None))(alone, y).mean(-1) * wiring["isolated"]
    return own + apart.sum(), own


def train(state, x, y, wiring):
    """One minibatch of one host."""
    weights, means, squares, age = state
    gradients, loss = jax.grad(losses, has_aux=True)(weights, x, y, wiring)
    age = age + 1
    means = jax.tree.map(lambda m, g: BETA_1 * m + (1 - BETA_1) * g, means, gradients)
    squares = jax.tree.map(lambda v, g: BETA_2 * v + (1 - BETA_2) * g * g, squares, gradients)
    by_1, by_2 = 1 - BETA_1**age, 1 - BETA_2**age
    weights = jax.tree.map(
        lambda w, m, v: w - RATE * (m / by_1) * jax.lax.rsqrt(v / by_2 + EPS_ROOT), weights, means, squares
    )
    host = sum(jnp.sum(g * g) for g in gradients[0])
    branches = sum(jnp.sum(g * g, axis=tuple(range(1, g.ndim))) for g in gradients[1])
    return (weights, means, squares, age), (loss, host, branches)


def validate(weights, wiring):
    """Accuracy, loss, and what each branch contributes, of one host."""
    host, z = outputs(weights, valid_x, wiring)
    terms = jax.vmap(term, (0, None, 0))(wiring["algorithm"], host, z)
    total = host + jnp.einsum("k,ksc->sc", wiring["alpha"], terms)
    accuracy = (total.argmax(-1) == valid_y).mean()
    change = jnp.where(wiring["isolated"], 1.0, -wiring["alpha"])
    other = ((total[None] + change[:, None, None] * terms).argmax(-1) == valid_y).mean(-1)
    return accuracy, entropy(total, valid_y).mean(), (other - accuracy) * jnp.where(wiring["isolated"], 1, -1)


@functools.partial(jax.jit, donate_argnums=0)
def step(state, index, wiring):
    """Two minibatches and a validation of all hosts."""
    for part in index:
        state, norms = jax.vmap(train)(state, train_x[part], train_y[part], wiring)
    return state, (norms, jax.vmap(validate)(state[0], wiring))


def begin():
    """Weights as they were saved, without a past."""
    weights = tuple(
        tuple(jnp.array(given[f"{part}{number}"]) for number in range(4)) for part in ("host", "branch")
    )
    zeros = [jax.tree.map(jnp.zeros_like, weights) for _ in range(2)]
    return (weights, *zeros, jnp.zeros(len(weights[0][0])))


names = ("alpha", "isolated", "algorithm", "seen", "floor")
wired = {name: jnp.asarray(given[name]) for name in names}
random = np.random.default_rng(0)
now = begin()
for line in sys.stdin:
    do, _, count = line.strip().partition(" ")
    if do == "check":
        checked = begin()
        for index in given["index"]:
            checked, ((loss, _, _), measured) = step(checked, tuple(index), wired)
        answer = {"loss": loss.tolist(), "measured": [part.tolist() for part in measured]}
    else:
        began = time.process_time()
        for _ in range(int(count)):
            now, (_, measured) = step(
                now, tuple(random.integers(0, len(train_y), given["index"].shape[1:])), wired
            )
            np.asarray(measured[0])
        answer = {"cpu_s": time.process_time() - began, "jax": jax.__version__}
    print(json.dumps(answer), flush=True)
