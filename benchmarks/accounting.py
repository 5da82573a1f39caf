"""Seconds and ε: our composer and dp-accounting on the same schedules, interleaved in one run.

    python benchmarks/accounting.py [--groups 70] [--repeats 1] [--step 1e-4] [--skip-library]
    python benchmarks/accounting.py --lots     # writes the table of balls-and-bins lots into docs/privacy.md

Dyn-D²P on CIFAR-10: J = 2500, K = 3500, δ = 1e-4, claimed ε = 1, budgets growing by ρ. dp-accounting has no
grouping of its own: it is given the schedule in `groups` ranges, each at its smallest σ, at its default
discretisation.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gossamer.accounting.calibrate import Target, common_factor
from gossamer.accounting.composer import Composition
from gossamer.accounting.pairs import GaussianPair, Grouping
from gossamer.accounting.passes import BallsAndBinsPair
from gossamer.accounting.profiles import gdp_epsilon, gdp_mu
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Gaussian, collate
from gossamer.methods.claims import initial_budget, schedule

RATE, ROUNDS, DELTA, CLAIM = 1 / 2500, 3500, 1e-4, 1.0
LOTS, NOISES = (2, 10, 60, 1_000, 10_000), (0.5, 1.0, 2.0)
PAGE = Path(__file__).parents[1] / "docs" / "privacy.md"


def releases(ratio: float) -> list[Gaussian]:
    mus = schedule(initial_budget(gdp_mu(CLAIM, DELTA), RATE, ROUNDS, ratio), ROUNDS, ratio)
    return [
        Gaussian(sigma=1 / mu, sensitivity=1.0, sampling="poisson", rate=RATE, adjacency="add-remove") for mu in mus
    ]


def library(kinds: list[Gaussian], groups: int, step: float) -> str:
    from dp_accounting.pld import privacy_loss_distribution as pld

    pairs = Grouping([(GaussianPair(1 / kind.sigma, RATE), 1) for kind in kinds], groups).pessimistic()
    total = None
    for pair, count in pairs:
        assert isinstance(pair, GaussianPair)
        one = pld.from_gaussian_mechanism(
            1 / pair.mu, sampling_prob=RATE, value_discretization_interval=step
        ).self_compose(count)
        total = one if total is None else total.compose(one)
    assert total is not None
    return f"ε ≤ {total.get_epsilon_for_delta(DELTA):.4f}"


def ours(kinds: list[Gaussian], tolerance: float) -> str:
    found = proven(collate(kinds), DELTA, "add-remove", tolerance=tolerance)
    return f"{found.lower:.4f} ≤ ε ≤ {found.epsilon:.4f}   ({found.method.split(', ', 1)[1]})"


def calibration(kinds: list[Gaussian]) -> str:
    target = Target(epsilon=CLAIM, delta=DELTA, adjacency="add-remove")
    factor = common_factor([kind.sigma for kind in kinds], target, sampling="poisson", rate=RATE)
    found = proven(collate([kind.scaled(factor) for kind in kinds]), DELTA, "add-remove")
    return f"σ × {factor:.4f}, then ε ≤ {found.epsilon:.4f}"


def one_pass(lots: int, sigma: float) -> str:
    """ε of a pass of secret lots; beside it that of Poisson lots, and of lots that everybody knows."""
    secret = Composition([(BallsAndBinsPair(((1 / sigma, lots),), lots), 1)]).bounds(DELTA).upper
    poisson = Composition([(GaussianPair(1 / sigma, 1 / lots), lots)]).bounds(DELTA).upper
    return f"{secret:#.3g} ({poisson:#.3g}; {gdp_epsilon(1 / sigma, DELTA):#.3g})"


def table_of_lots() -> str:
    head = " | ".join(f"σ = {sigma:g} C".replace(" 1 C", " C") for sigma in NOISES)
    rows = [f"| {lots:,} | {' | '.join(one_pass(lots, sigma) for sigma in NOISES)} |" for lots in LOTS]
    return "\n".join([f"| lots | {head} |", "|---" * (len(NOISES) + 1) + "|", *rows]) + "\n"


def timed(label: str, work: Callable[[], str]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    text = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"  {label:<28} {wall:7.2f} s ({cpu:.2f} s CPU)   {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", type=int, default=70)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--step", type=float, default=1e-4)
    parser.add_argument("--skip-library", action="store_true")
    parser.add_argument("--lots", action="store_true")
    options = parser.parse_args()
    if options.lots:
        found, text = table_of_lots(), PAGE.read_text(encoding="utf-8")
        before, _, rest = text.partition("<!-- lots -->\n")
        PAGE.write_text(f"{before}<!-- lots -->\n{found}{rest[rest.index('<!-- end -->') :]}", encoding="utf-8")
        print(found)
        return
    proven([(releases(1.0)[0], 2)], DELTA, "add-remove")  # imports and first FFT out of the way

    for ratio in (2.0, 5.0):
        kinds = releases(ratio)
        print(f"{ROUNDS} steps, ρ_μ = {ratio:g}, claimed ε = {CLAIM:g}, δ = {DELTA:g}, add/remove")
        for _ in range(options.repeats):
            timed("gossamer, 2%", partial(ours, kinds, 0.02))
            timed("gossamer, 1%", partial(ours, kinds, 0.01))
            if not options.skip_library:
                label = f"dp-accounting, {options.groups} groups"
                timed(label, partial(library, kinds, options.groups, options.step))
        timed("gossamer, calibration", partial(calibration, kinds))


if __name__ == "__main__":
    main()
