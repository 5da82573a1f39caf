"""The one node of the central baseline: all records together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gossamer.config.schema import RunConfig
from gossamer.errors import UserError


@dataclass(frozen=True)
class Pool:
    records: int  # Σ J_i
    lot: float  # Σ L_i: as many records a round as all nodes together
    rates: list[float]  # of the records that came from node i

    @property
    def rate(self) -> float:
        """What is priced: no record is drawn more often."""
        return max(self.rates)


def pool(config: RunConfig, records: Sequence[int], pairs: Sequence[tuple[float, float]]) -> Pool:
    """The pooled records with the objective of the decentralized run.

    Weighted by size that is the plain mean over records: one rate for all. Uniform weights give every node's records
    together the same say, so a record's rate is L / (n J_i). Sizes that differ by one (an even split) count as equal.
    """
    total, lot, n = sum(records), sum(lot for _, lot in pairs), len(records)
    if config.weighting == "size" or max(records) - min(records) <= 1:
        rate, lot = config.privacy.sampling.pooled(total, lot)
        return Pool(total, lot, [rate] * n)
    if config.privacy.sampling.make_uneven([1.0]) is None:
        raise UserError(
            f"privacy.sampling.kind = {config.privacy.sampling.kind!r} cannot give nodes of different sizes equal "
            "weight in the pooled records of baseline = 'central'; use kind = 'poisson' or weighting = 'size'."
        )
    rates = [lot / (n * J) for J in records]
    if max(rates) > 1:
        raise UserError(
            f"weighting = 'uniform' would draw each record of the smallest node {max(rates):.3g} times a round in "
            "baseline = 'central'; use a smaller privacy.sampling.rate or weighting = 'size'."
        )
    return Pool(total, lot, rates)
