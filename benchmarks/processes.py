"""Round time and bytes of several processes against the simulator, and a model of both, checked.

    python benchmarks/processes.py            the table, the model, its check against what was measured
    python benchmarks/processes.py --cable    and against two namespaces with a cable of limited rate (needs root)
    python benchmarks/processes.py --write    and put it all into docs/scaling.md

A round here is what a private method does besides gradients: draw every node's noise, then exchange with the
neighbours. The ranks draw the next noise while messages travel. Times are of the slowest rank, the lower quartile over
rounds: what else runs on the machine only adds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gossamer.kernels.noise import Stream
from gossamer.runtime.blocks import split
from gossamer.runtime.exchange import route
from gossamer.runtime.group import Ranks
from gossamer.runtime.launch import start_rank
from gossamer.runtime.simulator import SimulatedExchange
from gossamer.runtime.transport.meeting import open_meeting_point
from gossamer.runtime.transport.torch import TorchTransport
from gossamer.runtime.wire import HEADER
from gossamer.topology.kinds import build

RUN = "00" * 8
TIMEOUT = 300.0
WARM_UP = 3  # rounds


def timed(exchange: Any, noise: Any, x: torch.Tensor, rounds: int) -> list[float]:
    """Seconds of each round; the first few count for nothing."""
    times = []
    for t in range(rounds + WARM_UP):
        start = time.perf_counter()
        noise()
        exchange(t, x)
        times.append(time.perf_counter() - start)
    return times[WARM_UP:]


def quartile(times: list[float]) -> float:
    return sorted(times)[len(times) // 4]


def drawing(nodes: range, width: int) -> Any:
    stream, out = Stream.seeded(0), torch.empty(len(nodes), width)
    steps = iter(range(10**9))
    return lambda: stream.normal_rows(0, list(nodes), next(steps), out, 1.0)


def simulate(job: dict[str, Any]) -> dict[str, Any]:
    topology = build(job["topology"], nodes=job["nodes"], weights="column", seed=0)
    exchange = SimulatedExchange(topology)
    x = torch.ones(job["nodes"], job["width"])
    noise = drawing(range(job["nodes"]), job["width"]) if job["noise"] else lambda: None
    times = timed(exchange, noise, x, job["rounds"])
    sent = exchange.bytes_sent / (job["rounds"] + WARM_UP) / job["nodes"]
    return {"seconds": quartile(times), "sent": sent, "wire": 0.0}


def rank_main() -> None:
    """One rank: jobs come as lines on stdin, the first rank answers on stdout."""
    transport = TorchTransport.meet(timeout=TIMEOUT)
    for line in sys.stdin:
        job = json.loads(line)
        n, size = job["nodes"], transport.size
        ranks = Ranks([range(n * r // size, n * (r + 1) // size) for r in range(size)], transport)
        topology = build(job["topology"], nodes=n, weights="column", seed=0)
        noise = drawing(ranks.nodes, job["width"]) if job["noise"] else lambda: None
        exchange = ranks.exchange(topology, RUN, noise)
        times = timed(exchange, lambda: None, torch.ones(len(ranks.nodes), job["width"]), job["rounds"])
        slowest = [max(pair) for pair in zip(*_rows(ranks.join(times), size), strict=True)]
        wire = sum(ranks.join([exchange.bytes_on_wire])) / (job["rounds"] + WARM_UP) / n
        sent = sum(ranks.join([exchange.bytes_sent])) / (job["rounds"] + WARM_UP) / n
        ranks.messenger.watch.close()
        if ranks.first:
            answer = {"seconds": quartile(slowest), "sent": sent, "wire": wire}
            print(json.dumps(answer), flush=True)
    transport.close()


def _rows(flat: list[float], rows: int) -> list[list[float]]:
    width = len(flat) // rows
    return [flat[i * width : (i + 1) * width] for i in range(rows)]


def on_ranks(size: int, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    notes = open_meeting_point()
    command = [sys.executable, __file__, "--rank"]
    processes = [
        start_rank(
            command, rank, size, notes.store.port, stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        )
        for rank in range(size)
    ]
    text = "".join(json.dumps(job) + "\n" for job in jobs).encode()
    for process in processes[1:]:
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.close()
    out, _ = processes[0].communicate(text)
    for process in processes:
        process.wait()
    return [json.loads(line) for line in out.splitlines()]


def on_a_cable(rate: str, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two ranks in two network namespaces, the cable between them limited to `rate`."""
    names = [f"bench-{os.getpid()}-{i}" for i in (0, 1)]

    def run(*words: str) -> None:
        subprocess.run(words, check=True)

    try:
        for name in names:
            run("ip", "netns", "add", name)
        run(
            "ip",
            "link",
            "add",
            "cable",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            "cable",
            "netns",
            names[1],
        )
        for i, name in enumerate(names):
            run("ip", "-n", name, "address", "add", f"10.78.0.{i + 1}/24", "dev", "cable")
            run("ip", "-n", name, "link", "set", "cable", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
            limit = ["rate", rate, "burst", "256kb", "latency", "400ms"]
            run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "cable", "root", "tbf", *limit)
        text = "".join(json.dumps(job) + "\n" for job in jobs).encode()
        processes = []
        for i, name in enumerate(names):
            meeting = {"MASTER_ADDR": "10.78.0.1", "MASTER_PORT": "29511", "GLOO_SOCKET_IFNAME": "cable"}
            ranks = {"RANK": str(i), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
            processes.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", name, sys.executable, __file__, "--rank"],
                    env={**os.environ, **meeting, **ranks}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                )
            )  # fmt: skip
        second = processes[1].stdin
        assert second is not None
        second.write(text)
        second.close()
        out, _ = processes[0].communicate(text)
        processes[1].wait()
        return [json.loads(line) for line in out.splitlines()]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


