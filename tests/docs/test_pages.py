"""Links and paths of the pages, and the layers that the design page shows."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "gossamer"
PAGES = sorted(
    [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "reproductions").rglob("*.md"),
    ]
)
DESIGN = ROOT / "docs" / "design.md"
PICTURE = ROOT / "docs" / "figures" / "way-of-a-record.svg"
FOLDERS = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}

CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"""\]\(([^)\s]+)\)|\bsrc="([^"]+)\"""")


TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}


def test_every_link_leads_somewhere() -> None:
    broken = []
    for page, text in TEXTS.items():
        links = [a or b for a, b in LINK.findall(text)]
        local = [link.partition("#")[0] for link in links if "://" not in link and not link.startswith("#")]
        broken += [(page.name, link) for link in local if not (page.parent / link).exists()]
    assert broken == []


def test_every_path_in_backticks_exists() -> None:
    named = [(page.name, name) for page, text in TEXTS.items() for name in CODE.findall(text)]
    assert [(page, name) for page, name in named if is_path(name) and not exists(name)] == []


def test_every_module_in_backticks_exists() -> None:
    module = re.compile(r"(gossamer|accounting|mechanism)(\.\w+)+")
    named = [(page.name, name) for page, text in TEXTS.items() for name in CODE.findall(text)]
    assert [(page, name) for page, name in named if module.fullmatch(name) and not resolves(name)] == []


def test_figures_of_the_readme_stand_in_the_pages_that_commands_write() -> None:
    """It has no figure of its own: a table that is written anew shows here."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tables = {
        name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("pairwise", "frontier", "papers")
    }
    spreads = re.findall(r"\d+\.\d+ ± \d+\.\d+", readme)
    assert len(spreads) == 5
    assert [figure for figure in spreads if figure not in "".join(tables.values())] == []
    digits = next(line for line in tables["pairwise"].splitlines() if spreads[0] in line)
    assert all(figure in digits for figure in spreads[:3])
    assert "| 0.5 |" in digits
    fashion = next(line for line in tables["frontier"].splitlines() if spreads[3] in line)
    assert spreads[4] in fashion
    assert "| 86.21 |" in fashion
    assert re.search(r"dyn-d2p/fashion-mnist.*\| 1 \| 3\.75 \|", tables["papers"])
    assert "ε ≥ 3.3 for AdaD2P" in tables["papers"]
    assert "shows at least 3.3" in readme


@pytest.mark.parametrize(
    ("name", "path", "there"),
    [
        ("accounting/proven.py", True, True),
        ("src/gossamer/accounting/proven", True, True),  # a module without its suffix, or a folder
        ("tests/support/", True, True),
        ("audit/recovery.py", True, False),  # the folder is auditing/
        ("recovery.py", True, True),
        ("tests/test_nowhere.py", True, False),
        ("adad2p/mnist", False, False),  # a recipe
        ("data.transform", False, False),  # a key
    ],
)
def test_what_counts_as_a_path(name: str, path: bool, there: bool) -> None:
    assert is_path(name) is path
    assert exists(name) is there


def test_design_names_every_folder_and_no_other() -> None:
    named = re.findall(r"^\| `(\w+)/` \|", DESIGN.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(named) == sorted(FOLDERS)


def test_design_shows_the_layers_that_are_checked() -> None:
    block = DESIGN.read_text(encoding="utf-8").partition("## Who may import whom")[2]
    shown = [line.split() for line in block.split("```")[1].splitlines()[1:]]
    assert shown == layers()


def test_the_picture_stands_in_the_order_of_the_layers() -> None:
    """Imports look up the picture: each station's layer is the same as the one before or above it."""
    depth = {folder: k for k, layer in enumerate(reversed(layers())) for folder in layer}
    stations = [name for name in re.findall(r"(\w+)(?:/|\.py)", station_names()) if name != "accounting"]
    assert set(stations) <= set(depth)
    heights = [depth[name] for name in stations if name != "topology"]  # drawn beside the runtime, which uses it
    assert heights == sorted(heights)


def test_the_picture_can_be_read_on_a_telephone() -> None:
    root = ElementTree.parse(PICTURE).getroot()
    width = float(root.attrib["viewBox"].split()[2])
    sizes = [float(text.attrib["font-size"]) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert min(sizes) * 358 / width >= 11  # a page of 390 pixels with its margins


def is_path(name: str) -> bool:
    """Does it name a file or folder of the repository? Recipes, keys and files of a run directory do not."""
    if not re.fullmatch(r"[\w./-]+", name):
        return False
    first, slash, _ = name.partition("/")
    ours = {"src", "docs", "tests", "examples", "benchmarks"} | FOLDERS
    return name.endswith(".py") or bool(slash and first in ours)


def exists(name: str) -> bool:
    if "/" not in name:
        return any(
            path.name == name
            for top in ("src", "tests", "examples", "benchmarks")
            for path in (ROOT / top).rglob("*.py")
        )
    name = name.rstrip("/")
    return any((top / name).exists() or (top / f"{name}.py").exists() for top in (ROOT, SOURCE))


def resolves(name: str) -> bool:
    parts = name.removeprefix("gossamer.").split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(["gossamer", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return hasattr(importlib.import_module("gossamer"), parts[0])


def layers() -> list[list[str]]:
    """As import-linter checks them, from the top down."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    found = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[name.strip().removeprefix("gossamer.") for name in re.split("[|:]", layer)] for layer in found]


def station_names() -> str:
    """The folders' names in the picture, which are in bold type of one width, from top to bottom."""
    root = ElementTree.parse(PICTURE).getroot()
    names = [text for text in root.iter("{http://www.w3.org/2000/svg}text") if "mono" in text.get("font-family", "")]
    return " ".join(text.text or "" for text in sorted(names, key=lambda text: float(text.attrib["y"])))


def test_the_readme_activates_the_environment_before_its_first_command() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    activates = next(k for k, line in enumerate(lines) if line.startswith(". .venv/bin/activate"))
    assert activates < next(k for k, line in enumerate(lines) if line.startswith("gossamer "))
