"""What is read of a directory that grows, is damaged, or was made by somebody else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossamer.errors import UserError
from gossamer.results import live
from gossamer.results.certificate import OBSERVER
from gossamer.results.live import Evaluation, WatchedRun, sections


def test_a_finished_run_is_read_as_its_files_say(run: Path) -> None:
    view = WatchedRun(run).look()
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    certificate = json.loads((run / "certificate.json").read_text())
    assert [one.round for one in view.evaluations] == [row["round"] for row in rows]
    assert view.evaluations[-1].proven == rows[-1]["epsilon_proven"]
    assert view.evaluations[-1].quality[1] == 100 * rows[-1]["accuracy_min"]
    assert set(view.draws) == set(certificate["draws"])
    assert view.certificate == certificate
    assert view.stamp == certificate["stamp"]
    assert view.terms[-1] == f"observer: {certificate['observer']}"


def test_before_the_certificate_the_ledgers_say_what_epsilon_means(run: Path) -> None:
    before = WatchedRun(run).look().terms
    (run / "certificate.json").unlink()
    view = WatchedRun(run).look()
    assert view.certificate is None
    assert view.terms == before
    assert view.terms[-1] == f"observer: {OBSERVER}"
    (run / "ledger.jsonl").unlink()
    terms = WatchedRun(run).look().terms
    assert terms[0] == before[0]  # δ and adjacency stand in the configuration, too
    assert "not yet on file" in terms[2]
    assert "the certificate will name it" in terms[3]


def test_growing_files_are_followed_and_torn_lines_wait(run: Path) -> None:
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    ledger = run / "ledger.jsonl"
    events = ledger.read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(lines[0] + lines[1][:30])
    ledger.write_bytes(events[0] + events[1][:10])
    watch = WatchedRun(run)
    view = watch.look()
    assert (len(view.evaluations), view.draws[0]) == (1, 0)
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(lines[1][30:])
    with ledger.open("ab") as file:
        file.write(events[1][10:])
    view = watch.look()
    assert (len(view.evaluations), view.draws[0]) == (2, 1)
    (run / "metrics.jsonl").write_bytes(lines[0])  # a run that goes on from a checkpoint trims them
    assert len(watch.look().evaluations) == 1


@pytest.mark.parametrize("missing", ["config.toml", "manifest.json"])
def test_no_run_is_one_sentence(run: Path, missing: str) -> None:
    (run / missing).unlink()
    with pytest.raises(UserError, match=f"has no {missing}"):
        WatchedRun(run)
    with pytest.raises(UserError, match="there is no such directory"):
        WatchedRun(run / "nowhere")


def test_figures_that_no_epsilon_covers_carry_the_reason() -> None:
    row = {"round": 1, "epsilon_proven": 1.0, "bytes_sent": 3}
    assert Evaluation.of_row({**row, "accuracy_mean": 0.5}).not_private is None  # type: ignore[union-attr]
    hidden = {"because": "the models never leave", "accuracy_mean": 0.5, "gradient_norm": [1.0]}
    found = Evaluation.of_row({**row, "not_private": hidden})
    assert found is not None
    assert found.quality[0] == 50.0
    assert found.not_private == "the models never leave"
    held = Evaluation.of_row({**row, "accuracy_mean": 0.5, "hold_out": "not declared public"})
    assert held is not None
    assert held.not_private == "the hold-out is not declared public"


def test_so_many_evaluations_and_ledgers_and_no_more(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_LEDGERS", 3)
    monkeypatch.setattr(live, "LARGEST", 500)
    with (run / "metrics.jsonl").open("w") as file:
        for k in range(1, 20_001):
            file.write(f'{{"round": {k}, "accuracy_mean": 0.5}}\n')
    for first in range(1, 9):
        shutil.copy(run / "ledger.jsonl", run / f"ledger-{first:03d}.jsonl")
    view = WatchedRun(run).look()
    rounds = [one.round for one in view.evaluations]
    assert len(rounds) <= live.MOST_POINTS
    assert rounds[0] == 1
    assert rounds[-live.LAST_LINES :] == list(range(20_001 - live.LAST_LINES, 20_001))
    assert rounds == sorted(set(rounds))
    assert len(view.draws) == 3
    assert view.topology is None  # larger than is read


def test_the_folder_of_a_peers_study_leads_to_its_run(run: Path, tmp_path: Path) -> None:
    peer = tmp_path / "readmission-1"
    peer.mkdir()
    (peer / "run").symlink_to(run)
    assert WatchedRun(peer).look() == WatchedRun(run).look()


def test_links_of_a_peer_are_read_where_they_are(run: Path) -> None:
    watch = WatchedRun(run)
    assert watch.look().links is None
    (run / "links.json").write_text(json.dumps({"a": "up", "b": {"state": "down"}, "c": "odd", "d": 3}))
    assert watch.look().links == {"a": "up", "b": "down"}
    (run / "links.json").write_text(json.dumps({"site": "mercy", "links": {"a": "up"}}))
    assert watch.look().links == {"a": "up"}
    assert watch.look().site == "mercy"
    (run / "links.json").write_text("[]")
    assert watch.look().links is None
    for k, state in ((90, "up"), (91, "suspect")):  # or with every evaluation
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"round": k, "links": {"a": state}}) + "\n")
        assert watch.look().links == {"a": state}


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(10**400), 10**400) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = {
    "metrics.jsonl": [
        "round",
        "accuracy_mean",
        "not_private",
        "metric",
        "epsilon_proven",
        "consensus_distance",
    ],
    "certificate.json": [
        "delta",
        "adjacency",
        "epsilon_proven",
        "violated",
        "not_proven_because",
        "observer",
    ],
    "topology.json": ["nodes", "edges", "figures", "period", "kind"],
    "manifest.json": ["name", "noise", "site"],
    "links.json": ["a", "links"],
}


@given(data=st.data())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_content_of_a_file_ends_the_page(data: st.DataObject, made: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(made / "run", run)
    name = data.draw(st.sampled_from(sorted(KEYS)))
    content: Any = {"round": 5} | {key: data.draw(JSON) for key in KEYS[name]}
    text = json.dumps(content) + "\n"
    if data.draw(st.booleans()):
        text = data.draw(JSON.map(json.dumps)) + "\n"
    (run / name).write_text(text)
    parts = sections(WatchedRun(run).look())
    assert parts["head"]
    assert not any("<script" in part for part in parts.values())


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff\xfe\x00", b'{"a": 1e999}', b"", b"9" * 5000])
@pytest.mark.parametrize("name", ["manifest.json", "config.toml", "topology.json", "certificate.json"])
def test_no_bytes_of_a_file_end_the_page(run: Path, name: str, content: bytes) -> None:
    (run / name).write_bytes(content)
    (run / "metrics.jsonl").write_bytes(content + b"\n")
    (run / "ledger.jsonl").write_bytes(content + b"\n" + content + b"\n")
    assert "not private" not in sections(WatchedRun(run).look())["head"]
