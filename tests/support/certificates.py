"""A certificate as a run writes it, of two nodes, with figures of its own making."""

from __future__ import annotations

from typing import Any


def certificate(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": "a training",
        "run": "0123456789abcdef",
        "started": "2026-03-09T10:20:30Z",
        "issued": "2026-03-09T11:00:00Z",
        "key": "ab" * 32,
        "nodes": 2,
        "rounds": 1200,
        "data": {"kind": "digits", "own": False},
        "digests": {"configuration": "cd" * 32, "data": "ef" * 32, "models": ["12" * 32] * 2},
        "epsilon_claimed": 1.25,
        "epsilon_proven": 2.5,
        "epsilon_audited": None,
        "violation": None,
        "violated": [],
        "epsilon_by_node": [{"claimed": 1.25, "proven": 2.5}, {"claimed": None, "proven": 0.125}],
        "not_proven_because": None,
        "claim_reference": "a paper <eq. 3>",
        "claim_flags": ["the claim is of one number"],
        "delta": 1e-5,
        "adjacency": "add-remove",
        "unit": "one record of one node",
        "observer": "everyone",
        "method": "dyn-d2p",
        "mode": "sound",
        "baseline": "none",
        "stamp": None,
        "noise_source": "system",
        "notes": ["a & b"],
        "not_covered": ["groups"],
        "public_constants": [
            {"node": 0, "records": 1200, "rate": 0.25, "lot": 300.0},
            {"node": 1, "records": 80, "rate": 0.5, "lot": 40.0},
        ],
        "draws": [7, 9],
        "ledger_heads": ["0123456789abcdef", "fedcba9876543210"],
        "versions": {"gossamer": "1.2.3"},
    }
    return {**made, **changes}


def dated(nodes: int = 2, **changes: Any) -> dict[str, Any]:
    """The same of so many nodes."""
    each = [{"node": i, "records": 100 + i, "rate": 0.25, "lot": 25.0} for i in range(nodes)]
    made = certificate(
        nodes=nodes,
        digests={"configuration": "cd" * 32, "data": "ef" * 32, "models": ["12" * 32] * nodes},
        public_constants=each,
        draws=[7] * nodes,
        epsilon_by_node=[{"claimed": 1.25, "proven": 2.5}] * nodes,
        ledger_heads=["34" * 32] * nodes,
    )
    return {**made, **changes}


def by_observer(planned: int = 1, nodes: int = 8) -> dict[str, Any]:
    """What a certificate has where nodes share noise; with q colluding nodes ε is (q + 1) / 4."""
    curve = {q: (q + 1) / 4 for q in range(nodes)}
    common = {"delta": 1e-5, "adjacency": "add-remove", "unit": "one record of one node"}
    return {
        "epsilon_by_colluders": [{"colluders": q, "epsilon": epsilon} for q, epsilon in curve.items()],
        "epsilon_by_observer": [
            {
                "observer": f"all+{q}", "words": f"{q} nodes", "colluders": q, "epsilon": curve[q], **common,
                "planned": q == planned,
            }
            for q in sorted({0, planned, nodes // 2, nodes - 1})
        ],
    }  # fmt: skip


def audit(**changes: Any) -> dict[str, Any]:
    """What an audit adds to it."""
    made: dict[str, Any] = {
        "canaries": "gradients",
        "runs": 4000,
        "training_seconds": 1.5,
        "samples_per_second": 2e6,
        "coins": 4000,
        "confidence": 0.95,
        "bounds": [
            {"name": "clopper-pearson", "epsilon": 0.7, "confidence": 0.95, "rests_on": "independent <runs>"},
            {"name": "one-run", "epsilon": 0.2, "confidence": 0.95, "rests_on": "coins"},
        ],
        "above_one_point": [],
        "curve_tests": [],
        "proven_curve": [],
        "notes": ["x < y"],
        "roc": [(0.0, 0.1), (0.5, 0.8), (1.0, 1.0)],
        "histogram": {"edges": [0.0, 1.0, 2.0], "in": [0.2, 0.8], "out": [0.7, 0.3]},
    }
    return {**made, **changes}


def movement(**changes: Any) -> dict[str, Any]:
    """How far a record moved something."""
    made: dict[str, Any] = {
        "place": "a later sum",
        "moved": None,
        "priced": 0.0,
        "record": "ones <labelled 3>",
        "lot": "lot of 2",
        "rounding": 0.0,
        "broken": True,
    }
    return {**made, **changes}


def search(*movements: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What a search for a record adds to an audit: these movements, and one that is not finite."""
    made: dict[str, Any] = {
        "broken": True,
        "tolerance": 1e-6,
        "tried": 1234,
        "seconds": 2.5,
        "in_time": True,
        "stopped": None,
        "movements": [*movements, movement()],
    }
    return {**made, **changes}
