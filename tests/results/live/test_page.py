"""What the page says: ε never alone, marks and stamps kept, nothing of a file as markup."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.support.certificates import certificate

from gossamer.results.live import STATES, WatchedRun, page, sections

BAD = "<img src=x onerror=document.title='run'>"


def parts(run: Path) -> dict[str, str]:
    return sections(WatchedRun(run).look())


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def running(run: Path, *rows: dict[str, object]) -> None:
    (run / "certificate.json").unlink()
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def asked(run: Path, line: str) -> None:
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace("[privacy]\n", f"[privacy]\n{line}\n"))


def test_proven_stands_first_and_the_terms_beside_it(run: Path) -> None:
    (run / "certificate.json").write_text(json.dumps(certificate()))
    text = parts(run)["privacy"]
    assert text.index("ε ≤ 2.5") < text.index("ε = 1.25")
    assert "δ = 1e-05; add-remove; unit: one record of one node; observer: everyone" in text
    assert "shown by an attack" not in text
    edit(run / "certificate.json", epsilon_audited=0.5, violated=["claimed"])
    text = parts(run)["privacy"]
    assert "ε ≥ 0.5" in text
    assert "An attack shows more than was stated: claimed" in text


def test_a_site_speaks_of_its_own_model_alone(run: Path) -> None:
    running(
        run,
        {"round": 4, "accuracy_mean": 0.5, "accuracy_min": 0.5, "accuracy_max": 0.5, "links": {"b": "up"}},
    )
    found = parts(run)
    assert "50, of this site's model" in found["quality"]
    assert "one site of a consortium" in found["head"]
    assert "A site has its own model alone" in found["consensus"]
    assert not any("over nodes" in text or "simulator" in text for text in found.values())


def test_no_epsilon_stands_in_a_section_without_its_terms(run: Path) -> None:
    for name, text in parts(run).items():
        if re.search(r"ε [≤=≥] [\d.]", text):
            assert "δ = " in text, name
            assert "observer: " in text, name


@pytest.mark.parametrize(
    ("mode", "said", "value"),
    [("sound", "of the proven figure; 25%", "25"), ("paper", "of the claimed figure; 12.5%", "12.5")],
)
def test_what_is_spent_is_held_against_what_was_asked(run: Path, mode: str, said: str, value: str) -> None:
    running(run, {"round": 2, "epsilon_proven": 2.0, "epsilon_claimed": 1.0})
    asked(run, "epsilon = 8.0")
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace('mode = "sound"', f'mode = "{mode}"'))
    text = parts(run)["privacy"]
    assert f"ε = 8 was asked for, {said} of it is spent" in text
    assert f'<progress max="100" value="{value}"' in text
    assert "asked for: 8" in parts(run)["epsilon"]


def test_budgets_that_differ_by_node_are_a_range(run: Path) -> None:
    running(run, {"round": 2, "epsilon_proven": 2.0})
    asked(run, "epsilon = [3.0, 1.0, 2.0]")
    assert "ε from 1 to 3 was asked for, by node" in parts(run)["privacy"]


def test_what_is_not_private_is_said_to_be_and_diagnostics_are_not_shown(run: Path) -> None:
    hidden = {"because": "they come from records", "accuracy_mean": 0.25, "gradient_norm": [77.125]}
    running(run, {"round": 2, "not_private": hidden})
    found = parts(run)
    assert "Not private, and not to be passed on" in found["head"]
    assert "they come from records" in found["head"]
    assert "Accuracy (%) over rounds (not private)" in found["quality"]
    assert "mean 25" in found["quality"]
    assert "; not private" in found["log"]
    assert "77.1" not in "".join(found.values())


def test_seeded_noise_is_stamped_and_secret_noise_is_not(run: Path) -> None:
    assert 'class="stamp"' not in parts(run)["head"]
    edit(run / "manifest.json", noise="seeded noise: no privacy")
    assert '<p class="stamp">seeded noise: no privacy: the figures are' in parts(run)["head"]


def test_a_run_that_has_evaluated_nothing_yet_has_a_page(run: Path) -> None:
    for name in ("certificate.json", "metrics.jsonl", "topology.json"):
        (run / name).unlink()
    found = parts(run)
    assert "evaluated after 0 of 4 rounds" in found["head"]
    assert all("No evaluation yet." in found[name] for name in ("quality", "consensus", "epsilon", "log"))
    assert "ε ≤ —" in found["privacy"]


def test_everything_from_files_is_escaped(run: Path) -> None:
    changed = dict.fromkeys(("unit", "observer", "adjacency", "claim_reference", "not_proven_because"), BAD)
    edit(run / "certificate.json", **changed, violated=[BAD])
    edit(run / "manifest.json", name=BAD, noise=BAD, site=BAD)
    edit(run / "topology.json", kind=BAD)
    hidden = {"because": BAD, "accuracy_mean": 0.5}
    (run / "metrics.jsonl").write_text(json.dumps({"round": 1, "not_private": hidden}) + "\n")
    without_links = parts(run)
    (run / "links.json").write_text(json.dumps({BAD: "up"}))
    for text in [*without_links.values(), *parts(run).values(), page(parts(run), "n")]:
        assert "<img" not in text
    assert "&lt;img" in without_links["head"]


def test_the_page_asks_nobody_and_has_no_script_or_style_without_the_nonce(run: Path) -> None:
    text = page(parts(run), "abc")
    assert re.findall(r"<(?:script|style)[^>]*>", text) == ['<style nonce="abc">', '<script nonce="abc">']
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)
    assert not re.search(r"""\s(style|on\w+)=""", text)  # the policy would refuse them


def test_the_links_of_a_site_show_their_state_by_colour_dashes_sign_and_word(run: Path) -> None:
    (run / "links.json").write_text(json.dumps({"a": "up", "b": "suspect", "<i>c</i>": "down"}))
    text = parts(run)["topology"]
    assert "<i>" not in text
    assert "1 up, 1 suspect, 1 down." in text
    for state, (colour, dash, sign) in STATES.items():
        assert f">{sign} {state} (1)<" in text
        assert f'stroke="{colour}"' + (f' stroke-dasharray="{dash}"' if dash else "") in text
    assert len({dash for _, dash, _ in STATES.values()}) == len(STATES)
    (run / "links.json").write_text(json.dumps({f"s{i}": "up" for i in range(500)}))
    assert "The first 40 are drawn" in parts(run)["topology"]
