"""How much noise a truncated Gaussian needs for a proven ε, by where it is cut off; the Gaussian is the level line.

    python benchmarks/noises.py [OUT.svg]

DP-dKM's Theorem 6 ends its noise at 4.08 σ for (0.5, 10⁻³). Prints a table and writes a plot.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from gossamer.accounting.calibrate import Target, least_scale
from gossamer.accounting.profiles import gdp_mu
from gossamer.accounting.releases import TruncatedGaussian
from gossamer.methods.claims import km_noise
from gossamer.results.charts import Axis, Plot, Series
from gossamer.results.terminal import Table
from reproductions.noises import density, variance

EPSILON, DELTA, RELEASES, DIMENSION = 0.5, 1e-3, 80, 10
CUTS = (3.9, 4.0, 4.1, 4.2, 4.4, 4.6, 4.8, 5.0, 5.5, 6.0, 6.5)


def needed(cut: float) -> float:
    """Standard deviation, in units of the sensitivity, of the least noise cut off at `cut` σ."""

    def run(sigma: float) -> list[TruncatedGaussian]:
        one = TruncatedGaussian(
            sigma=sigma,
            bound=cut * sigma,
            dimensions=DIMENSION,
            sensitivity=1.0,
            sampling="full",
            rate=1.0,
            adjacency="add-remove",
        )
        return [one] * RELEASES

    sigma = least_scale(run, Target(epsilon=EPSILON, delta=DELTA, adjacency="add-remove"))
    return math.sqrt(variance(density("truncated-gaussian", 2.0, sigma, cut * sigma)))


def main(out: Path) -> None:
    gaussian = math.sqrt(RELEASES) / gdp_mu(EPSILON, DELTA)
    sigma, bound = km_noise("truncated-gaussian", EPSILON, DELTA, 1.0)
    cuts = sorted({*CUTS, bound / sigma})
    found = [needed(cut) for cut in cuts]
    rows = [(f"{cut:.2f}", f"{std:.2f}", f"{std / gaussian:.3f}") for cut, std in zip(cuts, found, strict=True)]
    rows.append(("not cut: Gaussian", f"{gaussian:.2f}", "1"))
    budget = f"ε = {EPSILON:g}, δ = {DELTA:g}, add-remove, {RELEASES} releases of {DIMENSION} numbers, full batches"
    caption = f"Proven {budget}; in units of the sensitivity. Theorem 6 ends the noise at {bound / sigma:.2f} σ."
    table = Table(("cut off at (σ)", "std needed", "of the Gaussian's"), tuple(rows), (caption,))
    print(table.markdown())
    series = [
        Series("truncated Gaussian", list(zip(cuts, found, strict=True))),
        Series("Gaussian", [(cuts[0], gaussian), (cuts[-1], gaussian)], marker="none"),
        Series(
            "where Theorem 6 cuts",
            [(bound / sigma, found[cuts.index(bound / sigma)])],
            marker="diamond",
            joined=False,
        ),
    ]
    y = Axis(f"std needed for a proven ε of {EPSILON:g}")
    plot = Plot(series, Axis("where the noise is cut off, in σ"), y, size=(640, 380))
    out.write_text(f"{plot.svg()}\n", encoding="utf-8")
    print(f"wrote {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("noises.svg"))
