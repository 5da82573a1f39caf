"""Checks for the tests of a part's author: each says in a sentence what is to be fixed.

    from gossamer.testing import check_algorithm

    def test_my_method():
        check_algorithm(MyMethod)

The same functions check the parts of this package.
"""

from __future__ import annotations

from gossamer.testing.algorithm import check_algorithm
from gossamer.testing.clip import check_clip
from gossamer.testing.noise import check_noise

__all__ = ["algorithm", "check_algorithm", "check_clip", "check_noise", "clip", "noise", "quadratics"]
