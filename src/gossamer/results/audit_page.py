"""An audit for people: what was tried, what it shows, the ROC curve with what is proven allows, the scores."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gossamer.accounting.tradeoff import TradeOff
from gossamer.results.certificate import epsilon_text
from gossamer.results.certificate_page import POLICY, STYLE, boxes

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 460, 330, 58, 44
_LEAST = 1e-4  # where the logarithmic axes begin
_IN, _OUT, _CURVE = "#d55e00", "#0072b2", "#1f2328"
_ROUNDING = 1e-6  # of a bound: less is not worth a word
STOPS = "a record can stop the run, which everyone sees and no ε covers:"
_LIMITS = {"claimed": "#b03030", "proven": "#009e73"}


def page(result: dict[str, Any], name: str) -> str:
    e = html.escape
    stamp = f'<p class="stamp">{e(result["stamp"])}</p>' if result["stamp"] else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8">{POLICY}<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Audit: {e(name)}</title><style>{STYLE}</style><h1>Audit</h1><p>{e(name)}: {e(result['method'])}, "
        f"{e(result['mode'])} mode</p>{stamp}{boxes(result)}{section(result)}</html>\n"
    )


def section(c: dict[str, Any]) -> str:
    """What a certificate with an audit has to say of it."""
    a, e = c["audit"], html.escape
    if not a["bounds"]:  # a search alone
        return f"<h2>What the attack shows</h2><p><b>{e(verdict(c))}</b></p>{search_section(a)}"
    facts = [
        ("observer", a.get("observer", c["observer"])),
        ("canaries", a["canaries"]),
        ("tried", trials(a)),
        ("coins", f"{a['coins']:,}"),
        ("δ, adjacency, unit", f"{c['delta']:g}, {c['adjacency']}, {c['unit']}"),
    ]
    rows = "".join(
        f"<tr><td>{'<b>' * (not i)}{e(b['name'])}{'</b>' * (not i)}<td>{epsilon_text(b['epsilon'])}<td>{b['confidence']:.4g}<td>{e(b['rests_on'])}"
        for i, b in enumerate(a["bounds"])
    )
    notes = "".join(f"<p>{e(note)}</p>" for note in a["notes"])
    tests = "".join(
        f"<tr><td>{'<b>' * (not i)}{e(t['name'])}{'</b>' * (not i)}<td>{e(t['says'])}"
        f"<td>{'outside' if t['violated'] else 'inside'}<td>{t['confidence']:.4g}<td>{e(t['rests_on'])}"
        for i, t in enumerate(a.get("curve_tests", []))
    )
    if tests:
        tests = (
            "<h3>Against everything that is proven</h3><p>What is proven is a curve, δ at every ε, of which the printed "
            "ε and δ are one point. The first line decides whether the proof is broken.</p>"
            '<div class="scroll"><table><tr><th>test<th>what was found<th>the proven curve<th>confidence<th>rests on</tr>'
            f"{tests}</table></div><h3>At the one point δ = {c['delta']:g}</h3>"
        )
    return (
        f"<h2>What the attack shows</h2><p><b>{e(verdict(c))}</b></p>{tests}"
        f'<div class="scroll"><table><tr><th>bound<th>ε ≥<th>confidence<th>rests on</tr>{rows}</table></div>'
        "<p>The first line is the declared one; the others stand beside it.</p>"
        f"<table>{''.join(f'<tr><th>{e(k)}<td>{e(str(v))}' for k, v in facts)}</table>{notes}{search_section(a)}"
        f"<h2>ROC curve, and what is promised</h2>{roc_picture(c)}<h2>Scores</h2>{score_picture(a['histogram'])}"
    )


def trials(a: dict[str, Any]) -> str:
    """How often the attack was tried, and on what: trainings, or draws of the mechanism without any."""
    if not a.get("trained", True):
        return (
            f"{a['runs']:,} draws of the mechanism, in one dimension, in {a['training_seconds']:.1f} s; no model was "
            "trained"
        )
    return (
        f"{a['runs']:,} trainings in {a['training_seconds']:.1f} s ({a['samples_per_second']:,.0f} records/s)"
    )


def search_section(a: dict[str, Any]) -> str:
    """How far single records moved what they may move, if that was searched for."""
    found, e = a.get("sensitivity"), html.escape
    if not found:
        return ""
    rows = "".join(
        f"<tr><td>{'<b>' * one['broken']}{e(one['place'])}{'</b>' * one['broken']}<td>{_moved(one)}<td>{allowed(one)}<td>{e(one['record'])}<td>{e(one['lot'])}"
        for one in found["movements"]
    )
    stopped = f"<p>{e(STOPS)} {e(found['stopped'])}</p>" if found["stopped"] else ""
    cut = "" if found["in_time"] else " (cut short: no time was left)"
    return (
        f"<h2>How far one record moves a sum</h2><p>{found['tried']:,} records tried in {found['seconds']:.1f} s{cut}. "
        "Distances are in bounds: what the noise is scaled to. A search that finds nothing proves nothing.</p>"
        f'<div class="scroll"><table><tr><th>what moved<th>by<th>allowed<th>record<th>lot</tr>{rows}</table></div>{stopped}'
    )


def allowed(one: dict[str, Any]) -> str:
    """How far a figure may move, and what float32 alone was measured to make of it."""
    return f"{one['priced']:g}" + (
        f" + {one['rounding']:.0e} rounding" if one["rounding"] > _ROUNDING else ""
    )


def _moved(one: dict[str, Any]) -> str:
    return "to what is not finite" if one["moved"] is None else f"{one['moved']:.6g}"


def verdict(c: dict[str, Any]) -> str:
    """One sentence, or two where a search stands beside coins: the broken one first."""
    a = c["audit"]
    found, coins = a.get("sensitivity"), bool(a["bounds"])
    said = [_verdict_of_search(found)] if found else []
    said += [words] if (words := standing(c)) else []
    if coins and found and found["broken"] and not _broken_figures(c):
        said.append(f"By coins alone {_attack(a)} shows {_shown(c)}.")
    elif coins:
        said.insert(0, _verdict_of_coins(c))
    return " ".join(said)


def _verdict_of_search(found: dict[str, Any]) -> str:
    worst = found["movements"][0] if found["movements"] else None
    if found["broken"] and worst:
        size = "to what is not finite" if worst["moved"] is None else f"by {worst['moved']:.4g} bounds"
        return (
            f"Violation: one record moves {worst['place']} {size}, where {worst['priced']:g} is allowed: no ε printed "
            "for this module holds."
        )
    return f"No record of {found['tried']:,} tried moves more than its bound."


def _verdict_of_coins(c: dict[str, Any]) -> str:
    """What is broken, by what; then the figure at one point."""
    a, violated = c["audit"], _broken_figures(c)
    shown = _shown(c)
    tests = a.get("curve_tests", [])
    by_curve = bool(tests) and "proven" in violated
    by_point = [key for key in violated if not (by_curve and key == "proven")]
    found = []
    if by_curve:
        found.append(
            f"Violation: {_attack(a)} is outside of what is proven at {a['confidence']:.4g} confidence: {tests[0]['says']}."
        )
    if by_point:
        broken = " and ".join(f"{key} ε = {epsilon_text(_promise(c, key))}" for key in by_point)
        found.append(f"Violation: {_attack(a)} shows {shown}, above the {broken}.")
    elif by_curve:
        above = "is above" if "proven" in a["above_one_point"] else "alone would not tell"
        found.append(f"The one point (ε, δ) {above}: {shown}.")
    if not found:
        curve = " It is inside of the whole proven curve." if tests else ""
        return f"No violation found: {_attack(a)} shows {shown}.{curve}"
    return " ".join(found)


def standing(c: dict[str, Any]) -> str | None:
    """What an observer who holds other secrets than was planned for is held against, and what the plan says."""
    held = c["audit"].get("held_against")
    if not held:
        return None
    count, planned = held["colluders"], held["colluders_planned"]
    own, of_plan = epsilon_text(held["epsilon_proven"]), epsilon_text(held["epsilon_proven_as_planned"])
    more = ", more than was planned for" if count > planned else ""
    beyond = held["epsilon_proven_as_planned"] is not None and (
        c["epsilon_audited"] > held["epsilon_proven_as_planned"]
    )
    return (
        f"This observer holds the secrets of {count} {'node' if count == 1 else 'nodes'}{more}. Proven is ε = {own} "
        f"against it, which it is judged by, and ε = {of_plan} against any {planned}, as planned."
        + (" What it shows is above the planned figure, which was never for it." if beyond else "")
    )


def _promise(c: dict[str, Any], key: str) -> float | None:
    """The ε that the observer is held against."""
    held = c["audit"].get("held_against") if key == "proven" else None
    found: float | None = held["epsilon_proven"] if held else c[f"epsilon_{key}"]
    return found


def _broken_figures(c: dict[str, Any]) -> list[str]:
    return [key for key in c["violated"] if key in _LIMITS]


def _attack(a: dict[str, Any]) -> str:
    return f"the attack on {a['attacked']}" if "attacked" in a else "the attack"


def _shown(c: dict[str, Any]) -> str:
    return f"ε ≥ {epsilon_text(c['epsilon_audited'])} at {c['audit']['confidence']:.4g} confidence"


def roc_picture(c: dict[str, Any]) -> str:
    """Logarithmic on both axes, for it is the corner of few false alarms that tells."""
    x, y = _log_axis(_LEFT, _WIDTH - 12), _log_axis(_HEIGHT - _BOTTOM, 12)
    marks, legend = [], []
    for key, colour in _LIMITS.items():
        epsilon = _promise(c, key)
        if epsilon is None:
            continue
        curve = c["audit"].get("proven_curve") if key == "proven" else None
        allowed = TradeOff(tuple(map(tuple, curve or [(epsilon, c["delta"])])))
        rates = [10 ** (-4 + 4 * i / 100) for i in range(101)]
        limit = list(zip(rates, allowed.most_hits(np.array(rates)).tolist(), strict=True))
        outline = " ".join(f"{x(f):.1f},{y(t):.1f}" for f, t in limit)
        marks.append(
            f'<polygon points="{outline} {x(1):.1f},{y(1):.1f} {x(_LEAST):.1f},{y(1):.1f}" fill="{colour}" opacity=".08"/>'
            f'<polyline points="{outline}" fill="none" stroke="{colour}" stroke-dasharray="5 3" stroke-width="1.5"/>'
        )
        whole = ", with all that is proven at other δ," if curve else ""
        legend.append(
            (
                colour,
                f"beyond this line {key} ε = {epsilon_text(epsilon)}, δ = {c['delta']:g}{whole} is broken",
            )
        )
    seen = " ".join(f"{x(f):.1f},{y(t):.1f}" for f, t in c["audit"]["roc"])
    marks.append(f'<polyline points="{seen}" fill="none" stroke="{_CURVE}" stroke-width="2"/>')
    legend.append((_CURVE, "the attack"))
    ticks = [10.0**-k for k in range(5)]
    axes = _axes([(x(v), f"{v:g}") for v in ticks], [(y(v), f"{v:g}") for v in ticks])
    return _picture(axes + "".join(marks), "false positive rate", "true positive rate", legend)


def score_picture(histogram: dict[str, Sequence[float]]) -> str:
    edges, top = histogram["edges"], max(*histogram["in"], *histogram["out"], 1e-9)
    left, right = edges[0], edges[-1]

    def x(value: float) -> float:
        return _LEFT + (value - left) / (right - left) * (_WIDTH - 12 - _LEFT)

    def y(share: float) -> float:
        return _HEIGHT - _BOTTOM - share / top * (_HEIGHT - _BOTTOM - 12)

    marks = ""
    for side, colour in (("out", _OUT), ("in", _IN)):
        corners = [f"{x(left):.1f},{y(0):.1f}"]
        for k, share in enumerate(histogram[side]):
            corners += [f"{x(edges[k]):.1f},{y(share):.1f}", f"{x(edges[k + 1]):.1f},{y(share):.1f}"]
        corners.append(f"{x(right):.1f},{y(0):.1f}")
        marks += (
            f'<polygon points="{" ".join(corners)}" fill="{colour}" fill-opacity=".3" stroke="{colour}"/>'
        )
    shown = [left + (right - left) * k / 4 for k in range(5)]
    axes = _axes(
        [(x(v), f"{v:.3g}") for v in shown], [(y(top * k / 2), f"{top * k / 2:.2g}") for k in range(3)]
    )
    legend = [(_IN, "canary in (or the one record)"), (_OUT, "canary out (or the other)")]
    return _picture(axes + marks, "score", "share", legend)


def _log_axis(low: float, high: float) -> Callable[[float], float]:
    def place(value: float) -> float:
        return low + (math.log10(max(value, _LEAST)) + 4) / 4 * (high - low)

    return place


def _axes(across: list[tuple[float, str]], up: list[tuple[float, str]]) -> str:
    base = _HEIGHT - _BOTTOM
    lines = "".join(
        f'<line x1="{x:.1f}" y1="12" x2="{x:.1f}" y2="{base}" stroke="#eceef1"/><text x="{x:.1f}" y="{base + 16}" text-anchor="middle">{html.escape(label)}</text>'
        for x, label in across
    )
    return lines + "".join(
        f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - 12}" y2="{y:.1f}" stroke="#eceef1"/><text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{html.escape(label)}</text>'
        for y, label in up
    )


def _picture(marks: str, across: str, up: str, legend: list[tuple[str, str]]) -> str:
    keys = "".join(
        f'<span style="display:inline-block;width:.8em;height:.8em;background:{colour};margin:0 .4em 0 0"></span>{html.escape(text)}<br>'
        for colour, text in legend
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" style="max-width:36rem;width:100%;font:11px system-ui,sans-serif" fill="#1f2328">'
        f'{marks}<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 6}" text-anchor="middle">{across}</text>'
        f'<text transform="translate(13 {(_HEIGHT - _BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{up}</text></svg><p style="font-size:.85rem">{keys}</p>'
    )