said: list[str] = []


def say(text: str) -> None:
    print(text, flush=True)
    said.append(text)


def table(rounds: int) -> None:
    nodes = 8
    jobs = [
        {
            "nodes": nodes,
            "topology": kind,
            "width": width,
            "rounds": rounds if width < 10**6 else 5,
            "noise": True,
        }
        for width in (10**5, 10**7)
        for kind in ("ring", "exponential")
    ]
    measured = {
        "simulator": [simulate(job) for job in jobs],
        **{f"{r} ranks": on_ranks(r, jobs) for r in (2, 4)},
    }
    say(f"\n{nodes} nodes, a round = all noise + the exchange; bytes per node and round\n")
    say("| d | graph | runtime | ms a round | sent, measured | 4·d·out-degree | off by | on the wire |")
    say("|---|---|---|---|---|---|---|---|")
    for i, job in enumerate(jobs):
        degree = build(job["topology"], nodes=nodes, weights="column", seed=0).out_degree(0).mean()
        due = 4 * job["width"] * degree
        for name, found in measured.items():
            one = found[i]
            say(
                f"| {job['width']:,} | {job['topology']} | {name} | {1e3 * one['seconds']:.1f} | {one['sent']:,.0f} "
                f"| {due:,.0f} | {100 * (one['sent'] / due - 1):+.2f}% | {one['wire']:,.0f} |"
            )
    alone = on_ranks(
        8,
        [
            {"nodes": 8, "topology": k, "width": 10**5, "rounds": 5, "noise": False}
            for k in ("ring", "exponential")
        ],
    )
    say("\none node per rank (8 ranks), d = 100,000: every message is on the wire\n")
    for kind, one in zip(("ring", "exponential"), alone, strict=True):
        due = 4 * 10**5 * build(kind, nodes=8, weights="column", seed=0).out_degree(0).mean()
        say(
            f"- {kind}: {one['wire']:,.0f} bytes per node and round, "
            f"{100 * (one['wire'] / due - 1):+.3f}% off 4·d·out-degree"
        )


def model(rounds: int) -> tuple[float, float]:
    """seconds = a · (messages a rank sends and gets) + b · (bytes it sends and gets), ranks sharing the cores.

    Fitted at 2 and 4 ranks, checked at 8.
    """
    widths, kinds = (10**3, 10**4, 10**5, 10**6), ("ring", "exponential")
    rows: list[tuple[int, str, int, float, float, float]] = []
    for size in (2, 4, 8):
        jobs = [
            {"nodes": 2 * size, "topology": kind, "width": width, "rounds": rounds, "noise": False}
            for kind in kinds
            for width in widths
        ]
        for job, found in zip(jobs, on_ranks(size, jobs), strict=True):
            total, count = _traffic(job["topology"], 2 * size, size, job["width"])
            # The ranks share the cores: what they all do is done `cores` at a time.
            share = min(size, os.cpu_count() or 1)
            rows.append((size, job["topology"], job["width"], count / share, total / share, found["seconds"]))
    fit = [row for row in rows if row[0] < 8]
    A = np.array([[row[3], row[4]] for row in fit])
    y = np.array([row[5] for row in fit])
    a, b = np.linalg.lstsq(A / y[:, None], np.ones(len(y)), rcond=None)[0]  # relative errors count
    say(
        f"\nmodel: {1e6 * a:.0f} µs a message and {1e9 * b:.2f} ns a byte: packed, checked, carried, mixed "
        "(fitted at 2 and 4 ranks)\n"
    )
    say("| ranks | graph | d | measured ms | model ms | ratio |")
    say("|---|---|---|---|---|---|")
    for size, kind, width, count, total, seconds in rows:
        said = a * count + b * total
        say(
            f"| {size} | {kind} | {width:,} | {1e3 * seconds:.2f} | {1e3 * said:.2f} | {seconds / said:.2f} |"
        )
    return float(a), float(b)


