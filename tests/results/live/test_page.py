"""The live page's sections: ε never alone, marks and stamps shown, nothing of a file as markup."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.certificates import certificate
from tests.support.refusals import expect_refusal

from gossamer.results.live import SIGNS, LiveRun
from gossamer.results.pages import render

BAD = "<img src=x onerror=document.title='run'>"


def parts(run: Path) -> dict[str, str]:
    return LiveRun(run).sections()


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def running(run: Path, *rows: dict[str, object]) -> None:
    (run / "certificate.json").unlink()
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def asked(run: Path, line: str) -> None:
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace("[privacy]\n", f"[privacy]\n{line}\n"))


@pytest.mark.parametrize("missing", ["config.toml", "manifest.json"])
def test_no_run_is_one_sentence(run: Path, missing: str) -> None:
    (run / missing).unlink()
    with expect_refusal(key="run", names=[missing]):
        LiveRun(run)
    with expect_refusal(key="nowhere", names="directory"):
        LiveRun(run / "nowhere")


def test_a_growing_run_is_followed_and_a_torn_line_waits(run: Path) -> None:
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text(lines[0] + lines[1][:30])
    live = LiveRun(run)
    assert "evaluated after 2 of 4 rounds" in live.sections()["head"]
    assert live.sections() is live.sections()  # nothing is rendered again
    with (run / "metrics.jsonl").open("a") as file:
        file.write(lines[1][30:])
    assert "evaluated after 4 of 4 rounds" in live.sections()["head"]


def test_before_the_certificate_the_terms_of_epsilon_are_the_plans(run: Path) -> None:
    terms = re.search(r"<p>All at (.*)\.</p>", parts(run)["privacy"])
    assert terms
    (run / "certificate.json").unlink()
    text = parts(run)["privacy"]
    assert f"<p>All at {terms[1]}.</p>" in text
    assert "spent by the worst node so far" in text


def test_proven_is_first_and_the_terms_are_next_to_it(run: Path) -> None:
    (run / "certificate.json").write_text(json.dumps(certificate()))
    text = parts(run)["privacy"]
    assert text.index("ε ≤ 2.5") < text.index("ε = 1.25")
    assert "δ = 1e-05, add-remove, unit: one record of one node; observer: everyone" in text
    assert "shown by an attack" not in text
    edit(run / "certificate.json", epsilon_audited=0.5, violated=["claimed"])
    text = parts(run)["privacy"]
    assert "ε ≥ 0.5" in text
    assert "An attack shows more than was stated: claimed" in text


def test_a_site_shows_its_own_model_and_its_links(run: Path) -> None:
    states = {"b": "up", "<i>c</i>": "suspect", "d": "down"}
    (run / "links.json").write_text(json.dumps({"site": "mercy", "links": states}))
    running(run, {"round": 4, "accuracy_mean": 0.5, "accuracy_min": 0.5, "accuracy_max": 0.5, "links": states})
    found = parts(run)
    assert "one site of a consortium" in found["head"]
    assert "This site&#39;s own model." in found["plots"]
    assert "Consensus" not in found["plots"]
    assert "✓ b up, ? &lt;i&gt;c&lt;/i&gt; suspect, ✕ d down" in found["head"]
    assert len(set(SIGNS.values())) == 3
    assert not any("over nodes" in text or "simulator" in text for text in found.values())


def test_the_folder_of_a_sites_study_leads_to_its_run(run: Path, tmp_path: Path) -> None:
    site = tmp_path / "readmission-1"
    site.mkdir()
    (site / "run").symlink_to(run)
    assert parts(site) == parts(run)


@pytest.mark.parametrize(
    ("mode", "words", "value"),
    [("sound", "of the proven figure; 25%", "25"), ("paper", "of the claimed figure; 12.5%", "12.5")],
)
def test_what_is_spent_is_compared_with_what_was_asked_for(run: Path, mode: str, words: str, value: str) -> None:
    running(run, {"round": 2, "epsilon_proven": 2.0, "epsilon_claimed": 1.0})
    asked(run, "epsilon = 8.0")
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace('mode = "sound"', f'mode = "{mode}"'))
    text = parts(run)["privacy"]
    assert f"ε = 8 was asked for, {words} of it is spent" in text
    assert f'<progress max="100" value="{value}"' in text
    assert "asked for: 8" in parts(run)["plots"]


def test_budgets_that_differ_by_node_are_a_range(run: Path) -> None:
    running(run, {"round": 2, "epsilon_proven": 2.0})
    asked(run, "epsilon = [3.0, 1.0, 2.0]")
    assert "ε from 1 to 3 was asked for, by node" in parts(run)["privacy"]


def test_what_is_not_private_is_marked(run: Path) -> None:
    hidden = {"because": "they come from records", "accuracy_mean": 0.25}
    running(run, {"round": 2, "not_private": hidden})
    found = parts(run)
    assert "no ε covers them: they come from records. Do not pass this page on" in found["head"]
    assert "Accuracy (not private)" in found["plots"]
    assert "25.0% (not private)" in found["log"]


def test_seeded_noise_is_stamped_and_secret_noise_is_not(run: Path) -> None:
    assert 'class="stamp"' not in parts(run)["head"]
    edit(run / "manifest.json", noise="seeded noise: no privacy")
    assert '<p class="stamp">seeded noise: no privacy: the figures are' in parts(run)["head"]


def test_a_run_that_has_evaluated_nothing_yet_has_a_page(run: Path) -> None:
    for name in ("certificate.json", "metrics.jsonl"):
        (run / name).unlink()
    found = parts(run)
    assert "evaluated after 0 of 4 rounds" in found["head"]
    assert "No evaluation yet." in found["log"]
    assert "ε ≤ —" in found["privacy"]
    assert "Topology" in found["plots"]


def test_everything_from_files_is_escaped(run: Path) -> None:
    changed = dict.fromkeys(("unit", "observer", "adjacency", "claim_reference", "not_proven_because"), BAD)
    edit(run / "certificate.json", **changed, violated=[BAD])
    edit(run / "manifest.json", name=BAD, noise=BAD)
    edit(run / "topology.json", kind=BAD)
    hidden = {"because": BAD, "accuracy_mean": 0.5}
    (run / "metrics.jsonl").write_text(json.dumps({"round": 1, "not_private": hidden}) + "\n")
    (run / "links.json").write_text(json.dumps({"links": {BAD: "up"}}))
    found = parts(run)
    for text in [*found.values(), render("live", parts=found, nonce="n")]:
        assert "<img" not in text
    assert all("&lt;img" in found[name] for name in ("head", "privacy", "plots"))


def test_the_page_asks_nobody_and_has_no_script_or_style_without_the_nonce(run: Path) -> None:
    text = render("live", parts=parts(run), nonce="abc")
    assert re.findall(r"<(?:script|style)[^>]*>", text) == ['<style nonce="abc">', '<script nonce="abc">']
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)
    assert not re.search(r"""\s(style|on\w+)=""", text)  # the policy would refuse them


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(10**400), 10**400) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = {
    "metrics.jsonl": ["round", "accuracy_mean", "not_private", "metric", "epsilon_proven", "bytes_sent"],
    "certificate.json": ["delta", "adjacency", "epsilon_proven", "violated", "observer"],
    "topology.json": ["nodes", "edges", "figures", "period", "kind"],
    "manifest.json": ["name", "noise", "site"],
    "plan.json": ["delta", "observer", "claim_reference"],
    "links.json": ["site", "links"],
}


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_content_of_a_file_ends_the_page(data: st.DataObject, made: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(made / "run", run)
    live = LiveRun(run)
    name = data.draw(st.sampled_from(sorted(KEYS)))
    content: Any = {"round": 5} | {key: data.draw(JSON) for key in KEYS[name]}
    text = json.dumps(content) + "\n"
    if data.draw(st.booleans()):
        text = data.draw(JSON.map(json.dumps)) + "\n"
    (run / name).write_text(text)
    found = live.sections()
    assert all(found.values())
    assert not any("<script" in part for part in found.values())


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff\xfe\x00", b'{"a": 1e999}', b"", b"9" * 5000])
@pytest.mark.parametrize("name", ["manifest.json", "config.toml", "topology.json", "certificate.json"])
def test_no_bytes_of_a_file_end_the_page(run: Path, name: str, content: bytes) -> None:
    live = LiveRun(run)
    (run / name).write_bytes(content)
    (run / "metrics.jsonl").write_bytes(content + b"\n")
    assert any("This cannot be shown: " in part for part in live.sections().values())
