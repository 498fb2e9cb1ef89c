#!/usr/bin/env python3
"""The same training steps in JAX (jit, CPU), to compare: pip install jax optax; python jax_baseline.py [seconds]"""
import json, math, sys, time
import jax, jax.numpy as jnp, optax
seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3


def layer_norm(x, p):
    m = x.mean(-1, keepdims=True); v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) * jax.lax.rsqrt(v + 1e-5) * p["g"] + p["b"]


def model(p, x, y, heads):
    h = p["tok"][x] + p["pos"][: x.shape[1]]
    B, T, d = h.shape
    mask = jnp.tril(jnp.ones((T, T), bool))
    for b in p["blocks"]:
        q, k, v = jnp.split(layer_norm(h, b["n1"]) @ b["qkv"], 3, -1)
        q, k, v = (t.reshape(B, T, heads, d // heads) for t in (q, k, v))
        s = jnp.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(d // heads)
        w = jax.nn.softmax(jnp.where(mask, s, -jnp.inf), -1)
        h = h + jnp.einsum("bhij,bjhd->bihd", w, v).reshape(B, T, d) @ b["proj"]
        h = h + jax.nn.gelu(layer_norm(h, b["n2"]) @ b["up"]) @ b["down"]
    logits = layer_norm(h, p["norm"]) @ p["tok"].T
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def run(case, vocab, T, layers, heads, d, B):
    key = iter(jax.random.split(jax.random.PRNGKey(0), 6 * layers + 4))
    n = lambda *s: 0.02 * jax.random.normal(next(key), s)
    norm = lambda: {"g": jnp.ones(d), "b": jnp.zeros(d)}
    p = {"tok": n(vocab, d), "pos": n(T, d), "norm": norm(), "blocks": [{"n1": norm(), "n2": norm(), "qkv": n(d, 3 * d), "proj": n(d, d), "up": n(d, 4 * d), "down": n(4 * d, d)} for _ in range(layers)]}
    opt = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, 0.9, 0.99, weight_decay=0.1)); state = opt.init(p)
    x = jax.random.randint(next(key), (B, T), 0, vocab); y = jax.random.randint(next(key), (B, T), 0, vocab)
    @jax.jit
    def step(p, state):
        loss, g = jax.value_and_grad(model)(p, x, y, heads); u, state = opt.update(g, state, p)
        return optax.apply_updates(p, u), state, loss
    for _ in range(2):
        p, state, loss = step(p, state); loss.block_until_ready()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        t = time.perf_counter(); p, state, loss = step(p, state); loss.block_until_ready(); times.append(time.perf_counter() - t)
    print(json.dumps({"case": case, "backend": "jax-" + jax.__version__, "ms": round(min(times) * 1e3, 2), "rate": round(B * T / min(times), 1), "unit": "tokens/s"}), flush=True)


run("train/gpt-char-small", 65, 64, 4, 4, 128, 12)
run("train/gpt-char-medium", 65, 256, 6, 6, 384, 4)
run("train/gpt2-124m", 50304, 256, 12, 12, 768, 2)
