"""The site's checker finds what is wrong, and pages read the same in the repository and on the site."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("markup", "fault"),
    [
        ('<a href="b.html#there">', None),
        ('<a href="#here"><h1 id="here">', None),
        ('<a href="https://example.org/x">', None),
        ('<a href="https://exa mple">', "which is no address"),
        ('<a href="c.html">', "which is not there"),
        ('<a href="b.html#nowhere">', "which has no such place"),
        ('<script src="https://example.org/x.js">', "from elsewhere"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "from elsewhere"),
        ('<img src="x.png">', "which is not there"),
    ],
)
def test_the_checker_names_what_is_wrong(markup: str, fault: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(markup, encoding="utf-8")
    (tmp_path / "b.html").write_text('<h2 id="there">', encoding="utf-8")
    found = script("check_site").faults(tmp_path)
    assert [fault for sentence in found if str(fault) in sentence] == ([fault] if fault else [])
    assert len(found) == (fault is not None)


def test_an_empty_folder_is_no_site(tmp_path: Path) -> None:
    assert script("check_site").faults(tmp_path)


def test_every_page_stands_in_the_navigation() -> None:
    """Decisions are added by the build."""
    named = set(re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    books = {f"notebooks/{path.stem}.md" for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    assert {page for page in pages if not page.startswith("decisions/0")} | books | {"changelog.md"} == named


def test_lists_and_tables_are_told_apart_from_the_line_above() -> None:
    pytest.importorskip("yaml", reason="the extra docs is not installed")
    apart = script("build_site").separate_blocks
    assert apart("a:\n- b\n- c\n  d\n  - e") == "a:\n\n- b\n- c\n  d\n    - e"
    assert apart("a\n| b |\n|---|\n| c |") == "a\n\n| b |\n|---|\n| c |"
    assert apart("```text\na\n- b\n```") == "```text\na\n- b\n```"


def test_arguments_in_docstrings_become_a_list() -> None:
    pytest.importorskip("griffe", reason="the extra docs is not installed")
    as_list = script("site_docstrings").as_list
    assert as_list("Train.\n\nloss: any\n    loss\nclip, noise: a name\n\nEnd: so.") == (
        "Train.\n\n- `loss`: any loss\n- `clip`, `noise`: a name\n\nEnd: so."
    )
    assert as_list("So:\n>>> a[0][1]\n2") == "So:\n\n```pycon\n>>> a[0][1]\n2\n```"


def test_links_that_leave_the_pages_lead_to_a_copy() -> None:
    pytest.importorskip("yaml", reason="the extra docs is not installed")
    hooks = script("build_site")
    assert hooks.moved("../examples/own_module.py", "") == "repository/examples/own_module.py.md"
    assert hooks.moved("../../SECURITY.md", "decisions") == "../repository/SECURITY.md"
    assert hooks.moved("../privacy.md", "decisions") == "../privacy.md"
    assert hooks.from_copy(ROOT / "SECURITY.md", "docs/security.md") == "../security.md"


@pytest.mark.slow
def test_the_site_is_whole_and_can_be_searched_without_a_server() -> None:
    pytest.importorskip("zensical", reason="the extra docs is not installed")
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    build = [sys.executable, str(ROOT / ".ci" / "build_site.py")]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-3000:]
    assert script("check_site").faults(ROOT / "site") == []
    requests: list[str] = []
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.goto((ROOT / "site" / "decisions" / "index.html").as_uri())
        page.click("button.md-search__button")
        page.keyboard.type("pairwise")
        page.wait_for_selector("a[href*='pairwise.html']", timeout=60_000)
        chromium.close()
    assert {url.partition(":")[0] for url in requests} <= {"file", "data", "blob"}
