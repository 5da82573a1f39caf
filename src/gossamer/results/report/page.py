"""`gossamer report`: runs side by side, as one HTML file that needs nothing else and asks nobody."""

from __future__ import annotations

import html
import json
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from gossamer.errors import UserError
from gossamer.results.certificate import epsilon_text, of_its_own
from gossamer.results.certificate_page import STYLE as CERTIFICATE_STYLE
from gossamer.results.certificate_page import fragment
from gossamer.results.headline import measured, no_epsilon_covers, over_nodes, title, written
from gossamer.results.report.figures import Figure, colour, curves, topologies
from gossamer.results.report.heat_map import by_pair
from gossamer.results.report.observers import by_colluders
from gossamer.results.report.runs import Run, read_runs
from gossamer.results.rundir import write_atomically

_MARK = "<!-- gossamer report -->"
_STYLE = """
:root{color-scheme:light}*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;margin:0;padding:0;max-width:none;color:#1f2328;background:#f6f7f9}
main{max-width:84rem;margin:0 auto;padding:1.2rem clamp(.75rem,3vw,2rem) 3rem}
h1{font-size:1.6rem;margin:.2rem 0 1rem}h2{font-size:1.2rem;margin:2rem 0 .8rem}h3{font-size:1rem;margin:0}
.runs,.plots{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,21rem),1fr))}
.plots{grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr))}
.card{background:#fff;border:1px solid #dfe3e8;border-radius:10px;padding:.9rem 1rem;min-width:0}
.run,h1,h3,.note,summary,li,td{overflow-wrap:anywhere}.scroll td,.scroll th{white-space:nowrap}.three{max-width:56rem}
.card h2{margin:1.4rem 0 .4rem;font-size:1.05rem}.card table{max-width:56rem}.card ul{padding-left:1.2rem;margin:.3rem 0}
.run{display:block;border-left:6px solid var(--colour)}.run.off{opacity:.5}.run p{margin:.15rem 0;font-size:.9rem}
.run label{font-weight:600;cursor:pointer}.run input{accent-color:var(--colour);margin:0 .4rem 0 0}
.big{font-size:1.25rem!important;font-weight:600}.note{color:#57606a;font-size:.85rem;margin:.1rem 0 .4rem}
.plot{width:100%;height:20rem}
details{margin-top:1rem}summary{cursor:pointer;font-weight:600}
pre{overflow-x:auto;font-size:.8rem;line-height:1.45;background:#f6f7f9;padding:.8rem;border-radius:6px}
.warn{border:2px solid #b03030;color:#8d1f1f;padding:.6rem 1rem;border-radius:8px;margin:.6rem 0}
"""
_SCRIPT = """
const figures = JSON.parse(document.getElementById("figures").textContent);
const options = {responsive: true, displaylogo: false, displayModeBar: false};
const base = {font: {family: "system-ui, sans-serif", size: 12}, paper_bgcolor: "#fff", plot_bgcolor: "#fff"};
const plots = figures.map((figure, i) => {
  const place = document.getElementById("plot-" + i);
  Plotly.newPlot(place, figure.data, {...base, ...figure.layout}, options);
  return place;
});
document.querySelectorAll(".run input").forEach(box => box.addEventListener("change", () => {
  box.closest(".run").classList.toggle("off", !box.checked);
  plots.forEach(place => {
    const own = place.data.flatMap((trace, k) => trace.meta === Number(box.value) ? [k] : []);
    if (own.length) Plotly.restyle(place, {visible: box.checked}, own);
  });
}));
"""


