"""PPO in PureJaxRL's style: world, policy and optimiser as one compiled loop over updates.

Runs in a Python that has JAX alone. Prints a JSON line: steps, CPU seconds of the second call (the first one
compiles), CPU seconds of compiling, and the return of the last updates, which shows that it learns.

    python tests/bench/peers/jax_ppo.py RECIPE_JSON UPDATES
"""

# ruff: noqa: ANN001, ANN201, ANN202 plain array code for another Python

import json
import os
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import jax.numpy as jnp

HORIZON = 500


def init(key):
    """Orthogonal layers of 64, 64 for the policy and the value."""

    def layers(key, out, gain):
        keys = jax.random.split(key, 3)
        sizes = ((4, 64, 2**0.5), (64, 64, 2**0.5), (64, out, gain))
        return [
            (jax.nn.initializers.orthogonal(scale)(one, (rows, columns)), jnp.zeros(columns))
            for one, (rows, columns, scale) in zip(keys, sizes, strict=True)
        ]

    first, second = jax.random.split(key)
    return layers(first, 2, 0.01), layers(second, 1, 1.0)


def forward(weights, seen):
    """Log-probabilities and values."""

    def run(layers):
        hidden = seen
        for weight, bias in layers[:-1]:
            hidden = jnp.tanh(hidden @ weight + bias)
        return hidden @ layers[-1][0] + layers[-1][1]

    return jax.nn.log_softmax(run(weights[0])), run(weights[1])[..., 0]


def cartpole(state, age, action, fresh):
    """One step of Gymnasium's CartPole-v1 for all envs; those that end begin at `fresh`."""
    x, v, angle, spin = state.T
    force = jnp.where(action == 1, 10.0, -10.0)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    push = (force + 0.05 * spin**2 * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    pull = push - 0.05 * turn * cos / 1.1
    after = jnp.stack([x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * spin, spin + 0.02 * turn], axis=1)
    age = age + 1
    terminated = (jnp.abs(after[:, 0]) > 2.4) | (jnp.abs(after[:, 2]) > 12 * 2 * jnp.pi / 360)
    truncated = (age >= HORIZON) & ~terminated
    ended = terminated | truncated
    begun = jnp.where(ended[:, None], fresh, after)
    return begun, jnp.where(ended, 0, age), after, terminated, ended, age


def trainer(recipe):
    """From a carry to the carry after `updates` updates, and the mean length of episodes in each."""
    envs, steps, minibatches = recipe["envs"], recipe["steps"], recipe["minibatches"]
    gamma, lam, clip = recipe["gamma"], recipe["lam"], recipe["clip"]

    def act(carry, _):
        weights, state, age, key = carry
        key, first, second = jax.random.split(key, 3)
        log_probs, values = forward(weights, state)
        action = jax.random.categorical(first, log_probs)
        taken = jnp.take_along_axis(log_probs, action[:, None], 1)[:, 0]
        fresh = jax.random.uniform(second, (envs, 4), minval=-0.05, maxval=0.05)
        begun, next_age, after, terminated, ended, length = cartpole(state, age, action, fresh)
        following = jnp.where(terminated, 0.0, forward(weights, after)[1])
        row = (state, action, taken, values, following, ended, length)
        return (weights, begun, next_age, key), row

    def loss(weights, rows):
        seen, action, taken, ahead, returns = rows
        log_probs, values = forward(weights, seen)
        ratio = jnp.exp(jnp.take_along_axis(log_probs, action[:, None], 1)[:, 0] - taken)
        ahead = (ahead - ahead.mean()) / (ahead.std() + 1e-8)
        surrogate = -jnp.minimum(ratio * ahead, jnp.clip(ratio, 1 - clip, 1 + clip) * ahead).mean()
        entropy = -(jnp.exp(log_probs) * log_probs).sum(axis=1).mean()
        value = ((values - returns) ** 2).mean()
        return surrogate + recipe["value_coef"] * value - recipe["entropy_coef"] * entropy

    def learn(carry, rows):
        weights, first, second, count = carry
        gradient = jax.grad(loss)(weights, rows)
        norm = jnp.sqrt(sum((one**2).sum() for one in jax.tree.leaves(gradient)))
        scale = jnp.minimum(1.0, recipe["max_grad_norm"] / (norm + 1e-6))
        gradient = jax.tree.map(lambda one: one * scale, gradient)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, second, gradient)
        rate = recipe["learning_rate"]
        weights = jax.tree.map(
            lambda w, m, v: (
                w - rate * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-5)
            ),
            weights, first, second,
        )  # fmt: skip
        return (weights, first, second, count), None

    def update(carry, _):
        (weights, first, second, count), state, age, key = carry
        (_, state, age, key), rows = jax.lax.scan(act, (weights, state, age, key), None, steps)
        seen, action, taken, values, following, ended, length = rows

        def back(running, row):
            value, follows, end = row
            running = 1.0 + gamma * follows - value + gamma * lam * jnp.where(end, 0.0, running)
            return running, running

        _, ahead = jax.lax.scan(back, jnp.zeros(envs), (values, following, ended), reverse=True)
        flat = jax.tree.map(
            lambda one: one.reshape(envs * steps, *one.shape[2:]),
            (seen, action, taken, ahead, ahead + values),
        )

        def epoch(carry, key):
            order = jax.random.permutation(key, envs * steps)
            parts = jax.tree.map(lambda one: one[order].reshape(minibatches, -1, *one.shape[1:]), flat)
            return jax.lax.scan(learn, carry, parts)

        key, *keys = jax.random.split(key, 1 + recipe["epochs"])
        optimised, _ = jax.lax.scan(epoch, (weights, first, second, count), jnp.stack(keys))
        lived = (length * ended).sum() / jnp.maximum(ended.sum(), 1)
        return (optimised, state, age, key), lived

    return update


def main(recipe: dict, updates: int) -> None:
    """Compile, then measure another training from its beginning."""
    update = trainer(recipe)
    run = jax.jit(lambda carry: jax.lax.scan(update, carry, None, updates))

    def begun(seed):
        key = jax.random.key(seed)
        weights = init(key)
        zeros = jax.tree.map(jnp.zeros_like, weights)
        state = jax.random.uniform(key, (recipe["envs"], 4), minval=-0.05, maxval=0.05)
        return (weights, zeros, zeros, jnp.zeros(())), state, jnp.zeros(recipe["envs"], jnp.int32), key

    began = time.process_time()
    jax.block_until_ready(run(begun(0)))
    compiled = time.process_time()
    _, lived = jax.block_until_ready(run(begun(1)))
    cpu_s = time.process_time() - compiled
    found = {
        "name": f"PureJaxRL's style, JAX {jax.__version__}",
        "steps": updates * recipe["envs"] * recipe["steps"],
        "cpu_s": cpu_s, "once_s": compiled - began - cpu_s, "return": float(lived[-10:].mean()),
    }  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
