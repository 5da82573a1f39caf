"""Is the built site whole? Every link and anchor inside it leads somewhere, and no page loads a thing from elsewhere.

python .ci/check_site.py site
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# An element that fetches what it names, and the attribute it names it with; a plain link waits for the reader.
_FETCHES = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "use": "href"}
_FORM = re.compile(r"https?://[\w.-]+\.[a-z]{2,}(:\d+)?([/?#]\S*)?$|mailto:\S+@\S+$")


class Page(HTMLParser):
    """The links, the anchors and the fetched parts of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag in _FETCHES and _FETCHES[tag] in found and found.get("rel") != "canonical":
            self.fetched.append(found[_FETCHES[tag]])


def faults(site: Path) -> list[str]:
    """One sentence for each link, anchor or part that is wrong."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site} has no pages"]
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        for link in page.fetched:
            if urlsplit(link).scheme not in ("", "data") or link.startswith("//"):
                found.append(f"{name} loads {link} from elsewhere")
            elif not (path.parent / unquote(urlsplit(link).path)).exists():
                found.append(f"{name} loads {link}, which is not there")
        if name.name == "404.html":
            continue  # its links start at the top of a server
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                if not _FORM.match(link):
                    found.append(f"{name} links to {link}, which is no address")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                found.append(f"{name} links to {link}, which is not there")
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name} links to {link}, which has no such place")
    return found


if __name__ == "__main__":
    wrong = faults(Path(sys.argv[1]))
    print("\n".join(wrong) or f"{sys.argv[1]}: every link leads somewhere, nothing is loaded from elsewhere")
    sys.exit(bool(wrong))