def write_report(paths: Sequence[Path], out: Path | None) -> tuple[Path, list[str]]:
    """The report of one or several runs; in the run's own directory, or `report.html` here, unless told where.

    Besides, a sentence about each run that does not verify: it is shown with that sentence above it.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UserError(
            "gossamer report needs plotly, which is not installed; pip install 'gossamer[report]' brings it."
        ) from None
    runs = read_runs(paths)
    target = out or (paths[0] / "report.html" if len(paths) == 1 else Path("report.html"))
    _refuse_foreign(target)
    try:
        text = page(runs, get_plotlyjs())
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        # The files' texts have been read; what is in them is not what `gossamer run` writes.
        which = ", ".join(str(path) for path in paths)
        raise UserError(
            f"{which}: a file does not hold what `gossamer run` writes and cannot be reported on "
            f"({type(error).__name__})."
        ) from error
    try:
        write_atomically(target, text.encode())
    except OSError as error:
        raise UserError(f"--out {target} cannot be written: {error.strerror}.") from None
    return target, [f"{run.path}: {sentence}" for run in runs for sentence in _unverified(run)]


def _policy(*scripts: str) -> str:
    """The browser itself refuses whatever would leave the page, and every script but these, word for word."""
    known = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {known}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def page(runs: Sequence[Run], plotly_js: str) -> str:
    e = html.escape
    figures = [*curves(runs), *by_colluders(runs), *by_pair(runs), *topologies(runs)]
    title = runs[0].label if len(runs) == 1 else f"{len(runs)} runs"
    stamped = ", ".join(run.label for run in runs if run.stamp)
    whose = f" ({stamped})" if len(runs) > 1 else ""
    stamps = sorted({run.stamp for run in runs if run.stamp})
    top = "".join(f'<p class="stamp">{e(stamp + whose)}</p>' for stamp in stamps)
    top += "".join(
        f'<p class="warn">{e(run.label)}: {e(sentence)}</p>' for run in runs for sentence in _unverified(run)
    )
    warnings = sorted({(warning, run.label) for run in runs for warning in run.warnings})
    top += "".join(
        f'<p class="warn">{e(label)}: {e(warning)} Do not pass this report on.</p>'
        for warning, label in warnings
    )
    return (
        f'<!doctype html>{_MARK}<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(plotly_js, _SCRIPT)}">'
        f"<title>Report: {e(title)}</title><style>{CERTIFICATE_STYLE}{_STYLE}</style>"
        f"<script>{plotly_js}</script></head><body><main>"
        f"<h1>{e(title)}</h1>{top}"
        f'<section class="runs">{"".join(_card(i, run, len(runs)) for i, run in enumerate(runs))}</section>'
        f'<h2>Figures</h2><section class="plots">{_places(figures)}</section>'
        f"<h2>Privacy certificate and configuration</h2>"
        f"{''.join(_details(run, single=len(runs) == 1) for run in runs)}"
        f'</main><script type="application/json" id="figures">{_json(figures)}</script>'
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


def _unverified(run: Run) -> list[str]:
    return [] if run.verdict.broken is None else run.verdict.sentences()


def _card(i: int, run: Run, count: int) -> str:
    e, last, config = html.escape, run.last, run.config
    quality, spread = "no hold-out, so no accuracy", ""
    if run.quality:
        mean, low, high = (last[f"{run.quality}_{key}"] for key in ("mean", "min", "max"))
        mean, low, high = (written(run.quality, value, 1) for value in (mean, low, high))
        quality = f"{title(run.quality)} {mean}"
        if no_epsilon_covers(last) or "hold_out" in last:
            quality += " (not private)"
        spread = f"<p>mean over {over_nodes(last, run.quality)}; from {low} to {high}</p>"
        if (
            noise := last.get(f"{run.quality}_noise")
        ) is not None:  # of all nodes' sums together, not of their figures
            spread = (
                f"<p>on the kept-out records of all nodes, ± {written(run.quality, noise, 1)} by noise</p>"
            )
        others = [
            f"{title(name)} {written(name, last[f'{name}_mean'], 1)}"
            for name in measured(last)
            if name != run.quality and last.get(f"{name}_mean") is not None
        ]
        spread += f"<p>{e(', '.join(others))}</p>" if others else ""
    c = run.certificate and of_its_own(run.certificate)
    privacy = "still running: no certificate yet"
    if c:
        privacy = (
            f"ε: proven {epsilon_text(c['epsilon_proven'])}, claimed {epsilon_text(c['epsilon_claimed'])}, "
            f"audited {epsilon_text(c['epsilon_audited'])} (δ = {c['delta']:g}, {c['adjacency']}, {c['unit']})"
        )
        if c["epsilon_proven"] is None and c["not_proven_because"]:
            privacy += f"; not proven: {c['not_proven_because']}"
    name = f'<label><input type="checkbox" checked value="{i}">{e(run.label)}</label>'
    method = [config["algorithm"]["kind"], f"{config['mode']} mode"]
    if config.get("baseline", "none") != "none":
        method.append(f"baseline: {config['baseline']}")
    size = f"{run.topology['nodes']} node{'s' * (run.topology['nodes'] > 1)}, {run.topology['kind']}, {last['round']:,} of {config['rounds']:,} rounds"
    stamp = f"<p><b>{e(run.stamp)}</b></p>" if run.stamp else ""
    heading = name if count > 1 else f"<b>{e(', '.join(method))}</b>"
    facts = [*(method if count > 1 else []), size]
    return (
        f'<div class="card run" style="--colour:{colour(i)}">{heading}<p class="big">{e(quality)}</p>{spread}'
        f"<p>{e(privacy)}</p><p>{e(', '.join(facts))}</p>{stamp}</div>"
    )


def _places(figures: list[Figure]) -> str:
    return "".join(
        f'<div class="card"><h3>{html.escape(figure.title)}</h3><p class="note">{html.escape(figure.note)}</p>'
        f'<div class="plot" id="plot-{k}" role="img" aria-label="{html.escape(figure.title)}"></div></div>'
        for k, figure in enumerate(figures)
    )


def _details(run: Run, *, single: bool) -> str:
    opened = " open" if single else ""
    checked = (
        f'<p class="note">When this page was made: {html.escape("; ".join(run.verdict.sentences()))}.</p>'
    )
    certificate = (
        f"<details{opened}><summary>Certificate of {html.escape(run.label)}</summary>{fragment(run.certificate)}{checked}"
        "</details>"
        if run.certificate
        else f"<p>{html.escape(run.label)} has no certificate yet: it is still running, or was stopped.</p>{checked}"
    )
    return (
        f'<div class="card" style="margin-bottom:1rem">{certificate}'
        f"<details><summary>Configuration of {html.escape(run.label)}</summary><pre>{html.escape(run.config_text)}</pre></details></div>"
    )


def _json(figures: list[Figure]) -> str:
    """Inside a script element nothing may look like the end of it."""
    content = json.dumps([{"data": figure.data, "layout": figure.layout} for figure in figures])
    return content.replace("<", "\\u003c")


def _refuse_foreign(target: Path) -> None:
    if target.is_dir():
        raise UserError(f"--out {target} is a directory; name a file, for example {target / 'report.html'}.")
    if target.is_file():
        with target.open("rb") as file:
            if _MARK.encode() not in file.read(200):
                raise UserError(f"--out {target} exists and is no report of ours; name a new file.")
