"""The live page: its sections as HTML, drawn anew where they changed, and the little script that puts them in place.

Everything that comes from a file is escaped here, and the page's policy runs no script but its own: two walls.
"""

from __future__ import annotations

import html
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from gossamer.results.certificate import SEEDED, epsilon_text
from gossamer.results.console import size_text
from gossamer.results.headline import in_per_cent, unit
from gossamer.results.line_plot import Line, line_plot
from gossamer.results.live import graph
from gossamer.results.live.watched import LAST_LINES, Evaluation, View, number, text

_PLOT, _MOST_DRAWN = (400, 240), 240
STYLE = """
:root{color-scheme:light}*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;margin:0;color:#1f2328;background:#f6f7f9}
main{max-width:84rem;margin:0 auto;padding:1rem clamp(.75rem,3vw,2rem) 3rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.05rem;margin:0 0 .4rem}p{margin:.3rem 0}
h1,p,li,td{overflow-wrap:anywhere}
.cards{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,23rem),1fr))}
.card{background:#fff;border:1px solid #dfe3e8;border-radius:10px;padding:.9rem 1rem;min-width:0;margin-bottom:1rem}
.cards .card{margin:0}.card svg{display:block;width:100%;max-width:34rem;margin:0 auto}
.boxes{display:grid;gap:.8rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,13rem),1fr))}
.boxes div{border:1px solid #dfe3e8;border-radius:8px;padding:.6rem .9rem}.boxes b{display:block;font-size:1.7rem}
.boxes .first{border:2px solid #1f5fa8}progress{width:100%;height:.8rem;accent-color:#1f5fa8}
.note{color:#57606a;font-size:.85rem}.state{font-weight:600}
.stamp{background:#b03030;color:#fff;padding:.6rem 1rem;border-radius:8px;font-weight:600}
.warn{border:2px solid #b03030;color:#8d1f1f;padding:.5rem .9rem;border-radius:8px}
pre{margin:.3rem 0 0;font-size:.8rem;line-height:1.5;white-space:pre-wrap;overflow-wrap:anywhere}
#feed{float:right;margin:.7rem .8rem;font-size:.85rem;border-radius:1rem;padding:.1rem .7rem;background:#e6e9ee}
#feed.live{background:#d7f0e3;color:#064d34}#feed.lost{background:#fbe3e3;color:#8d1f1f}
.lower{display:grid;gap:1rem;margin-top:1rem;align-items:start}.lower>div,.lower>section{min-width:0}
@media(min-width:60rem){.lower{grid-template-columns:minmax(0,1fr) minmax(0,2fr)}}
"""
SCRIPT = """
const feed = document.getElementById("feed");
const say = (words, kind) => { feed.textContent = words; feed.className = kind; };
const source = new EventSource("/events" + location.search);
source.onopen = () => say("● live", "live");
source.onerror = () => say("○ not fed: is gossamer watch still running?", "lost");
source.onmessage = event => {
  for (const [name, content] of Object.entries(JSON.parse(event.data)))
    document.getElementById(name).innerHTML = content;
};
"""


def sections(view: View) -> dict[str, str]:
    """Each part of the page by the name of its element."""
    drawn: dict[str, Callable[[View], str]] = {
        "head": _head,
        "privacy": _privacy,
        "quality": _quality,
        "consensus": _consensus,
        "epsilon": _epsilon,
        "topology": _topology,
        "traffic": _traffic,
        "log": _log,
    }
    return {name: _drawn(draw, view) for name, draw in drawn.items()}


def _drawn(draw: Callable[[View], str], view: View) -> str:
    try:
        return draw(view)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        # A file is not what a run writes; the other sections are shown all the same.
        return f'<p class="warn">This cannot be shown: a file is not what a run writes ({type(error).__name__}).</p>'


def page(parts: dict[str, str], nonce: str) -> str:
    def place(*names: str) -> str:
        return "".join(f'<section class="card" id="{name}">{parts[name]}</section>' for name in names)

    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" content="no-referrer">'
        f'<title>gossamer watch</title><link rel="icon" href="data:,"><style nonce="{nonce}">{STYLE}</style></head><body><main>'
        f'<p id="feed" role="status">connecting</p>{place("head", "privacy")}'
        f'<div class="cards">{place("quality", "epsilon", "consensus")}</div>'
        f'<div class="lower"><div>{place("topology")}</div><div>{place("traffic", "log")}</div></div>'
        '<p class="note">Read from the files of the run directory, not verified: '
        "<code>gossamer plan --ledger RUN</code> recomputes ε and checks signatures.</p>"
        f'</main><script nonce="{nonce}">{SCRIPT}</script></body></html>\n'
    )


