"""`plan --ledger` says that a run agrees only if all that it states does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.old_runs import copy_of_old_run

from gossamer.accounting.chain import digest
from gossamer.accounting.recompute import by_observer_of, recompute
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.errors import UserError
from gossamer.results.seals import KEY, SEALS, Sealer
from gossamer.results.verify import Verdict, anchor_of, verify_run
from gossamer.run.assemble import assemble
from gossamer.run.outline import outline
from gossamer.run.train import execute

CHANGES: dict[str, Any] = {
    "nodes": 3, "rounds": 4, "checkpoints.every": 2, "evaluation.every": 2, "topology.kind": "complete",
    "privacy.epsilon": None, "privacy.noise.multiplier": 9.0, "privacy.claim": "none",
}  # fmt: skip


def verdict(run: Path, anchor: str | None = None) -> Verdict:
    return verify_run(run / "ledger", recompute(run / "ledger"), anchor)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("made")
    parts = assemble(outline(resolve(recipes.read("quickstart"), CHANGES)))
    for name in ("run", "twin"):
        execute(parts, out=base / name)
    return base


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made / "run", tmp_path / "run")


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def unsigned(run: Path) -> Path:
    """The same run as if there had never been a key: then only what the ledgers say can be compared."""
    (run / SEALS).unlink()
    edit(run / "manifest.json", lambda m: [m.pop(key) for key in ("key", "nonce")])
    heads = [rechained(path, header=True) for path in sorted((run / "ledger").glob("*.jsonl"))]
    edit(run / "certificate.json", lambda c: c.update(ledger_heads=heads))
    return run


def rechained(
    path: Path, change: Callable[[dict[str, Any]], Any] | None = None, *, header: bool = False
) -> str:
    """Every event changed and the chain made whole again, which takes no key; the new head."""
    first, *events = [json.loads(line) for line in path.read_text().splitlines()]
    if header:
        first = {**{k: v for k, v in first.items() if k not in ("run", "nonce", "key")}, "version": 2}
    lines = [json.dumps(first) + "\n"]
    for event in events:
        if change is not None:
            change(event)
        event.pop("prev")
        text = json.dumps(event, separators=(",", ":"))
        lines.append(f'{text[:-1]},"prev":"{digest(lines[-1].encode())}"}}\n')
    path.write_text("".join(lines))
    return digest(lines[-1].encode())


def test_an_untouched_run_agrees_is_signed_and_has_no_key_left(run: Path) -> None:
    assert verdict(run) == Verdict(certified=True, signed=True)
    assert not (run / KEY).exists()
    assert verdict(run).sentences() == [
        "all chains verify and agree with the certificate", "signed by the run's key"
    ]  # fmt: skip


def test_two_runs_of_one_configuration_have_ledgers_that_differ(made: Path) -> None:
    one, two = ((made / name / "ledger" / "node-000.jsonl").read_text() for name in ("run", "twin"))
    assert one.splitlines()[0] != two.splitlines()[0]
    names = [json.loads(text.splitlines()[0]) for text in (one, two)]
    for key in ("run", "nonce", "key"):
        assert names[0][key] != names[1][key]


STATED: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("epsilon_proven", lambda c: c.update(epsilon_proven=0.001)),
    ("epsilon_proven", lambda c: c.update(epsilon_proven=None)),
    ("epsilon_proven", lambda c: c.update(epsilon_proven="1")),
    ("epsilon_claimed", lambda c: c.update(epsilon_claimed=0.001)),
    ("delta", lambda c: c.update(delta=1e-9)),
    ("delta", lambda c: c.update(delta=None)),
    ("adjacency", lambda c: c.update(adjacency="replace")),
    ("unit", lambda c: c.update(unit="one person")),
    ("observer", lambda c: c.update(observer="a neighbour")),
    ("proven", lambda c: c["epsilon_by_node"][1].update(proven=0.5)),
    (
        "proven",
        lambda c: [c.update(epsilon_proven=0.5), *(e.update(proven=0.5) for e in c["epsilon_by_node"])],
    ),
    ("lower", lambda c: c.update(epsilon_proven_lower=0.0)),
    ("stamp", lambda c: c.update(stamp="seeded noise: no privacy")),
    ("noise_source", lambda c: c.update(noise_source="seeded")),
    ("public_constants", lambda c: c["public_constants"][0].update(records=10**6)),
    ("because", lambda c: c.update(not_proven_because="a reason")),
    ("ledger_heads", lambda c: c.update(draws=c["draws"][:1])),
    ("epsilon_by_node", lambda c: c.update(epsilon_by_node=[1, 2, 3])),
    ("events where 3", lambda c: c["draws"].__setitem__(0, 3)),
]


@pytest.mark.parametrize(("what", "change"), STATED)
def test_every_stated_figure_is_compared_also_without_a_signature(
    run: Path, what: str, change: Callable[[dict[str, Any]], Any]
) -> None:
    assert verdict(unsigned(run)).certified
    edit(run / "certificate.json", change)
    with pytest.raises(UserError, match=what):
        verdict(run)


def test_nodes_that_the_certificate_is_about_must_be_here_or_are_not_said_to_agree(run: Path) -> None:
    edit(unsigned(run) / "manifest.json", lambda m: m.update(ledgers_here=[]))
    with pytest.raises(UserError, match="'ledgers_here' names no node"):
        verdict(run)
    edit(run / "manifest.json", lambda m: m.update(ledgers_here=[0, 2]))
    with pytest.raises(UserError, match=r"node-001\.jsonl is of no node"):
        verdict(run)
    (run / "ledger" / "node-001.jsonl").unlink()
    found = verdict(run)
    assert found.elsewhere == (1,)
    assert "as stated by their ranks" in found.sentences()[0]
    edit(run / "manifest.json", lambda m: m.update(ledgers_here=[0, 1, 2]))
    with pytest.raises(UserError, match=r"node-001\.jsonl is missing"):
        verdict(run)


def test_a_signed_run_does_not_become_an_unsigned_or_another_one(run: Path, made: Path) -> None:
    edit(run / "manifest.json", lambda m: m.update(ledgers_here=[]))
    with pytest.raises(UserError, match="ledgers_here"):
        verdict(run)
    edit(run / "manifest.json", lambda m: m.update(ledgers_here=[0, 1, 2], dimension=3))
    with pytest.raises(UserError, match=r"manifest\.json is not what the run had signed when it began"):
        verdict(run)
    edit(run / "manifest.json", lambda m: m.pop("key"))
    with pytest.raises(UserError, match="belongs to another run"):
        verdict(run)
    shutil.copy(made / "twin" / "manifest.json", run)
    with pytest.raises(UserError, match="belongs to another run"):
        verdict(run)


def noise_times_ten(event: dict[str, Any]) -> None:
    event["sigma"] *= 10


def test_ten_times_the_noise_chained_anew_and_certified_anew_is_noticed(run: Path) -> None:
    heads = [rechained(path, noise_times_ten) for path in sorted((run / "ledger").glob("*.jsonl"))]
    cheaper = [proof.proven.epsilon for proof in recompute(run / "ledger")]

    def certify_anew(c: dict[str, Any]) -> None:
        c.update(ledger_heads=heads, epsilon_proven=max(cheaper))
        c["epsilon_proven_lower"] = max(p.proven.lower or 0.0 for p in recompute(run / "ledger"))
        c.update(by_observer_of(recompute(run / "ledger")))
        for entry, epsilon in zip(c["epsilon_by_node"], cheaper, strict=True):
            entry["proven"] = epsilon

    edit(run / "certificate.json", certify_anew)
    with pytest.raises(UserError, match="no longer holds what was signed after round"):
        verdict(run)


def cut_back(run: Path) -> None:
    """All ledgers end where the checkpoint after round 2 saw them, and the certificate says so."""
    heads = []
    for path in sorted((run / "ledger").glob("*.jsonl")):
        lines = path.read_bytes().splitlines(keepends=True)[:3]
        path.write_bytes(b"".join(lines))
        heads.append(digest(lines[-1]))
    proofs = recompute(run / "ledger")

    def certify_anew(c: dict[str, Any]) -> None:
        c.update(ledger_heads=heads, draws=[2] * 3, epsilon_proven=max(p.proven.epsilon for p in proofs))
        c["epsilon_proven_lower"] = max(p.proven.lower or 0.0 for p in proofs)
        c.update(by_observer_of(proofs))
        for entry, proof in zip(c["epsilon_by_node"], proofs, strict=True):
            entry["proven"] = proof.proven.epsilon

    edit(run / "certificate.json", certify_anew)


def test_tails_cut_back_to_a_checkpoint_are_noticed(run: Path) -> None:
    cut_back(run)
    with pytest.raises(UserError, match="no longer holds the 4 events that were signed after round 4"):
        verdict(run)
    seals = (run / SEALS).read_bytes().splitlines(keepends=True)
    (run / SEALS).write_bytes(b"".join(seals[:3]))  # up to the checkpoint's own seal
    with pytest.raises(UserError, match="does not end with the run's last seal"):
        verdict(run)
    (run / SEALS).write_bytes(b"".join(seals[:1]))
    with pytest.raises(UserError, match="does not begin with the run's first seal"):
        verdict(run)


def test_pages_metrics_and_checkpoints_are_what_was_signed(run: Path) -> None:
    for name in (
        "certificate.html",
        "metrics.jsonl",
        "checkpoints/round-000002.safetensors",
        "topology.json",
    ):
        path = run / name
        whole = path.read_bytes()
        path.write_bytes(whole.replace(b"0", b"1", 1))
        with pytest.raises(UserError, match=path.name):
            verdict(run)
        path.write_bytes(whole)
    (run / "checkpoints" / "round-000002.safetensors").unlink()
    assert verdict(run).signed


def test_an_audits_figures_may_be_added_and_nothing_else(run: Path) -> None:
    edit(run / "certificate.json", lambda c: c.update(epsilon_audited=0.1, violation=False, violated=[]))
    assert verdict(run).signed
    edit(run / "certificate.json", lambda c: c.update(notes=["all is well"]))
    with pytest.raises(UserError, match=r"certificate\.json is not what the run had signed at its end"):
        verdict(run)


def test_a_key_that_is_left_makes_a_signature_worthless(run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    Sealer.create(tmp_path / "elsewhere", "x")
    shutil.copy(tmp_path / "elsewhere" / KEY, run)
    found = verdict(run)
    assert not found.signed
    assert "run.key is still there" in found.sentences()[1]


def test_an_anchor_pins_the_run(run: Path, made: Path) -> None:
    line = anchor_of(run)
    assert "\n" not in line
    assert verdict(run, line).anchored
    assert verdict(run, line).sentences()[-1] == "as published in the anchor"
    with pytest.raises(UserError, match="not the run of this anchor"):
        verdict(run, anchor_of(made / "twin"))
    for wrong in ("", "gossamer:1", line[:-1], line.replace("gossamer:1", "gossamer:2")):
        with pytest.raises(UserError, match="anchor"):
            verdict(run, wrong)
    more = line.split(":")
    more[5] = "99"
    with pytest.raises(UserError, match="no longer holds the 99 seals"):
        verdict(run, ":".join(more))
    with pytest.raises(UserError, match="is not signed, so no anchor"):
        verdict(unsigned(run), line)


def test_an_old_run_agrees_and_says_that_it_is_not_signed(tmp_path: Path) -> None:
    old = copy_of_old_run(tmp_path)
    found = verdict(old)
    assert (found.certified, found.signed) == (True, False)
    assert found.sentences()[1] == "not signed: it was begun before runs had keys"
    with pytest.raises(UserError, match="begun before runs had keys"):
        anchor_of(old)


def test_ledgers_alone_are_not_said_to_agree_with_anything(tmp_path: Path) -> None:
    shutil.copytree(copy_of_old_run(tmp_path) / "ledger", tmp_path / "bare" / "ledger")
    assert verdict(tmp_path / "bare") == Verdict(certified=False, unsigned_because="there is no manifest")
