"""The figures of a round: how good the models are, and what has been spent by then."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gossamer.config.schema import RunConfig
from gossamer.models.measures import key_of
from gossamer.results.certificate import NOT_PUBLIC
from gossamer.results.headline import SCORED, UNSAID
from gossamer.results.metrics import Evaluator
from gossamer.runtime.group import Group
from gossamer.training.assemble import Parts
from gossamer.training.begin import Run
from gossamer.training.private_evaluation import private_figures

MOST_SCORED = 20_000_000  # rows × nodes of one evaluation
MOST_NODES = 1000  # whose models are judged, if not said otherwise
_SAMPLE = 3  # keeps the choice apart from all else that the seed draws

Evaluation = Callable[
    [int, Any], dict[str, Any] | None
]  # (rounds done, state) → figures; None if none are due


def evaluation_of(parts: Parts, run: Run, group: Group) -> Evaluation:
    o, config, reader = parts.plan, parts.plan.config, run.reader
    measures, sample = o.measures, scored_nodes(config)
    headline = "truth_rmse" if config.evaluation.metric == "truth" else key_of(measures[0])
    score = Evaluator(
        o.module, o.stack, o.loss, *parts.test, task=o.task, measures=measures, together=group,
        truth=parts.dataset.truth,
        scored=None if sample is None else [i - parts.nodes.start for i in sample if i in parts.nodes],
    )  # fmt: skip
    at = evaluation_rounds(config.rounds, config.evaluation.every)
    # Draws that were spent and lost count from the start: ε is never said to be lower than it is.
    before = o.privacy.draws_before if run.done else 0
    unused = -(-(reader.draws - before - run.done * o.privacy.draws_per_round) // o.privacy.draws_per_round)
    unused = max(0, unused)  # a site that skipped rounds has drawn less
    spent = dict(zip(at, o.privacy.epsilon_after([done + unused for done in at]), strict=True))
    # With thousands of nodes, the whole hold-out would outlast the training.
    most = max(1, MOST_SCORED // (config.nodes if sample is None else len(sample)))
    few = min(config.evaluation.rows or 2000, most)

    unreleased = o.method.judges_unreleased()
    hidden = unreleased or (f"the hold-out is {NOT_PUBLIC}" if parts.private_hold_out else None)

    def apart(figures: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """(what everyone could compute, what not): an ε beside a figure must cover it.

        All that is released may be judged on public records. Of models that never leave their nodes every figure is
        private; on a private hold-out every figure but how far the models are apart.
        """
        if hidden is None:
            return figures, {}
        open_keys = () if unreleased else ("consensus_distance", "truth_rmse_")
        public = {key: value for key, value in figures.items() if key.startswith(open_keys)}
        return public, {key: value for key, value in figures.items() if key not in public}

    def evaluate(done: int, state: Any) -> dict[str, Any] | None:
        if done not in spent:
            return None
        claimed, proof = spent[done]
        models = o.method.scored(o.algorithm, state, reader, len(group.nodes))
        figures = score(models, few if done < config.rounds else most)
        public, private = apart(figures)
        if parts.judged is not None and done == config.rounds:
            released = o.method.released(o.algorithm, state, len(group.nodes)).detach()
            public |= private_figures(parts, run, group, released)
        for one in (public, private):
            if headline not in UNSAID and f"{headline}_mean" in one:
                one["metric"] = headline
        row = {
            "round": done,
            **public,
            **({SCORED: sample} if sample is not None else {}),
            **({"hold_out": NOT_PUBLIC} if parts.private_hold_out else {}),
            "epsilon_claimed": claimed,
            "epsilon_proven": proof,
        }
        if hasattr(state, "w"):
            row["push_sum_mass"] = math.fsum(group.join(state.w.double().flatten().tolist(), per_node=True))
        if private:
            row["not_private"] = {"because": hidden, **private}
        if reader.last_diagnostics is not None:
            norm, clipped, lot_norm = reader.last_diagnostics
            diagnosed = {
                "gradient_norm": norm.tolist(),
                "clipped_share": clipped.tolist(),
                "lot_gradient_norm": lot_norm.tolist(),
            }
            row["not_private"] = {**row.get("not_private", {}), **diagnosed}
        return row

    return evaluate


def scored_nodes(config: RunConfig) -> list[int] | None:
    """The nodes whose models are judged, by the seed and their number alone; None: all of them."""
    count = config.evaluation.nodes or MOST_NODES
    if count >= config.nodes:
        return None
    rng = np.random.default_rng([_SAMPLE, config.nodes, config.seed])
    return sorted(rng.choice(config.nodes, count, replace=False).tolist())


def evaluation_rounds(rounds: int, every: int | None) -> list[int]:
    every = every or max(1, -(-rounds // 10))
    return sorted({*range(every, rounds + 1, every), rounds})
