"""Bounds on the mean squared gradient norm, (1/K) Σ_k E‖∇f(x̄_k)‖², of the push-sum family.

Constants as in the papers: L smoothness, ζ² and b² the variances within and between nodes, C (AdaD2P) or Ψ (Dyn-D2P)
and q ∈ [0, 1) of the network, J records a node, d dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gossamer.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What a bound must know of the functions, the start and the network."""

    gap: float  # f(x̄_0) − f*
    smoothness: float  # L
    nodes: int  # n
    within: float = 0.0  # ζ², AdaD2P Assumption 5
    between: float = 0.0  # b², AdaD2P Assumption 5
    start: float = 0.0  # Σ_i ‖x_i^0‖²
    network: float = 1.0  # C of AdaD2P, Ψ of Dyn-D2P
    q: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.q < 1:
            raise UserError(f"q = {self.q} must be at least 0 and below 1.")

    @property
    def spread(self) -> float:
        """L² C² / (1 − q)²: what imperfect mixing multiplies."""
        return (self.smoothness * self.network / (1 - self.q)) ** 2


class Prescription(NamedTuple):
    """What a theorem sets, and the order of the bound it then gives."""

    rounds: float
    lr: float
    bound: float


def adad2p_beta(*, J: int, dim: int, epsilon: float, delta: float, c2: float = 1.0) -> float:
    """β of AdaD2P, eq. (6): noise variance per squared gradient norm and round. Shrinks as 1/(J ε)²."""
    return dim * c2**2 * math.log(1 / delta) / (J * epsilon) ** 2


def adad2p_theorem1(
    *,
    nodes: int,
    J: int,
    dim: int,
    epsilon: float,
    delta: float,
    c2: float = 1.0,
    largest_lr: float = math.inf,
    constant: float = 1.0,
) -> Prescription:
    """AdaD2P, Theorem 1: K = 1/β, and a bound of constant · sqrt(d log 1/δ) / (√n J ε).

    `largest_lr` is γ̂(C, q) and `constant` what the O hides: both depend on the problem, the paper gives no figure.
    """
    beta = adad2p_beta(J=J, dim=dim, epsilon=epsilon, delta=delta, c2=c2)
    if 1 / beta < nodes**3:
        least = math.ceil(nodes**1.5 * c2 * math.sqrt(dim * math.log(1 / delta)) / epsilon)
        raise UserError(f"J = {J} is too few records for the theorem; it needs at least {least}.")
    lr = 1 / (1 / math.sqrt(nodes * beta) + 1 / largest_lr)
    bound = constant * math.sqrt(dim * math.log(1 / delta)) / (math.sqrt(nodes) * J * epsilon)
    return Prescription(1 / beta, lr, bound)


def adad2p_proposition3(problem: Problem, *, lr: float, beta: float, mean_square_gradients: Sequence[float]) -> float:
    """AdaD2P, Proposition 3, eq. (11): the error of push-sum without noise, and what adaptive noise adds.

    `mean_square_gradients` holds (1/n) Σ_i E‖∇f_i(z_i^k; ξ)‖² of every round k; their number is K.
    """
    p, K = problem, len(mean_square_gradients)
    largest = min((1 - p.q) / (6 * p.smoothness * p.network), 1 / p.smoothness)
    if lr > largest:
        raise UserError(f"lr = {lr:g} is too large for the proposition; use at most {largest:.3g}.")
    noiseless = (
        4 * p.gap / (lr * K)
        + 2 * lr * p.smoothness * p.within / p.nodes
        + 12 * lr**2 * p.spread * (p.within + 3 * p.between)
        + 12 * p.spread * p.start / (p.nodes * K)
    )
    per_square = 12 * lr**2 * p.spread * beta + 2 * lr * p.smoothness * beta / p.nodes
    return noiseless + per_square * math.fsum(mean_square_gradients)


def adad2p_proposition4(problem: Problem, *, lr: float, beta: float, rounds: int, bound: float) -> float:
    """AdaD2P, Proposition 4, eq. (13): the same for constant noise, where every gradient counts as long as G."""
    return adad2p_proposition3(problem, lr=lr, beta=beta, mean_square_gradients=[bound**2] * rounds)


class DynTerms(NamedTuple):
    """The terms of Dyn-D2P's Theorem 1, in the paper's order."""

    start: float  # distance to the optimum
    initial_spread: float
    drift: float  # gradients of single nodes, through imperfect mixing
    descent: float  # gradient of the mean
    noise: float  # T_1
    bias: float  # T_2, from clipping; does not vanish

    @property
    def total(self) -> float:
        return math.fsum(self)


def dyn_d2p_theorem1(
    problem: Problem,
    *,
    lr: float,
    J: int,
    dim: int,
    mu_total: float,
    clip: Sequence[float],
    noise: Sequence[float],
    mean_square_gradients: Sequence[float],
    square_mean_gradients: Sequence[float],
    largest_gradient: float = 0.0,
    gradient_norms: Sequence[float] = (),
    clipped_shares: Sequence[float] = (),
) -> DynTerms:
    """Dyn-D2P, Theorem 1, eq. (11), for any sequences C_k (`clip`) and σ̃_k (`noise`, any scale).

    `mean_square_gradients`: (1/n) Σ_i E‖g_i^k‖²; `square_mean_gradients`: E‖(1/n) Σ_i g_i^k‖²; for the bias Λ
    (`largest_gradient`), ‖∇f(x̄_k)‖ and the share of gradients that were clipped. T_1 is least at σ̃_k² ∝ C_k
    (Cauchy–Schwarz), that is ρ_μ = ρ_c^(−1/2) < 1: this bound alone asks for a falling clip, not for a growing budget.
    """
    p, K = problem, len(clip)
    if len(noise) != K:
        raise UserError(f"noise lists {len(noise)} rounds but clip {K}; give one value per round in both.")
    C, levels = np.asarray(clip, dtype=float), np.asarray(noise, dtype=float)
    product = float(np.mean((C / levels) ** 2) * np.mean(levels**2))
    scale = 2 * K * dim / (J * mu_total) ** 2
    shares = np.asarray(gradient_norms, dtype=float) * np.asarray(clipped_shares, dtype=float)
    return DynTerms(
        start=2 * p.gap / (lr * K),
        initial_spread=3 * p.spread * p.start / (p.nodes * K),
        drift=3 * lr**2 * p.spread * math.fsum(mean_square_gradients) / K,
        descent=lr * p.smoothness * math.fsum(square_mean_gradients) / K,
        noise=(3 * lr**2 * p.spread + lr * p.smoothness / p.nodes) * scale * product,
        bias=2 * largest_gradient * float(shares.sum()) / K,
    )


def dyn_d2p_corollary1(
    *, nodes: int, J: int, mu_total: float, q: float = 0.0, constant: float = 1.0, bias: float = 0.0
) -> Prescription:
    """Dyn-D2P, Corollary 1: K = n (J μ_tot)², γ = 1/(√n J μ_tot), bound constant / ((1−q)² √n J μ_tot) + T_2."""
    if not 0 <= q < 1:
        raise UserError(f"q = {q} must be at least 0 and below 1.")
    if J * mu_total <= math.sqrt(nodes):
        least = math.floor(math.sqrt(nodes) / mu_total) + 1
        raise UserError(f"J = {J} is too few records for the corollary; it needs at least {least}.")
    root = math.sqrt(nodes) * J * mu_total
    return Prescription(root**2, 1 / root, constant / ((1 - q) ** 2 * root) + bias)
