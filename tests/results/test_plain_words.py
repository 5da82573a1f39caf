"""The promise in words says no more than ε and δ do, and says so where that is little or nothing."""

from __future__ import annotations

import math

import pytest
from scipy.stats import norm
from tests.support.certificates import dated

from gossamer.results.plain_words import day, not_promised, promise, right_guesses, what, who


def test_the_share_of_right_guesses_is_never_below_an_attackers() -> None:
    """The best test between N(0, 1) and N(m, 1) is right with probability Φ(m/2); its exact δ(ε) is known."""
    for m in (0.3, 1.0, 2.5):
        for epsilon in (0.1, 0.5, 1.0, 2.0, 5.0):
            delta = norm.cdf(m / 2 - epsilon / m) - math.exp(epsilon) * norm.cdf(-m / 2 - epsilon / m)
            assert right_guesses(epsilon, delta) >= norm.cdf(m / 2) - 1e-12
    assert right_guesses(0.0, 0.0) == 0.5
    assert right_guesses(800.0, 0.0) == 1.0


def test_the_promise_has_its_numbers_rounded_against_itself() -> None:
    text = " ".join(promise(dated(epsilon_proven=1.0, delta=1e-5)))
    assert "a factor of at most 2.72" in text
    assert "ε ≤ 1 is proven" in text
    assert "one in 100,000" in text
    assert "right at most 73.2 times in 100" in text
    assert "whether it was used at all" in text
    assert "hardly any protection" not in text
    assert "which of two values it had" in promise(dated(adjacency="replace-one"))[0]


@pytest.mark.parametrize(
    ("epsilon", "shown"), [(8.0, "99.97"), (12.0, "99.9994"), (30.0, "100"), (900.0, "100")]
)
def test_a_weak_promise_is_called_one(epsilon: float, shown: str) -> None:
    lines = promise(dated(epsilon_proven=epsilon, delta=0.0))
    assert f"right at most {shown} times in 100" in lines[3]
    assert "hardly any protection" in lines[-1]


def test_where_there_is_no_promise_nothing_else_is_said() -> None:
    assert promise(dated(stamp="seeded noise: no privacy"))[0].startswith("There is no promise of privacy")
    assert promise(dated(epsilon_proven=None, not_proven_because="no clip")) == [
        "No promise of privacy is proven: no clip."
    ]


def test_who_what_and_when() -> None:
    text = what(dated())
    assert "2 nodes (holders of data) together trained models in 1,200 rounds" in text
    assert "201 records as declared: the public data set digits" in text
    assert "issued on 9 March 2026, 11:00 UTC, by Gossamer 1.2.3" in text
    assert "of which no digest is given" in what(dated(data={"kind": "csv", "own": True}))
    assert what(dated(nodes=1)).startswith("One node")
    assert who(dated()) == ["No organisation has signed this certificate."]
    one = {"signer": "Hospital A", "key": "ab" * 32, "at": "2026-12-31T23:59:59Z", "signature": "cd" * 64}
    assert (
        "Signed on 31 December 2026, 23:59 UTC in the name of Hospital A" in who(dated(signatures=[one]))[0]
    )
    assert day("2026-11-01T00:00:00Z") == "1 November 2026, 00:00 UTC"
    assert "groups" in not_promised(dated())