def _head(view: View) -> str:
    done = view.evaluations[-1].round if view.evaluations else 0
    of = f" of {view.rounds:,}" if view.rounds is not None else ""
    state = "finished" if view.certificate is not None else "not finished"
    written = ""
    if view.written is not None:
        written = f"; last written {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(view.written))} UTC"
    bar = ""
    if view.rounds:
        bar = f'<progress max="{view.rounds}" value="{min(done, view.rounds)}" aria-label="rounds done"></progress>'
    stamp = ""
    if view.stamp:
        meaning = ": the figures are those of the same run with secret noise" if view.stamp == SEEDED else ""
        stamp = f'<p class="stamp">{_e(view.stamp + meaning)}</p>'
    hidden = next((one.not_private for one in reversed(view.evaluations) if one.not_private), None)
    warning = (
        f'<p class="warn">Not private, and not to be passed on: accuracies, losses and distances here; {_e(hidden)}.</p>'
        if hidden
        else ""
    )
    return (
        f"<h1>{_e(view.name)}</h1><p>{_e(', '.join(view.facts))}</p>"
        f'<p><span class="state">{state}</span>, evaluated after {done:,}{of} rounds{written}</p>{bar}{stamp}{warning}'
    )


def _privacy(view: View) -> str:
    proven, claimed, audited = _spent(view)
    spent = {"proven": proven, "claimed": claimed}[view.asked_of]
    asked, bar = "no ε was asked for", ""
    if len(view.budget) == 1:
        budget = view.budget[0]
        asked = f"ε = {epsilon_text(budget)} was asked for, of the {view.asked_of} figure"
        if spent is not None and budget > 0:
            bar = f'<progress max="{budget:g}" value="{min(spent, budget):g}" aria-label="ε spent of ε asked for"></progress>'
            asked += (
                f"; {math.floor(1000 * spent / budget) / 10:g}% of it is spent"
                if spent <= 1000 * budget
                else ""
            )
    elif view.budget:
        low, high = epsilon_text(view.budget[0]), epsilon_text(view.budget[-1])
        asked = f"ε from {low} to {high} was asked for, by node, of the {view.asked_of} figure"
    c = view.certificate or {}
    because = text(c.get("not_proven_because"))
    whose = (
        "spent by the worst node" if view.links is None else "of the worst site; of others, what is planned"
    )
    boxes = (
        f'<div class="first">proven<b>ε ≤ {epsilon_text(proven)}</b>'
        f"{_e(f'not proven: {because}' if because else whose + ' so far' * (view.certificate is None))}</div>"
        f"<div>claimed by the paper<b>ε = {epsilon_text(claimed)}</b>{_e(text(c.get('claim_reference'), 'a formula, not a proof'))}</div>"
    )
    if audited is not None:
        boxes += f"<div>shown by an attack<b>ε ≥ {epsilon_text(audited)}</b>an empirical lower bound</div>"
    violated = c.get("violated")
    warning = (
        f'<p class="warn">An attack shows more than was stated: {_e(", ".join(map(text, violated[:5])))}.</p>'
        if isinstance(violated, list) and violated
        else ""
    )
    return (
        f'<h2>Privacy</h2><div class="boxes">{boxes}</div><p>All at {_e("; ".join(view.terms))}.</p>'
        f"<p>{_e(asked)}.</p>{bar}{warning}"
    )


def _spent(view: View) -> tuple[float | None, float | None, float | None]:
    """Proven, claimed, audited: the certificate's once there is one, the last evaluation's before."""
    if view.certificate is not None:
        keys = ("epsilon_proven", "epsilon_claimed", "epsilon_audited")
        proven, claimed, audited = (number(view.certificate.get(key)) for key in keys)
        return proven, claimed, audited
    last = view.evaluations[-1] if view.evaluations else None
    return (None, None, None) if last is None else (last.proven, last.claimed, None)


def _quality(view: View) -> str:
    metric = next((one.metric for one in reversed(view.evaluations) if one.metric), None)
    if metric is None:
        return f"<h2>Accuracy</h2>{_none(view, 'no hold-out figure is on file')}"
    scale = 100.0 if in_per_cent(metric) else 1.0
    rows = [one for one in view.evaluations if one.metric == metric]
    lines, alone = [], view.links is not None  # a site judges its own model
    over_all = (("max over nodes", 2, True), ("mean over nodes", 0, False), ("min over nodes", 1, True))
    for name, k, dashed in (("this site's model", 0, False),) if alone else over_all:
        lines.append(_line(name, rows, lambda one, k=k: _scaled(one.quality[k], scale), dashed=dashed))  # type: ignore[misc]
    mean, low, high = (_scaled(value, scale) for value in rows[-1].quality)
    whose = "nodes" if rows[-1].scored is None else f"{rows[-1].scored:,} nodes drawn by the seed"
    said = f"min {_figure(low)}, mean {_figure(mean)}, max {_figure(high)} over {whose}"
    said = f"{_figure(mean)}, of this site's model" if alone else said
    name = unit(metric)
    return f"<h2>{_e(name[0].upper() + name[1:])} over rounds{_mark(rows)}</h2><p>{_e(said)}</p>{_plot(lines, name)}"


