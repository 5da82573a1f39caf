"""The code blocks of the pages, and a runner for them: what is shown is what runs.

A comment in the line above a block says how it is run:

    <!-- slow -->             takes more than a second; with the slow tests
    <!-- data -->             needs a data set that is not in the repository; with the data tests
    <!-- not run: reason -->  cannot be run here, or not in an hour; its commands are still read by the command line
    <!-- slow, with: ARGS --> the test adds these arguments to every `gossamer` command, so that it is short
    <!-- slow, fails -->      the command ends with exit code 2, as the page says

Python blocks of a page share one namespace and one folder, in the order of the page. A block with a title is a file of
that name.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
LEVELS = ("fast", "slow", "data")
_FENCE = re.compile(r"^( *)```(\S*)(.*)$")
_TITLE = re.compile(r'title="([^"]+)"')
MARK = re.compile(r"^ *<!-- (?:(fast|slow|data)(, fails)?(?:, with: (.*?))?|(not run): (.*?)) -->$")
_NAMES = ("python", "sh")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, what it is, and what the comment above it says."""

    page: str
    line: int
    language: str
    code: str
    title: str = ""
    mark: str = "fast"
    fails: bool = False
    with_: str = ""
    reason: str = ""

    @property
    def runs(self) -> bool:
        return (self.language in _NAMES or bool(self.title)) and self.mark != "not run"

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    name, above, start = str(page.relative_to(ROOT)), "", None
    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if fence and start is None:
            start = (number, *fence.groups(), above)
        elif fence and start is not None:
            first, indent, language, rest, comment = start
            code = "\n".join(text.removeprefix(indent) for text in lines[first : number - 1]) + "\n"
            title = _TITLE.search(rest)
            found.append(Block(name, first, language, code, title[1] if title else "", *mark_of(comment)))
            start = None
        above = line
    return found


def mark_of(comment: str) -> tuple[str, bool, str, str]:
    """What a comment above a block says: the mark, whether it fails, arguments to add, the reason."""
    mark = MARK.match(comment)
    return (mark[1] or mark[4], bool(mark[2]), mark[3] or "", mark[5] or "") if mark else ("fast", False, "", "")


def commands(block: Block) -> Iterator[list[str]]:
    """The `gossamer …` commands of a block in words, without comments and what the shell does around them."""
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]
        if words and words[0] == "gossamer":
            ends = [k for k, word in enumerate(words) if word in ("|", ">", "&&", ";")]
            yield words[1 : ends[0] if ends else None]


def run(chosen: list[Block], folder: Path) -> None:
    """Run blocks in their order, Python in this process, as if all were typed in one folder."""
    page = types.ModuleType("page")
    sys.modules["page"] = page  # dataclasses look for their module
    sys.path.insert(0, str(folder))  # files of the page can be imported
    with contextlib.chdir(folder):
        for block in chosen:
            try:
                _run(block, vars(page), folder)
            except BaseException as error:
                raise AssertionError(f"{block.where}: {type(error).__name__}: {error}") from error


def run_apart(chosen: list[Block], folder: Path) -> None:
    """The same in a process of its own: what registers itself is gone afterwards."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.support.pages", str(folder)],
        input=json.dumps([asdict(block) for block in chosen]),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *_python_path()])},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


def _run(block: Block, space: dict[str, Any], folder: Path) -> None:
    if block.title:
        (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
        (folder / block.title).write_text(block.code, encoding="utf-8")
    elif block.language == "python":
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile("\n" * block.line + block.code, block.page, "exec"), space)
    elif block.mark == "fast":
        for words in commands(block):
            _command(words, block.fails)
    else:
        _shell(block, folder)


def _command(words: list[str], fails: bool) -> None:
    """In this process: a second saved for each."""
    from gossamer.cli import main

    before, sys.argv = sys.argv, ["gossamer", *words]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.argv = before
    expected = 2 if fails else 0
    if code != expected:
        raise RuntimeError(f"gossamer {shlex.join(words)} ended with {code}: {said.getvalue()[-1000:]}")


def _shell(block: Block, folder: Path) -> None:
    """As a reader would type it; `gossamer` and `python` are of this environment, and pip installs beside the page."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    functions = (
        f'gossamer() {{ command python -m gossamer "$@" {block.with_}; }}\n'
        'pip() { command python -m pip -q "$@" --no-deps --target installed; }\n'
    )
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", functions + block.code],
        cwd=folder,
        env=os.environ | {"PATH": path, "PYTHONPATH": os.pathsep.join([*_python_path(), str(folder / "installed")])},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != (2 if block.fails else 0):
        raise RuntimeError(f"ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-2000:]}")


def _python_path() -> list[str]:
    """Where this process found the package, whatever folder it is in later."""
    return [str(ROOT / "src"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


if __name__ == "__main__":
    run([Block(**block) for block in json.load(sys.stdin)], Path(sys.argv[1]))
