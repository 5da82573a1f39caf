"""HTML pages from the templates next to this module: each is one file that opens offline and runs no script.

A new page is a template that extends `base.html.j2`, and a call of `render`. Two layers keep a tampered file from
acting in a browser: every value is escaped where it enters a template, and the page's content security policy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from gossamer.accounting.observers import kind_of
from gossamer.accounting.profiles import TradeOff
from gossamer.results import certificate as statements
from gossamer.results import words
from gossamer.results.certificate import epsilon_text, of_its_own, site_of
from gossamer.results.charts import COLOURS, DASH, INK, RED, Axis, Plot, Series

if TYPE_CHECKING:
    from jinja2 import Environment

_MOST_ROWS = 1000  # of the table of nodes
_MOST_ENTRIES, _MOST_HEADS = 10, 24  # of the printed page: groups of nodes, digests


@cache
def environment() -> Environment:
    """Return the templates; they may use every name of certificate.py and words.py."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    env = Environment(
        loader=PackageLoader("gossamer.results"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters["epsilon"] = epsilon_text
    env.globals |= {**vars(statements), **vars(words)}
    functions = (node_rows, node_entries, digests, roc_plot, score_plot)
    env.globals |= {function.__name__: function for function in functions}
    env.globals["style"] = Markup(files("gossamer.results").joinpath("templates", "style.css").read_text("utf-8"))
    env.globals["adjacencies"] = {"add-remove": "adding or removing", "replace-one": "replacing"}
    return env


def render(template: str, **values: Any) -> str:
    """Return the page of a template; a value that is missing is a LookupError."""
    from jinja2 import UndefinedError

    try:
        return environment().get_template(f"{template}.html.j2").render(values)
    except UndefinedError as error:
        raise LookupError(str(error)) from error


def certificate_page(certificate: Mapping[str, Any]) -> str:
    """Return one printed page in words, with all figures below it on the screen."""
    return render("certificate", c=of_its_own(certificate))


def audit_page(result: Mapping[str, Any], name: str) -> str:
    """Return what was tried, what it shows, and the ROC curve next to what is proven."""
    return render("audit", c=result, name=name)


def node_rows(c: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return a row per node; of very many nodes, neighbours with equal figures share one, and the first are shown."""
    keys = ("public_constants", "draws", "epsilon_by_node", "ledger_heads")
    entries = list(zip(*(c[key] for key in keys), strict=True))

    def figures(entry: tuple[Any, ...]) -> tuple[Any, ...]:
        return ({**entry[0], "node": None}, *entry[1:]) if len(entries) > _MOST_ROWS else entry

    rows = words.spans(((entry[0]["node"], entry) for entry in entries), figures)
    return [(label, *entry) for label, entry in rows[:_MOST_ROWS]]


def node_entries(c: Mapping[str, Any]) -> list[str]:
    """Return the nodes for the printed page; neighbours with the same figures in one entry."""
    entries = zip(c["public_constants"], c["draws"], c["epsilon_by_node"], strict=True)

    def text(entry: tuple[Any, ...]) -> str:
        public, draws, eps = entry
        site, drawn = site_of(c), "" if draws is None else f" {draws} draws,"
        source = f", as stated by {eps['stated_by']}" if "stated_by" in eps else f" ({site})" if site else ""
        epsilon = f"ε ≤ {epsilon_text(eps['proven'])}{source}"
        return f"{public['records']:,} {kind_of(c['unit'])}s, rate {public['rate']:.4g},{drawn} {epsilon}"

    groups = words.spans(((entry[0]["node"], entry) for entry in entries), text)
    lines, more = [f"{label}: {text(entry)}" for label, entry in groups], len(groups) - _MOST_ENTRIES
    return [*lines[:_MOST_ENTRIES], *([f"and {more} more in certificate.json"] if more > 0 else [])]


def digests(each: Sequence[str | None]) -> str:
    """Return the digest of all digests, line by line, and each one shortened if there are few; a site has its own."""
    count, own = len(each), [digest for digest in each if digest is not None]
    if len(own) == 1 < count:
        return f"{own[0]} of node {each.index(own[0])}; the others' are with their sites"
    if len(set(each)) == 1 < count:
        return f"{each[0]} of each of the {count}"
    short = ", ".join(str(digest)[:12] for digest in each)
    whole = hashlib.sha256("\n".join(map(str, each)).encode()).hexdigest()
    return f"{whole} over all {count}" + f" ({short} …)" * (count <= _MOST_HEADS)


def roc_plot(c: Mapping[str, Any]) -> Plot:
    """The attack's ROC curve, and the regions that the claimed and the proven figure rule out.

    Both axes are logarithmic: it is the corner of few false alarms that decides.
    """
    rates, series = np.logspace(-4, 0, 101), []
    for key, colour in (("claimed", RED), ("proven", COLOURS[2])):
        epsilon = words.limit_of(c, key)
        if epsilon is None:
            continue
        curve = c["audit"].get("proven_curve") if key == "proven" else None
        most = TradeOff(tuple(map(tuple, curve or [(epsilon, c["delta"])]))).most_hits(rates)
        whole = ", and δ at every other ε" if curve else ""
        name = f"limit of {key} ε = {epsilon_text(epsilon)}, δ = {c['delta']:g}{whole}"
        points = list(zip(rates.tolist(), most.tolist(), strict=True))
        series.append(Series(name, points, colour=colour, dash=DASH, fill="above", marker="none"))
    attack = [(float(x), float(y)) for x, y in c["audit"]["roc"]]
    series.append(Series("the attack", attack, colour=INK))
    x, y = (Axis(f"{side} positive rate", low=1e-4, high=1.0, log=True) for side in ("false", "true"))
    return Plot(series, x, y, size=(460, 330))


def score_plot(histogram: Mapping[str, Sequence[float]]) -> Plot:
    """Histograms of the scores with and without the canary."""
    edges = histogram["edges"]
    series = []
    for side, name in (("out", "canary out (or the other record)"), ("in", "canary in (or the one record)")):
        bars = zip(histogram[side], edges[:-1], edges[1:], strict=True)
        steps = [(edge, share) for share, *ends in bars for edge in ends]
        series.append(Series(name, steps, fill="below", marker="none"))
    return Plot(series, Axis("score"), Axis("share", low=0.0), size=(460, 330))
