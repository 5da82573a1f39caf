"""The live page's server: who is answered, who is not, and a page that follows a run in a real browser."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.refusals import expect_refusal

from gossamer.results import live as module
from gossamer.results.live import LiveRun, LiveServer, watch


@pytest.fixture
def server(run: Path) -> Iterator[LiveServer]:
    made = LiveServer(LiveRun(run))
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def get(server: LiveServer, path: str, *hosts: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    for host in hosts or (server.hosts[0],):
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    found = (answer.status, dict(answer.getheaders()), answer.read().decode())
    connection.close()
    return found


def test_with_the_token_there_is_a_page_under_a_strict_policy(server: LiveServer) -> None:
    status, headers, text = get(server, f"/?token={server.token}")
    assert status == 200
    nonce = re.search(r'<script nonce="([^"]+)"', text)
    assert nonce
    policy = headers["Content-Security-Policy"]
    assert f"script-src 'nonce-{nonce[1]}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert (headers["Referrer-Policy"], headers["Cache-Control"]) == ("no-referrer", "no-store")
    again = get(server, f"/?token={server.token}")[2]
    assert nonce[1] not in again


@pytest.mark.parametrize("path", ["/", "/sections"])
@pytest.mark.parametrize(
    "query",
    ["", "?token=", "?token=wrong", "?token={t}x", "?token={t}&token={t}", "?other={t}", "?token=%ff%00ö", "?" + "a=1&" * 500 + "token={t}"],
)  # fmt: skip
def test_without_the_token_nothing_of_the_run_is_told(server: LiveServer, path: str, query: str) -> None:
    asked = (path + query.format(t=server.token)).encode("ascii", "ignore").decode()
    status, headers, text = get(server, asked)
    assert status == 403
    assert len(text) < 100
    assert server.token not in text + str(headers)


def test_tokens_are_random_long_and_compared_in_constant_time(
    server: LiveServer, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = LiveServer(LiveRun(run))
    other.server_close()
    assert server.token != other.token
    assert len(server.token) >= 32
    compared = []
    monkeypatch.setattr(module.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or False)
    assert get(server, f"/?token={server.token}")[0] == 403
    assert compared == [(server.token.encode(),) * 2]


def test_a_name_that_was_made_to_lead_here_is_refused(server: LiveServer) -> None:
    path, port = f"/?token={server.token}", server.port
    assert get(server, path, f"localhost:{port}")[0] == 200
    for hosts in (
        (f"evil.example:{port}",),
        ("127.0.0.1",),
        (f"127.0.0.1:{port + 1}",),
        (f"127.0.0.1:{port}.evil.example",),
        ("",),
        (f"127.0.0.1:{port}", "evil.example"),
    ):
        assert get(server, path, *hosts)[0] == 403, hosts
    with socket.create_connection(("127.0.0.1", port), 5) as bare:
        bare.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        assert b" 403 " in bare.recv(1000)


def test_there_is_one_page_and_one_way_to_ask_for_it(server: LiveServer) -> None:
    assert get(server, f"/run.key?token={server.token}")[0] == 404
    assert get(server, f"/../../etc/passwd?token={server.token}")[0] == 404
    assert get(server, f"http://[?token={server.token}")[0] == 400
    assert get(server, f"/?token={server.token}", method="POST")[0] == 501


def test_it_listens_on_loopback_alone(server: LiveServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_connections_are_bounded_and_silent_ones_end(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 2)
    monkeypatch.setattr(module.Handler, "timeout", 1.5)
    server = LiveServer(LiveRun(run))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    silent = [socket.create_connection(("127.0.0.1", server.port), 5) for _ in range(2)]
    for one in silent:
        one.sendall(b"GET / HT")
    time.sleep(0.3)
    with pytest.raises((OSError, http.client.HTTPException)):
        get(server, f"/?token={server.token}")
    for one in silent:
        one.settimeout(60)
        assert one.recv(1) == b""
        one.close()
    assert answers_again(server)
    server.shutdown()
    server.server_close()


def answers_again(server: LiveServer) -> bool:
    """Its threads have noticed that their connections ended."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return get(server, f"/?token={server.token}")[0] == 200
        time.sleep(0.05)
    return False


def test_sections_are_those_of_now(server: LiveServer, run: Path) -> None:
    path = f"/sections?token={server.token}"
    status, headers, text = get(server, path)
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"round": 77, "accuracy_mean": 0.125}\n')
    before, after = json.loads(text), json.loads(get(server, path)[2])
    assert "accuracy 12.5%" in after["log"]
    assert before["privacy"] == after["privacy"]  # the certificate's


def test_a_port_in_use_and_one_that_is_none_are_a_sentence(run: Path, command: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, errors = command("watch", str(run), "--port", str(port))
    assert code == 2
    assert errors.startswith(f"gossamer: --port {port} cannot be used: ")
    assert len(errors.splitlines()) == 1
    with expect_refusal(key="--port", value="70000"):
        watch(run, port=70000)
    code, _, errors = command("watch", str(run / "checkpoints"))
    assert (code, len(errors.splitlines())) == (2, 1)


def test_the_command_ends_at_once_by_ctrl_c(run: Path, start: Any) -> None:
    words = [sys.executable, "-m", "gossamer", "watch", str(run)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = start(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    url = re.search(r"http://127\.0\.0\.1:(\d+)(/\?token=\S+)", process.stdout.readline())
    assert url
    connection = socket.create_connection(("127.0.0.1", int(url[1])), 5)  # one that stays open keeps nobody
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)  # a hang, not a benchmark
    assert (process.returncode, errors) == (0, "")
    connection.close()


BAD = "<img src=x onerror=document.title='run'><script>document.title='run'</script>"


@pytest.mark.parametrize("width", [1280, pytest.param(390, marks=pytest.mark.slow)])
def test_in_a_browser_a_running_runs_page_follows_it(browser: Any, run: Path, width: int) -> None:
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    certificate = (run / "certificate.json").read_text()
    (run / "certificate.json").unlink()
    (run / "metrics.jsonl").write_text(lines[0])
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "name": BAD}))
    server = LiveServer(LiveRun(run))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    context = browser.new_context(viewport={"width": width, "height": 844}, is_mobile=width < 800)
    page = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url.split("?")[0]))
    page.goto(server.url)
    page.wait_for_selector("#feed.live")
    assert "evaluated after 2 of 4 rounds" in page.inner_text("#head")
    with (run / "metrics.jsonl").open("a") as file:
        file.write(lines[1][:50])
        file.flush()
        file.write(lines[1][50:])
    page.wait_for_selector("text=evaluated after 4 of 4 rounds")  # by itself: nobody loads anything again
    (run / "certificate.json").write_text(certificate)
    page.wait_for_selector("#head .state:text-is('finished')")
    base = f"http://127.0.0.1:{server.port}"
    assert {url for url in requests if not url.startswith("data:")} == {f"{base}/", f"{base}/sections"}
    assert complaints == []
    assert page.title() == "gossamer watch"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Where an escape were missing, the policy stops it.
    page.evaluate("text => { document.getElementById('log').innerHTML = text; }", BAD)
    page.wait_for_timeout(200)
    assert page.title() == "gossamer watch"
    assert any("Content Security Policy" in words for words in complaints)
    context.close()
    server.shutdown()
    server.server_close()
