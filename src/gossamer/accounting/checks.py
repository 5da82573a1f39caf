"""Refusals that all accountants share."""

import math

from gossamer.errors import UserError


def check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise UserError(f"delta = {delta} must lie strictly between 0 and 1")


def check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon = {epsilon} must be a positive number")
