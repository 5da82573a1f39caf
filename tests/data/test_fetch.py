import http.server
import shutil
import threading

import pytest

from gossamer.data import fetch


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * (400 if self.path == "/broken" else 1000))

    def log_message(self, *_args):
        pass


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(fetch, "SCHEME", "http://127.0.0.1:")  # no certificate to show here
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_download(site, tmp_path):
    assert fetch.download(f"{site}/file", tmp_path / "file").read_bytes() == b"x" * 1000


@pytest.mark.parametrize(
    ("page", "reason"), [("missing", "answered 404"), ("broken", r"400 of 1000|IncompleteRead|400 bytes")]
)
def test_a_failed_download_leaves_nothing(site, tmp_path, page, reason):
    with pytest.raises(fetch.FetchError, match=reason):
        fetch.download(f"{site}/{page}", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_https_only(tmp_path):
    for address in ("http://127.0.0.1:9/file", "ftp://127.0.0.1/file", "file:///etc/hostname"):
        with pytest.raises(fetch.FetchError, match="the address is not https"):
            fetch.download(address, tmp_path / "file")


def test_nobody_listens(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(fetch.FetchError, match="refused"):
        fetch.download("https://127.0.0.1:9/file", tmp_path / "file")


def test_atomic_keeps_the_old_file_on_error(tmp_path):
    target = tmp_path / "folder" / "file"
    with fetch.atomic(target) as file:
        file.write(b"old")

    def fail():
        with fetch.atomic(target) as file:
            file.write(b"half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert target.read_bytes() == b"old"
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("GOSSAMER_CACHE", "/a/b")
    assert str(fetch.cache_dir()) == "/a/b"
    monkeypatch.delenv("GOSSAMER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert str(fetch.cache_dir()) == "/x/gossamer"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fetch.cache_dir() == tmp_path / ".cache" / "gossamer"


def test_pip_that_finds_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(fetch.FetchError, match=r"pip failed: .*no-such-package-here"):
        fetch.wheel("no-such-package-here==1.0", tmp_path)


def test_no_npm(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(fetch.FetchError, match="npm is not installed"):
        fetch.npm_package("anything@1", tmp_path)


def test_pip_that_cannot_reach_its_index(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(fetch.FetchError, match=r"^pip could not reach its registry$"):
        fetch.wheel("anything==1.0", tmp_path)
