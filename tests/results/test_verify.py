"""`plan --ledger` says that a run agrees only if all that it states does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.signed_runs import CHANGES, edit, rechained, unsigned, verdict

from gossamer.accounting.chain import digest
from gossamer.accounting.recompute import by_observer_of, recompute
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.errors import UserError
from gossamer.results.seals import KEY, SEALS, Sealer
from gossamer.results.verify import Verdict, anchor_of, look_at, verify_files
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.run import execute


def test_an_untouched_run_agrees_is_signed_and_has_no_key_left(run: Path) -> None:
    assert verdict(run) == Verdict(certified=True, signed=True, models=True)
    assert not (run / KEY).exists()
    assert verdict(run).sentences() == [
        "all chains verify and agree with the certificate", "signed by the run's key"
    ]  # fmt: skip


def test_two_runs_of_one_configuration_have_ledgers_that_differ(made: Path) -> None:
    one, two = ((made / name / "ledger.jsonl").read_text() for name in ("run", "twin"))
    assert one.splitlines()[0] != two.splitlines()[0]
    names = [json.loads(text.splitlines()[0]) for text in (one, two)]
    for key in ("run", "nonce", "key"):
        assert names[0][key] != names[1][key]


def test_a_signed_run_does_not_become_an_unsigned_or_another_one(run: Path, made: Path) -> None:
    edit(run / "manifest.json", lambda m: m.update(ledgers_here=[]))
    with pytest.raises(UserError, match="ledgers_here"):
        verdict(run)
    edit(run / "manifest.json", lambda m: m.update(ledgers_here=[[0, 2]], dimension=3))
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
    heads = [rechained(run / "ledger.jsonl", noise_times_ten)] * 3
    cheaper = [proof.proven.epsilon for proof in recompute(run)]

    def certify_anew(c: dict[str, Any]) -> None:
        c.update(ledger_heads=heads, epsilon_proven=max(cheaper))
        c["epsilon_proven_lower"] = max(p.proven.lower or 0.0 for p in recompute(run))
        c.update(by_observer_of(recompute(run)))
        for entry, epsilon in zip(c["epsilon_by_node"], cheaper, strict=True):
            entry["proven"] = epsilon

    edit(run / "certificate.json", certify_anew)
    with pytest.raises(UserError, match="no longer hold what was signed after round"):
        verdict(run)


def cut_back(run: Path) -> None:
    """All ledgers end where the checkpoint after round 2 saw them, and the certificate says so."""
    lines = (run / "ledger.jsonl").read_bytes().splitlines(keepends=True)[:3]
    (run / "ledger.jsonl").write_bytes(b"".join(lines))
    heads = [digest(lines[-1])] * 3
    proofs = recompute(run)

    def certify_anew(c: dict[str, Any]) -> None:
        c.update(ledger_heads=heads, draws=[2] * 3, epsilon_proven=max(p.proven.epsilon for p in proofs))
        c["epsilon_proven_lower"] = max(p.proven.lower or 0.0 for p in proofs)
        c.update(by_observer_of(proofs))
        for entry, proof in zip(c["epsilon_by_node"], proofs, strict=True):
            entry["proven"] = proof.proven.epsilon

    edit(run / "certificate.json", certify_anew)


def test_tails_cut_back_to_a_checkpoint_are_noticed(run: Path) -> None:
    cut_back(run)
    with pytest.raises(UserError, match="no longer holds the 4 lines that were signed after round 4"):
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


def test_ledgers_alone_are_not_said_to_agree_with_anything(run: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    shutil.copy(unsigned(run) / "ledger.jsonl", tmp_path / "bare")
    assert verdict(tmp_path / "bare") == Verdict(certified=False, unsigned_because="there is no manifest")


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six rounds that signed the second and fourth and was killed after the fifth."""
    place = tmp_path_factory.mktemp("killed") / "run"

    def stop(done: int) -> None:
        if done == 5:
            raise SystemExit  # as a kill would: nothing more is signed

    parts = assemble(Plan.of(resolve(recipes.read("quickstart"), {**CHANGES, "rounds": 6})))
    with pytest.raises(SystemExit):
        execute(parts, out=place, on_round=stop)
    return place


