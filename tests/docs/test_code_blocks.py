"""Every code block of the pages runs: at once, with the slow tests or with the data tests; or says why it cannot."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import typer
from tests.support.pages import LEVELS, MARK, PAGES, ROOT, Block, blocks, commands, run, run_apart

from gossamer.cli import app

# In a process of its own, by the tests that look at what came out.
ELSEWHERE = {"docs/extending.md": "tests/docs/test_extending.py"}
LANGUAGES = {"python", "sh", "toml", "csv", "json", "text", "jinja"}
DATA = Path(os.environ.get("GOSSAMER_DATA") or ROOT.parent / "shared" / "data")
# Each of these is a decision: a reader types it and no test does. The number may fall.
MOST_NOT_RUN = 25
BLOCKS = {str(page.relative_to(ROOT)): blocks(page) for page in PAGES}
COMMAND = typer.main.get_command(app)
ALL = [block for found in BLOCKS.values() for block in found]


def cases(level: str) -> list[str]:
    """The pages that have blocks of a level."""
    return [
        page
        for page, found in BLOCKS.items()
        if page not in ELSEWHERE and any(b.runs and b.mark == level and b.language != "toml" for b in found)
    ]


def up_to(page: str, level: str) -> list[Block]:
    """A page's blocks of this level and those before it, which the others may need."""
    return [b for b in BLOCKS[page] if b.runs and LEVELS.index(b.mark) <= LEVELS.index(level)]


@pytest.mark.parametrize("page", cases("fast"))
def test_blocks_that_are_quick(page: str, tmp_path: Path) -> None:
    run(up_to(page, "fast"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", cases("slow"))
def test_blocks_that_take_a_while(page: str, tmp_path: Path) -> None:
    run_apart(up_to(page, "slow"), tmp_path)


@pytest.mark.data
@pytest.mark.parametrize("page", cases("data"))
def test_blocks_that_need_data(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not DATA.is_dir():
        pytest.skip(f"no data sets at {DATA}; set GOSSAMER_DATA")
    monkeypatch.setenv("GOSSAMER_DATA", str(DATA))
    run_apart(up_to(page, "data"), tmp_path)


def test_a_block_that_fails_is_named_with_its_place(tmp_path: Path) -> None:
    wrong = Block("docs/page.md", 7, "python", "1 / 0\n")
    with pytest.raises(AssertionError, match=r"docs/page\.md:7: ZeroDivisionError"):
        run([wrong], tmp_path)
    refused = Block("docs/page.md", 9, "sh", "gossamer data get nowhere\n")
    with pytest.raises(AssertionError, match=r"docs/page\.md:9: .*ended with 2"):
        run([refused], tmp_path)


def test_every_block_says_what_it_is() -> None:
    """Indented blocks say nothing of their language, and nobody runs them."""
    assert [block.where for block in ALL if block.language not in LANGUAGES] == []
    assert [where for page in PAGES for where in indented(page)] == []


def test_what_is_not_run_says_why() -> None:
    idle = [block for block in ALL if block.mark == "not run"]
    assert [block.where for block in idle if len(block.reason) < 10] == []
    assert len(idle) <= MOST_NOT_RUN


def test_every_comment_above_a_block_is_understood() -> None:
    """A comment that is misspelt would let a block run, or not run, unnoticed."""
    lines = [(page, line) for page in BLOCKS for line in (ROOT / page).read_text(encoding="utf-8").split("\n")]
    said = re.compile(r" *<!-- *(fast|slow|data|fails|not run|run)\b")
    assert [(page, line) for page, line in lines if said.match(line) and not MARK.match(line)] == []
    stray = re.compile(rf"{MARK.pattern}\n(?! *```)", re.M)
    assert [page for page in BLOCKS if stray.search((ROOT / page).read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "block", [b for b in ALL if b.language == "sh" and any(commands(b))], ids=lambda block: block.where
)
def test_the_command_line_knows_every_command(block: Block) -> None:
    """Those that are not run, too: names of commands and options."""
    for words in commands(block):
        read(words)


def read(words: list[str]) -> None:
    """Let the command line read its words, without doing anything."""
    command = COMMAND
    if words[0] == "--plugin":
        words = words[2:]
    while words and hasattr(command, "commands"):
        name, *words = words
        assert name in command.commands, name
        command = command.commands[name]
    if "--help" not in words:
        command.make_context(command.name, list(words), resilient_parsing=False)


def indented(page: Path) -> list[str]:
    """Lines of blocks without a fence."""
    found, fenced, above = [], False, ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and line.startswith("    ") and not above.strip():
            found.append(f"{page.relative_to(ROOT)}:{number}")
        above = line
    return found