def _traffic(kind: str, nodes: int, size: int, width: int) -> tuple[float, float]:
    """Bytes and messages of all ranks in a round, counted at both ends."""
    topology, blocks = build(kind, nodes=nodes, weights="column", seed=0), split(nodes, size)
    ways = [route(topology, 0, blocks, rank) for rank in range(size)]
    rows = sum(len(way) for w in ways for way in w.send.values())
    messages = sum(len(w.send) for w in ways)
    return 2.0 * (rows * 4 * width + HEADER * messages), 2.0 * messages


def cable(a: float, b: float, rounds: int) -> None:
    say("\ntwo hosts (namespaces), one node each, a cable of limited rate; model = local part + bytes / rate")
    say("| rate | d | measured ms | model ms | ratio |")
    say("|---|---|---|---|---|")
    for rate, bits in (("100mbit", 1e8), ("1gbit", 1e9)):
        jobs = [
            {"nodes": 2, "topology": "directed-ring", "width": width, "rounds": rounds, "noise": False}
            for width in (10**5, 10**6)
        ]
        for job, found in zip(jobs, on_a_cable(rate, jobs), strict=True):
            size = 4 * job["width"] + HEADER
            said = a * 2 + b * 2 * size + 8 * size * 1.04 / bits  # 4%: the headers of TCP, IP and Ethernet
            say(
                f"| {rate} | {job['width']:,} | {1e3 * found['seconds']:.1f} | {1e3 * said:.1f} "
                f"| {found['seconds'] / said:.2f} |"
            )


def internet(a: float, b: float) -> list[str]:
    """The same model on lines nobody here has: one node per site."""
    lines = [
        "| d | graph | bytes per node and round | 1 Gbit/s, 1 ms | 100 Mbit/s, 20 ms | 20 Mbit/s, 80 ms |",
        "|---|---|---|---|---|---|",
    ]
    for width, kind, degree in (
        (26_010, "one-peer exponential", 1), (10**5, "ring", 2), (10**7, "one-peer exponential", 1),
        (10**7, "exponential, 1,024 nodes", 10),
    ):  # fmt: skip
        size = 4 * width * degree
        local = 2 * degree * a + 2 * size * b
        times = [
            local + latency + 8 * size / rate for rate, latency in ((1e9, 1e-3), (1e8, 0.02), (2e7, 0.08))
        ]
        shown = " | ".join(f"{seconds:.3g} s" for seconds in times)
        lines.append(f"| {width:,} | {kind} | {size:,} | {shown} |")
    return lines


def write(name: str, lines: list[str]) -> None:
    """Between the marks of that name."""
    page = Path(__file__).parents[1] / "docs" / "scaling.md"
    before, rest = page.read_text(encoding="utf-8").split(f"<!-- {name} -->\n", 1)
    _, after = rest.split(f"<!-- end {name} -->", 1)
    text = "\n".join(lines).strip("\n")
    page.write_text(f"{before}<!-- {name} -->\n{text}\n<!-- end {name} -->{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--cable", action="store_true", help="also two namespaces with a limited cable (needs root)"
    )
    parser.add_argument("--write", action="store_true", help="put the tables into docs/scaling.md")
    parser.add_argument("--rounds", type=int, default=20)
    asked = parser.parse_args()
    if asked.rank:
        rank_main()
        return
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    say(
        f"Measured on {os.cpu_count()} cores, torch {torch.__version__}; load before (1, 5, 15 minutes): {load}."
    )
    table(asked.rounds)
    a, b = model(asked.rounds)
    if asked.cable:
        cable(a, b, 6)
    if asked.write:
        write("tables", said)
        write("internet", internet(a, b))


if __name__ == "__main__":
    main()
