"""What sites did is computed again from their steps, by arithmetic alone: no parcel twice, none lost, none changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.support.consortium import FAULTS, LR, PUSH_SUM, Consortium, least_squares, noisy, starts
from tests.support.replay import replay_push_sum

from gossamer.consortium.contacts import Pace
from gossamer.topology.kinds import build


def faulty(crashes: dict[tuple[str, int], float]) -> Consortium:
    draw, _ = least_squares(4)
    return Consortium(
        PUSH_SUM, build("ring", nodes=4, weights="column", seed=0), starts(4), noisy(draw), 15, faults=FAULTS, seed=4,
        pace=Pace(deadline=1.0, late=2, patience=5), crash=lambda site, n: crashes.pop((site, n), None),
    ).run()  # fmt: skip


def steps_of(sites: Consortium) -> dict[str, list]:
    return {name: [sites.steps[name][key] for key in sorted(sites.steps[name])] for name in sites.names}


def start_of(sites: Consortium) -> dict[str, np.ndarray]:
    return {name: sites.start[i].double().numpy() for i, name in enumerate(sites.names)}


def check(sites: Consortium, x: dict, w: dict) -> None:
    for name in sites.names:
        np.testing.assert_allclose(
            x[name] / w[name], PUSH_SUM.model(sites.final[name])[0].numpy(), rtol=2e-5, atol=2e-5
        )


def test_seeded_noise_gives_the_same_models_in_a_plain_computation() -> None:
    sites = faulty({})
    draw, _ = least_squares(4)
    rounds = {name: {step.place.round: k for k, step in enumerate(steps)} for name, steps in steps_of(sites).items()}

    def moved(site: str, t: int, model: np.ndarray) -> np.ndarray:
        point = torch.from_numpy(model)[None].float()
        return -LR * noisy(draw)(sites.names.index(site), rounds[site][t], point)[0].double().numpy()

    check(sites, *replay_push_sum(start_of(sites), steps_of(sites), moved))
    assert sum(len(step.sent) for steps in steps_of(sites).values() for step in steps) > 60


def test_after_crashes_too() -> None:
    sites = faulty({("site-01", 7): 0.5, ("site-02", 12): 1.0, ("site-00", 21): 0.0})
    assert sites.crashes == 3

    used = {site: dict(values.values()) for site, values in sites.used.items()}  # round → gradient

    def moved(site: str, t: int, model: np.ndarray) -> np.ndarray:
        return -LR * used[site][t][0].double().numpy()

    check(sites, *replay_push_sum(start_of(sites), steps_of(sites), moved))


def test_a_parcel_that_was_added_twice_is_noticed() -> None:
    sites = faulty({})
    steps = steps_of(sites)
    first = steps["site-00"][0]
    steps["site-00"][1] = replace(steps["site-00"][1], added=[*steps["site-00"][1].added, *first.added])
    with pytest.raises(ValueError, match="that nobody made, or that was added before"):
        replay_push_sum(start_of(sites), steps, lambda site, t, model: 0 * model)
