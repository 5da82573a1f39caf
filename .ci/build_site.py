"""Build the documentation into site/, a folder that opens without a server.

    python .ci/build_site.py

The pages are written to read well in the repository; a copy of them is prepared for the site:

- the changelog and the notebooks become pages, and so do files outside of docs/ that a page links to;
- every decision is listed in the navigation;
- lists and tables get the blank line above them that the site's Markdown needs;
- search works in a folder that is opened without a server, by a script of ours.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]+)")
_ANY_LINK = re.compile(r"(?<=\]\()([^)#\s:]+)")
_NOTEBOOK = re.compile(r"(?<=\]\()([^)\s:]+)\.ipynb(?=\))")
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")
_INSIDE = re.compile(r" *(?:[-*]|\d+\.) |  +\S")
_NESTED = re.compile(r"  (?:[-*]|\d+\.) ")
_SHIM = "https://unpkg.com/iframe-worker/shim"
_LANGUAGE = {".py": "python", ".sh": "sh", ".toml": "toml"}


def main() -> None:
    build = ROOT / "build" / "site"
    shutil.rmtree(build, ignore_errors=True)
    prepare_pages(build / "docs")
    config = build / "mkdocs.yml"
    config.write_text(yaml.safe_dump(site_config()), encoding="utf-8")
    zensical = Path(sys.executable).with_name("zensical")
    subprocess.run([zensical, "build", "--clean", "--strict", "-f", config], check=True)
    replace_worker_shim(build / "site")
    (build / "site" / "404.html").unlink(missing_ok=True)  # only a server would show it
    shutil.rmtree(ROOT / "site", ignore_errors=True)
    shutil.move(build / "site", ROOT / "site")


def replace_worker_shim(site: Path) -> None:
    """A browser lets no page of a folder start a worker: load our stand-in, not one from another host."""
    for page in site.rglob("*.html"):
        top = posixpath.relpath("assets/offline-search.js", page.parent.relative_to(site).as_posix())
        page.write_text(page.read_text(encoding="utf-8").replace(_SHIM, top), encoding="utf-8")


def prepare_pages(target: Path) -> None:
    """Copy docs/ to `target`, and write the pages that are made from other files."""
    shutil.copytree(DOCS, target)
    for page in target.rglob("*.md"):
        folder = page.relative_to(target).parent.as_posix()
        page.write_text(page_for_site(page.read_text(encoding="utf-8"), folder), encoding="utf-8")
    for notebook in (target / "notebooks").glob("*.ipynb"):
        notebook.with_suffix(".md").write_text(notebook_page(notebook), encoding="utf-8")
    for name, text in copied_pages().items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(separate_blocks(text), encoding="utf-8")


def site_config() -> dict[str, Any]:
    """mkdocs.yml with the list of decisions, and with paths that hold in the build folder."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    decisions = sorted(path.name for path in (DOCS / "decisions").glob("0*.md"))
    for section in config["nav"]:
        for entry in section.get("Project", []):
            if "Decisions" in entry:
                entry["Decisions"] = ["decisions/README.md", *(f"decisions/{name}" for name in decisions)]
    (reference,) = (entry["mkdocstrings"] for entry in config["plugins"] if "mkdocstrings" in entry)
    python = reference["handlers"]["python"]
    python["paths"] = [str(ROOT / path) for path in python["paths"]]
    python["options"]["extensions"] = [str(ROOT / path) for path in python["options"]["extensions"]]
    return config


def page_for_site(markdown: str, folder: str) -> str:
    """Point links out of docs/ at their copies, and separate lists and tables from the text above them."""
    return separate_blocks(_NOTEBOOK.sub(r"\1.md", _LINK.sub(lambda link: moved(link[1], folder), markdown)))


def separate_blocks(markdown: str) -> str:
    """A blank line above lists and tables, and four spaces before nested items."""
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


def copied_pages() -> dict[str, str]:
    """The changelog, and a copy of each file outside of docs/ that a page, or a copied page, links to."""
    pages = {"changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")}
    unread = [*DOCS.rglob("*.md")]
    while unread:
        page = unread.pop()
        for link in _ANY_LINK.findall(page.read_text(encoding="utf-8")):
            target = (page.parent / link).resolve()
            target = target / "README.md" if target.is_dir() else target
            outside = target.is_relative_to(ROOT) and not target.is_relative_to(DOCS)
            if outside and target.is_file() and copy_of(target) not in pages:
                pages[copy_of(target)] = copied(target)
                unread += [target] if target.suffix == ".md" else []
    return pages


def moved(link: str, folder: str) -> str:
    """A link from a page in `folder` of docs/, to the copy where it leaves docs/."""
    target = (DOCS / folder / link).resolve()
    if target.is_relative_to(DOCS):
        return link
    target = target / "README.md" if target.is_dir() else target
    return posixpath.relpath(copy_of(target), folder or ".")


def copy_of(target: Path) -> str:
    """The site's page for a file of the repository: pages as pages, code as a page that shows it."""
    name = target.relative_to(ROOT).as_posix()
    return f"repository/{name}" if name.endswith(".md") else f"repository/{name}.md"


def copied(target: Path) -> str:
    text = target.read_text(encoding="utf-8")
    if target.suffix == ".md":
        return _ANY_LINK.sub(lambda link: from_copy(target, link[1]), text)
    return f"# {target.relative_to(ROOT).as_posix()}\n\n```{_LANGUAGE.get(target.suffix, 'text')}\n{text}```\n"


def from_copy(target: Path, link: str) -> str:
    """A link of a copied page, to the site's page for what it names."""
    named = (target.parent / link).resolve()
    if not named.is_relative_to(ROOT):
        return link
    to = named.relative_to(DOCS).as_posix() if named.is_relative_to(DOCS) else copy_of(named)
    return posixpath.relpath(to, posixpath.dirname(copy_of(target)))


def notebook_page(path: Path) -> str:
    """A notebook as a page: words, code, and what was printed or drawn."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code" and source.strip():
            parts.append(f"```python\n{source}\n```")
            parts += [shown for output in cell["outputs"] if (shown := output_of(output))]
    return separate_blocks("\n\n".join(parts) + "\n")


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


if __name__ == "__main__":
    main()
