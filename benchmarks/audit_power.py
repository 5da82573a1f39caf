"""How thin must noise be for an audit to say so? Real runs with their noise scaled under the price that was planned.

    python benchmarks/audit_power.py [--seeds 10] [--sound 200] [--out power.jsonl]

The quickstart on Dirac canaries, everyone looking on, 20,048 coins, 99.9%, seeded so that it repeats. Each line of the
first table is a noise that is a share of what was priced; "by the whole curve" is the verdict that counts, "by one
point" says how often the bound at the printed δ alone exceeds the printed ε. The second table is of runs whose noise is
as planned: a violation there is a false alarm, of which 200 runs at 99.9% may have 0.2 on average. Lines that are in
the file already are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from gossamer.accounting.observers import EVERYONE
from gossamer.auditing import canaries
from gossamer.auditing import verdict as verdicts
from gossamer.auditing.attacks import Axes
from gossamer.config.layers import resolve
from gossamer.config.recipes import read
from gossamer.training.assemble import Parts, assemble
from gossamer.training.plan import Plan

CONFIDENCE = 0.999
METHODS = {"dyn-d2p": {}, "dp-dsgd": {"topology.kind": "ring"}}
SAMPLING = {"full": {"kind": "full"}, "quarter": {"kind": "poisson", "rate": 0.25}}
# (ε, share of the planned noise)
THIN = ((8.0, 0.9), (8.0, 0.8), (1.0, 0.8), (1.0, 0.7), (1.0, 0.6))


def thinned(parts: Parts, share: float) -> Parts:
    """The same parts with this share of the noise that was planned, and priced."""
    levels = parts.noise.levels
    return replace(parts, noise=replace(parts.noise, levels=replace(levels, factor=levels.factor * share)))


def one(method: str, epsilon: float, sampling: str, share: float, seed: int) -> dict[str, Any]:
    changes = {
        "algorithm.kind": method,
        "privacy.epsilon": epsilon,
        "privacy.noise.source": "seeded",
        "privacy.sampling": SAMPLING[sampling],
        "rounds": 20,
        "seed": seed,
        **METHODS[method],
    }
    start = time.perf_counter()
    o = Plan.of(resolve(read("quickstart"), changes))
    parts = assemble(Plan.of(canaries.on_dirac_records(o.asked, o.privacy)))
    attack = Axes(thinned(parts, share), EVERYONE)
    figures = o.privacy.figures()
    limits = verdicts.promised(figures, "sound", o.privacy.trade_off())
    collected, verdict = verdicts.try_until_decided(attack, figures["delta"], CONFIDENCE, limits, attack.runs)
    return {
        "method": method,
        "epsilon": epsilon,
        "sampling": sampling,
        "share": share,
        "seed": seed,
        "proven": figures["epsilon_proven"],
        "coins": len(collected.coins),
        "by_curve": "proven" in verdict.violated,
        "by_one_point": "proven" in verdict.above_one_point,
        "one_point": verdict.epsilon,
        "says": [test.says for test in verdict.curve_tests],
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sound", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("audit-power.jsonl"))
    given = parser.parse_args()
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.is_file() else []
    done = {tuple(line[key] for key in ("method", "epsilon", "sampling", "share", "seed")): line for line in lines}

    def get(*key: Any) -> dict[str, Any]:
        if key not in done:
            done[key] = one(*key)
            with given.out.open("a") as file:
                file.write(json.dumps(done[key]) + "\n")
        return done[key]

    print(f"Noise thinner than planned, {CONFIDENCE:.1%}, seeds 0 … {given.seeds - 1}\n")
    print("| proven ε | sampling | noise | declared by the whole curve | by one point | one point: ε ≥, mean |")
    print("|---|---|---|---|---|---|")
    for sampling in SAMPLING:
        for epsilon, share in THIN:
            cells = [get("dyn-d2p", epsilon, sampling, share, seed) for seed in range(given.seeds)]
            missed = [cell["seed"] for cell in cells if not cell["by_curve"]]
            note = f" (not seeds {', '.join(map(str, missed))})" if 0 < len(missed) < len(cells) else ""
            declared = f"{len(cells) - len(missed)} of {len(cells)}{note}"
            print(
                f"| {cells[0]['proven']:.3g} | {sampling} | × {share:g} | {declared} "
                f"| {sum(cell['by_one_point'] for cell in cells)} of {len(cells)} "
                f"| {sum(cell['one_point'] for cell in cells) / len(cells):.2f} |",
                flush=True,
            )
    kinds = [(method, epsilon, sampling) for method in METHODS for epsilon in (1.0, 8.0) for sampling in SAMPLING]
    each = -(-given.sound // len(kinds))
    print(f"\nNoise as planned, {each * len(kinds)} runs\n")
    print("| method | proven ε | sampling | runs | declared by the whole curve | by one point |")
    print("|---|---|---|---|---|---|")
    for method, epsilon, sampling in kinds:
        # Seeds of their own, so that no run shares its noise with one above.
        cells = [get(method, epsilon, sampling, 1.0, 1000 + seed) for seed in range(each)]
        print(
            f"| {method} | {cells[0]['proven']:.3g} | {sampling} | {len(cells)} "
            f"| {sum(cell['by_curve'] for cell in cells)} | {sum(cell['by_one_point'] for cell in cells)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