def _consensus(view: View) -> str:
    rows = view.evaluations
    last = next((one.consensus for one in reversed(rows) if one.consensus is not None), None)
    if last is None:
        if view.links is not None:
            return (
                "<h2>Consensus</h2><p>A site has its own model alone: nobody sees how far apart all are.</p>"
            )
        return f"<h2>Consensus</h2>{_none(view, 'no distance is on file')}"
    lines = [_line("distance of the models from their mean", rows, lambda one: one.consensus)]
    return f"<h2>Consensus over rounds{_mark(rows)}</h2><p>distance {_figure(last)}</p>{_plot(lines, 'distance')}"


def _epsilon(view: View) -> str:
    rows = view.evaluations
    lines = [
        _line("proven", rows, lambda one: one.proven, first=(0.0, 0.0)),
        _line("claimed", rows, lambda one: one.claimed, dashed=True, first=(0.0, 0.0)),
    ]
    lines = [line for line in lines if len(line.points) > 1]
    if not lines:
        return f"<h2>ε over rounds</h2>{_none(view, 'no finite ε is on file')}"
    end = max(rows[-1].round, view.rounds or 0)
    lines += [
        Line(f"asked for: {epsilon_text(budget)}", ((0.0, budget), (float(end), budget)), dashed=True)
        for budget in view.budget[:3]
    ]
    terms = "; ".join(view.terms)
    return f'<h2>ε over rounds</h2><p class="note">worst node; {_e(terms)}</p>{_plot(lines, "ε")}'


def _topology(view: View) -> str:
    if view.links is not None:
        return f"<h2>Links</h2>{graph.link_states(view.site or 'this site', view.links)}"
    if view.topology is None:
        return "<h2>Topology</h2><p>No topology is on file yet.</p>"
    done = view.evaluations[-1].round if view.evaluations else 0
    return f"<h2>Topology</h2>{graph.topology(view.topology, done)}"


def _traffic(view: View) -> str:
    rows = []
    last = view.evaluations[-1] if view.evaluations else None
    if last is not None and last.bytes_sent is not None:
        rows.append(
            (f"sent by {'all nodes' if view.links is None else 'this site'}", size_text(last.bytes_sent))
        )
        if last.round:
            rows.append(("a round", size_text(last.bytes_sent / last.round)))
    if last is not None and last.seconds is not None:
        rows.append(("time in rounds", f"{last.seconds:,.1f} s"))
    if view.draws:
        low, high = max(0, min(view.draws)), max(0, *view.draws)
        each = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        ledgers = len(view.draws)
        rows.append(
            ("draws on file", f"{each} in {'each of ' * (ledgers > 1)}{ledgers} ledger{'s' * (ledgers > 1)}")
        )
    shown = "".join(f"<p>{_e(name)}: <b>{_e(value)}</b></p>" for name, value in rows)
    return f"<h2>Bytes and draws</h2>{shown or '<p>Nothing is on file yet.</p>'}"


def _log(view: View) -> str:
    lines = [_words(one) for one in reversed(view.evaluations[-LAST_LINES:])]
    shown = f"<pre>{_e(chr(10).join(lines))}</pre>" if lines else "<p>No evaluation yet.</p>"
    return f"<h2>Last evaluations, newest first</h2>{shown}"


def _words(one: Evaluation) -> str:
    said = [f"round {one.round:,}"]
    if one.metric is not None:
        scale = 100.0 if in_per_cent(one.metric) else 1.0
        mean, low, high = (_figure(_scaled(value, scale)) for value in one.quality)
        spread = f"min {low}, mean {mean}, max {high}" if one.links is None else mean
        said.append(f"{unit(one.metric)} {spread}")
    if one.consensus is not None:
        said.append(f"consensus {_figure(one.consensus)}")
    if one.not_private:
        said.append("not private")
    if one.bytes_sent is not None:
        said.append(f"{size_text(one.bytes_sent)} sent")
    if one.seconds is not None:
        said.append(f"{one.seconds:,.1f} s")
    return "; ".join(said)


def _line(
    name: str,
    rows: Sequence[Evaluation],
    value: Callable[[Evaluation], float | None],
    *,
    dashed: bool = False,
    first: tuple[float, float] | None = None,
) -> Line:
    points = [(float(one.round), y) for one in rows if (y := value(one)) is not None]
    step = max(1, -(-len(points) // _MOST_DRAWN))
    points = points[::-1][::step][::-1]  # the last one always
    return Line(name, (*([first] if first else []), *points), dashed)


def _plot(lines: list[Line], title: str) -> str:
    try:
        drawn = line_plot(lines, "", title, size=_PLOT, dots=max(len(line.points) for line in lines) <= 40)
    except ArithmeticError:  # figures so far apart that no axis holds them
        drawn = ""
    return drawn or '<p class="note">This cannot be drawn.</p>'


def _mark(rows: Sequence[Evaluation]) -> str:
    return " (not private)" if any(one.not_private for one in rows) else ""


def _none(view: View, words: str) -> str:
    return f"<p>{_e(words) if view.evaluations else 'No evaluation yet.'}</p>"


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else scale * value


def _figure(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}"


def _e(words: Any) -> str:
    return html.escape(str(words))
