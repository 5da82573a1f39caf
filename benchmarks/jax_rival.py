"""Gradients of all nodes by jax-privacy's `clipped_grad`, compiled and vectorised over nodes, against ours, in turn.

    python -m venv JAX && JAX/bin/pip install jax-privacy        650 MB, apart from this project's packages
    python benchmarks/jax_rival.py --jax JAX/bin/python          print
    python benchmarks/jax_rival.py --jax JAX/bin/python --write  and rewrite the table in docs/performance.md

The gradient alone: no noise, no mixing. Seconds of processor time of all cores, so that a busy machine says the same.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import time

NODES, CLIP, TIMES = 20, 1.0, 7
CELLS = [("softmax 784-10", ()), ("MLP 784-128-10", (128,))]
LOTS = (1, 16, 64)  # beyond, it writes gigabytes of per-sample gradients


def serve(hidden: tuple[int, ...], lot: int) -> None:
    """The other process: a step for every line that comes in, its seconds out."""
    import jax
    import jax.numpy as jnp
    from jax_privacy import clipping

    sizes, key = (784, *hidden, 10), jax.random.key(0)
    points = [
        (0.03 * jax.random.normal(key, (NODES, before, width)), jnp.zeros((NODES, width)))
        for before, width in itertools.pairwise(sizes)
    ]
    x = jax.random.normal(key, (NODES, lot, 784))
    y = jax.random.randint(key, (NODES, lot), 0, 7)

    def loss(layers, x, y):
        for k, (weight, bias) in enumerate(layers):
            x = (jax.nn.relu(x) if k else x) @ weight + bias
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).sum()

    of_node = clipping.clipped_grad(loss, l2_clip_norm=CLIP, batch_argnums=(1, 2))
    step = jax.jit(jax.vmap(of_node))
    jax.block_until_ready(step(points, x, y))
    for _ in sys.stdin:
        start = time.process_time()
        jax.block_until_ready(step(points, x, y))
        print(time.process_time() - start, flush=True)


def compared(python: str, net: str, hidden: tuple[int, ...], lot: int) -> str:
    import engine

    problem = engine.Problem(net, NODES, lot)
    gradient = engine.ours(problem)
    gradient()
    command = [python, __file__, "--serve", ",".join(map(str, hidden)), "--lot", str(lot)]
    pairs = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as rival:
        assert rival.stdin is not None
        assert rival.stdout is not None
        for _ in range(TIMES):
            rival.stdin.write("step\n")
            rival.stdin.flush()
            theirs = rival.stdout.readline()
            if not theirs:
                raise SystemExit(f"{python} cannot run jax-privacy; see the first lines of this file")
            start = time.process_time()
            gradient()
            pairs.append((float(theirs), time.process_time() - start))
        rival.stdin.close()
    jax, own = (1e3 * statistics.median(times) for times in zip(*pairs, strict=True))
    made = f"| {net} | {lot} | {jax:.1f} | {own:.1f} | {jax / own:.1f} |"
    print(made, flush=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jax", help="the python of an environment with jax-privacy")
    parser.add_argument("--write", action="store_true", help="rewrite the table in docs/performance.md")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--lot", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(tuple(int(width) for width in options.serve.split(",") if width), options.lot)
        return
    if options.jax is None:
        parser.error("--jax PYTHON is needed: the python of an environment with jax-privacy")
    rows = [
        f"| gradient of {NODES} nodes | lot | jax-privacy, ms | ours, ms | jax-privacy/ours |",
        "|---|---|---|---|---|",
    ]
    rows += [compared(options.jax, net, hidden, lot) for net, hidden in CELLS for lot in LOTS]
    if options.write:
        import engine

        engine.write("jax-privacy", [engine.machine(), "", *rows])


if __name__ == "__main__":
    main()