@pytest.fixture
def killed(killed_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(killed_once, tmp_path / "killed")


def test_of_a_killed_run_it_is_said_how_much_is_not_signed(killed: Path) -> None:
    run = killed
    found = verdict(run)
    assert (found.signed, found.behind) == (False, 3)  # one round of three nodes
    said = found.sentences()[1]
    assert "not signed: the run has not ended; its last seal is of round 4, and 3 events behind it" in said
    assert "are chained but not signed" in said
    assert verify_files(run) == look_at(run) == found
    for path in run.glob("ledger*.jsonl"):  # the promise of the sentence
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert verdict(run).behind == 0
    assert "behind" not in verdict(run).sentences()[1]
    for path in run.glob("ledger*.jsonl"):
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match="no longer holds the 4 lines that were signed after round 4"):
        verify_files(run)


def test_what_is_only_shown_is_verified_too_and_says_so_instead_of_ending(run: Path, made: Path) -> None:
    assert look_at(run) == verdict(run)
    assert verify_files(run).signed
    edit(run / "certificate.json", lambda c: c.update(epsilon_proven=0.001))
    assert look_at(run).broken is not None
    (said,) = look_at(run).sentences()
    assert said.startswith("this does not verify: ")
    assert "epsilon_proven" in said
    with pytest.raises(UserError, match=r"certificate\.json is not what the run had signed at its end"):
        verify_files(run)


def test_a_signed_run_cannot_be_shown_as_one_from_before_there_were_keys(run: Path) -> None:
    (run / SEALS).unlink()
    edit(
        run / "manifest.json",
        lambda m: [m.pop(key) for key in ("key", "nonce")] + [m.update(ledgers_here=[])],
    )
    with pytest.raises(UserError, match="belongs to another run"):
        verify_files(run)


def test_events_behind_the_end_are_noticed_without_pricing_them(run: Path) -> None:
    path = run / "ledger.jsonl"
    last = path.read_bytes().splitlines(keepends=True)[-1]
    more = last.rpartition(b',"prev":"')[0] + f',"prev":"{digest(last)}"}}\n'.encode()
    path.write_bytes(path.read_bytes() + more)
    with pytest.raises(UserError, match="has 3 events more in its ledgers than were signed at the run's end"):
        verify_files(run)


def signs_anything(run: Path, **changes: Any) -> None:
    """Whoever made the run signs a seal that this program would not write, with the run's own (kept) key."""
    sealer = Sealer.resume(
        run, *(json.loads((run / "manifest.json").read_text())[key] for key in ("run", "key"))
    )
    said = {
        "number": sealer.made,
        "run": sealer._run,
        "kind": "end",
        "round": 4,
        "events": 4,
        "heads": "",
        "files": {},
    }
    text = json.dumps({**said, **changes})
    signature = sealer._key.sign(b"gossamer seal 1\n" + text.encode()).hex()
    with open(run / SEALS, "a") as file:
        file.write(f'{text[:-1]},"signature":"{signature}","prev":"{sealer._head}"}}\n')


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": None}, {"round": "\x1b[2J"}, {"events": "x"}, {"events": [1, 2]}, {"events": -1}, {"heads": 5},
        {"files": [1]}, {"files": {"../../x": "0"}}, {"files": {"/etc/hostname": "0"}}, {"files": {"metrics.jsonl": 7}},
    ],
)  # fmt: skip
def test_a_signature_over_nonsense_is_a_sentence_too(changes: dict[str, Any], killed: Path) -> None:
    signs_anything(killed, **changes)
    found = look_at(killed)
    assert found.broken is not None
    assert "\x1b" not in found.broken


def test_figures_of_another_kind_are_a_sentence_not_a_traceback(run: Path) -> None:
    edit(unsigned(run) / "certificate.json", lambda c: c["epsilon_by_node"][0].update(claimed={"a": 1}))
    edit(run / "certificate.json", lambda c: c["epsilon_by_node"][1].update(claimed="1"))
    assert "does not hold what `gossamer run` writes (TypeError)" in str(look_at(run).broken)


def test_a_last_line_without_its_end_says_the_same(run: Path) -> None:
    path = run / "ledger.jsonl"
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    assert verify_files(run).behind == 0
