"""What mkdocs is told beyond mkdocs.yml, so that the same pages read well in the repository and on the site:

- links that leave docs/ (an example, the security policy) lead to a copy under `repository/`;
- the changelog and the notebooks become pages;
- decisions are listed in the navigation without naming each in mkdocs.yml;
- lists and tables that follow a line without a gap, which a repository shows as such, are shown as such here;
- search works in a folder that is opened without a server, by a script of ours.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]+)")
_ANY_LINK = re.compile(r"(?<=\]\()([^)#\s:]+\.md)")
_NOTEBOOK = re.compile(r"(?<=\]\()([^)\s:]+)\.ipynb(?=\))")
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")
_INSIDE = re.compile(r" *(?:[-*]|\d+\.) |  +\S")
_NESTED = re.compile(r"  (?:[-*]|\d+\.) ")
_SHIM = "https://unpkg.com/iframe-worker/shim"
_SHOWN = {".py": "python", ".sh": "sh", ".toml": "toml"}


def on_config(config: Any) -> Any:
    """Every decision stands below the list of them."""
    for section in config.nav:
        for entry in section.get("Project", []) if isinstance(section.get("Project"), list) else []:
            if "Decisions" in entry:
                files = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
                entry["Decisions"] = ["decisions/README.md", *(f"decisions/{file.name}" for file in files)]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made from other files."""
    for name, text in made_pages(config).items():
        files.append(File.generated(config, name, content=text))
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=notebook_page(notebook)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links out of docs/ lead to the copies; lists and tables are told apart from what stands above them."""
    folder = posixpath.dirname(page.file.src_uri)
    return apart(_NOTEBOOK.sub(r"\1.md", _LINK.sub(lambda link: moved(link[1], folder), markdown)))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """A browser lets no page of a folder start a worker: ours stands in, and nobody is asked for one."""
    top = posixpath.relpath("assets/offline-search.js", posixpath.dirname(page.file.dest_uri) or ".")
    return output.replace(_SHIM, top)


def on_post_build(config: Any) -> None:
    """Only a server would show the page for addresses that do not exist."""
    (Path(config.site_dir) / "404.html").unlink(missing_ok=True)


def apart(markdown: str) -> str:
    """A blank line above lists and tables, and four spaces before items of items."""
    lines: list[str] = []
    fenced = False
    for line in markdown.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        above = lines[-1] if lines else ""
        begins = not fenced and _ITEM.match(line) and above.strip() and not _INSIDE.match(above)
        if begins or (not fenced and line.startswith("|") and above.strip() and not above.startswith("|")):
            lines.append("")
        lines.append(f"  {line}" if not fenced and _NESTED.match(line) else line)
    return "\n".join(lines)


def made_pages(config: Any) -> dict[str, str]:
    """The changelog, and a copy of each file outside of docs/ that a page links to."""
    pages = {"changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")}
    for page in (ROOT / "docs").rglob("*.md"):
        for link in _LINK.findall(page.read_text(encoding="utf-8")):
            target = (page.parent / link).resolve()
            if not target.is_relative_to(ROOT / "docs") and target.is_file():
                pages[copy_of(target)] = copied(target)
    return pages


def moved(link: str, folder: str) -> str:
    """A link from a page in `folder` of docs/, towards the copy where it leaves docs/."""
    target = (ROOT / "docs" / folder / link).resolve()
    if target.is_relative_to(ROOT / "docs"):
        return link
    target = target / "README.md" if target.is_dir() else target
    return posixpath.relpath(copy_of(target), folder or ".")


def copy_of(target: Path) -> str:
    """Where a file of the repository stands on the site: pages as pages, code as a page that shows it."""
    name = target.relative_to(ROOT).as_posix()
    return f"repository/{name}" if name.endswith(".md") else f"repository/{name}.md"


def copied(target: Path) -> str:
    text = target.read_text(encoding="utf-8")
    if target.suffix == ".md":
        return _ANY_LINK.sub(lambda link: from_copy(target, link[1]), text)
    return f"# {target.relative_to(ROOT).as_posix()}\n\n```{_SHOWN.get(target.suffix, 'text')}\n{text}```\n"


def from_copy(target: Path, link: str) -> str:
    """A link of a copied page, towards the site's page for what it names."""
    named = (target.parent / link).resolve()
    if not named.is_relative_to(ROOT):
        return link
    docs = ROOT / "docs"
    to = named.relative_to(docs).as_posix() if named.is_relative_to(docs) else copy_of(named)
    return posixpath.relpath(to, posixpath.dirname(copy_of(target)))


def notebook_page(path: Path) -> str:
    """A notebook as a page: words, code, and what was printed or drawn."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code" and source.strip():
            parts.append(f"```python\n{source}\n```")
            parts += [shown for output in cell["outputs"] if (shown := output_of(output))]
    return "\n\n".join(parts) + "\n"


def output_of(output: dict[str, Any]) -> str:
    """HTML as it is, else text."""
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output.get("data", {})
    if "text/html" in data:
        # A blank line would end the block for the reader of Markdown.
        page = re.sub(r"\n\s*\n", "\n", "".join(data["text/html"])).strip()
        return f'<div class="notebook-output">\n{page}\n</div>'
    if "image/svg+xml" in data:
        return f'<div class="notebook-output">{"".join(data["image/svg+xml"])}</div>'
    if "text/plain" in data:
        return f'<pre class="notebook-output">{html.escape("".join(data["text/plain"]))}</pre>'
    return ""
