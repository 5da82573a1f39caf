"""Convergence of without-replacement SGD with a shared public model (Jin, He, Dai), Theorems 3 and 4.

M nodes, n records in all, lots of b, T turns, noise for (ε, δ) per write; B² bounds squared gradients, L is the
Lipschitz constant, R the diameter of the hypothesis space.
"""

from __future__ import annotations

import math

from gossamer.errors import UserError


def theorem3(
    *,
    nodes: int,
    records: int,
    lot: int,
    turns: int,
    lr: float,
    diameter: float,
    lipschitz: float,
    gradient_bound: float,
    writes: float,
    epsilon: float,
    delta: float,
) -> float:
    """Eq. (9): expected excess risk of the mixture of local and global model, convex case.

    (M+1)R²/(4Tη) + ηB² + 4 ln(1.25/δ) η L² / (b²ε²) · writes/T + 2(2+12√2)RL/3 · (√(bT)/n + 2/(√n + √(n−bT)));
    `writes` is the expected number of writes of all nodes.
    """
    if not 1 <= turns <= records / lot:
        raise UserError(f"turns = {turns} must lie between 1 and n/b = {records / lot:g}: the theorem is for one pass.")
    start = (nodes + 1) * diameter**2 / (4 * turns * lr)
    step = lr * gradient_bound**2
    noise = 4 * math.log(1.25 / delta) * lr * lipschitz**2 / (lot * epsilon) ** 2 * writes / turns
    order = 2 * (2 + 12 * math.sqrt(2)) * diameter * lipschitz / 3
    seen = lot * turns
    shuffle = math.sqrt(seen) / records + 2 / (math.sqrt(records) + math.sqrt(records - seen))
    return start + step + noise + order * shuffle


def theorem4(
    *,
    nodes: int,
    lot: int,
    turn: int,
    least_share: float,
    gradient_bound: float,
    lipschitz: float,
    epsilon: float,
    delta: float,
) -> float:
    """Eq. (10) without the constant it hides: the order of Σ‖w − w*‖² after `turn` turns, strongly convex case.

    M B²/(a²t) + M B² ln t/(a²bt) + M L² ln(1.25/δ)/(a²b²ε²t), `least_share` = a, the least probability of either
    action. The step it asks for, 1/(aγt), is longer than Lemma 4 allows as long as t < 2μ/(aγ).
    """
    if turn < 1 or not 0 < least_share <= 0.5:
        raise UserError(f"turn = {turn} must be at least 1, and least_share = {least_share} in (0, 1/2].")
    scale = nodes / (least_share**2 * turn)
    noise = lipschitz**2 * math.log(1.25 / delta) / (lot * epsilon) ** 2
    return scale * (gradient_bound**2 * (1 + math.log(turn) / lot) + noise)
