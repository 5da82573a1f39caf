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
import secrets
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gossamer.kernels.noise import Stream
from gossamer.runtime.blocks import split
from gossamer.runtime.exchange import route
from gossamer.runtime.forms import count, list_of, number
from gossamer.runtime.group import Ranks
from gossamer.runtime.launch import start_rank
from gossamer.runtime.simulator import SimulatedExchange
from gossamer.runtime.transport.meeting import Meeting
from gossamer.runtime.transport.secret import VARIABLE
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
        overlapped = job.get("overlapped", True)
        exchange = ranks.exchange(topology, RUN, noise if overlapped else lambda: None)
        first = (lambda: None) if overlapped else noise
        times = timed(exchange, first, torch.ones(len(ranks.nodes), job["width"]), job["rounds"])
        slowest = [max(pair) for pair in zip(*ranks.join([times], list_of(number)), strict=True)]
        wire = sum(ranks.join([exchange.bytes_on_wire], count)) / (job["rounds"] + WARM_UP) / n
        sent = sum(ranks.join([exchange.bytes_sent], count)) / (job["rounds"] + WARM_UP) / n
        ranks.messenger.watch.close()
        if ranks.first:
            answer = {"seconds": quartile(slowest), "sent": sent, "wire": wire}
            print(json.dumps(answer), flush=True)
    transport.close()


def on_ranks(size: int, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    meeting = Meeting()
    command = [sys.executable, __file__, "--rank"]
    processes = [
        start_rank(command, rank, size, meeting, stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL)
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
    meeting.close()
    if any(process.returncode for process in processes):
        raise SystemExit(f"{size} ranks ended with {[process.returncode for process in processes]}")
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
        processes, secret = [], secrets.token_hex(32)
        for i, name in enumerate(names):
            meeting = {"MASTER_ADDR": "10.78.0.1", "MASTER_PORT": "29511", "GLOO_SOCKET_IFNAME": "cable"}
            meeting[VARIABLE] = secret
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


def table(rounds: int) -> tuple[list[float], float]:
    """How many times longer than the simulator a round of ranks takes, in each case; the largest error in bytes."""
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
    slower, off = [], 0.0
    for i, job in enumerate(jobs):
        degree = build(job["topology"], nodes=nodes, weights="column", seed=0).out_degree(0).mean()
        due = 4 * job["width"] * degree
        for name, found in measured.items():
            one = found[i]
            off = max(off, abs(one["sent"] / due - 1))
            if name != "simulator":
                slower.append(one["seconds"] / measured["simulator"][i]["seconds"])
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
        off = max(off, abs(one["wire"] / due - 1))
        say(
            f"- {kind}: {one['wire']:,.0f} bytes per node and round, "
            f"{100 * (one['wire'] / due - 1):+.3f}% off 4·d·out-degree"
        )
    return slower, off


def overlap(rounds: int) -> list[float]:
    """Noise drawn while messages travel, against noise drawn first: the share of time that remains."""
    say(
        "\n8 nodes on a ring, d = 1,000,000: noise first, then the exchange, against noise while messages travel\n"
    )
    say("| ranks | one after the other, ms | at once, ms | ratio |")
    say("|---|---|---|---|")
    ratios = []
    for size in (2, 4, 8):
        job = {"nodes": 8, "topology": "ring", "width": 10**6, "rounds": rounds, "noise": True}
        after, at_once = on_ranks(size, [{**job, "overlapped": False}, {**job, "overlapped": True}])
        ratios.append(at_once["seconds"] / after["seconds"])
        say(f"| {size} | {1e3 * after['seconds']:.1f} | {1e3 * at_once['seconds']:.1f} | {ratios[-1]:.2f} |")
    return ratios


def model(rounds: int) -> tuple[float, float, list[tuple[int, int, float]]]:
    """seconds = a · (messages a rank sends and gets) + b · (bytes it sends and gets), ranks sharing the cores.

    Fitted at 2 and 4 ranks, checked at 8. (a, b, and of each row its ranks, d and measured over modelled time)
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
    checked = []
    for size, kind, width, count, total, seconds in rows:
        said = a * count + b * total
        checked.append((size, width, seconds / said))
        say(
            f"| {size} | {kind} | {width:,} | {1e3 * seconds:.2f} | {1e3 * said:.2f} | {seconds / said:.2f} |"
        )
    return float(a), float(b), checked


def _traffic(kind: str, nodes: int, size: int, width: int) -> tuple[float, float]:
    """Bytes and messages of all ranks in a round, counted at both ends."""
    topology, blocks = build(kind, nodes=nodes, weights="column", seed=0), split(nodes, size)
    ways = [route(topology, 0, blocks, rank) for rank in range(size)]
    rows = sum(len(way) for w in ways for way in w.send.values())
    messages = sum(len(w.send) for w in ways)
    return 2.0 * (rows * 4 * width + HEADER * messages), 2.0 * messages


def cable(a: float, b: float, rounds: int) -> dict[str, list[float]]:
    ratios: dict[str, list[float]] = {}
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
            ratios.setdefault(rate, []).append(found["seconds"] / said)
            say(
                f"| {rate} | {job['width']:,} | {1e3 * found['seconds']:.1f} | {1e3 * said:.1f} "
                f"| {found['seconds'] / said:.2f} |"
            )
    return ratios


def between(ratios: list[float]) -> str:
    low, high = f"{min(ratios):.1f}", f"{max(ratios):.1f}"
    return low if low == high else f"{low} to {high}"


def reading(
    slower: list[float],
    off: float,
    overlapped: list[float],
    checked: list[tuple[int, int, float]],
    cables: dict[str, list[float]],
) -> list[str]:
    """What the tables say, in words that follow from their figures."""
    faster = sum(ratio < 1 for ratio in slower)
    here = (
        "is faster in all rows"
        if not faster
        else f"is faster in {len(slower) - faster} of {len(slower)} rows"
    )
    large = [ratio for size, width, ratio in checked if width >= 10**5 and size < 8]
    eight = [ratio for size, width, ratio in checked if width >= 10**5 and size == 8]
    small = [ratio for _, width, ratio in checked if width < 10**5]
    text = (
        f"Read them so. Bytes are what they must be, to {100 * off:.2f}% (the headers). On one machine of "
        f"{os.cpu_count()} cores the simulator, which moves no bytes, {here}: ranks take {between(slower)} times as "
        "long. Processes are for memory that one process does not have and for machines that must keep their records, "
        f"not for speed here. Noise that is drawn while messages travel leaves {between(overlapped)} of the time that "
        "both take one after the other. From 10⁵ parameters on a round takes "
        f"{between(large)} times what the model says at the 2 and 4 ranks it was fitted at, {between(eight)} times at "
        f"8 ranks; with smaller messages {between(small)} times."
    )
    if cables:
        on = ", ".join(
            f"{between(found)} at {rate.replace('mbit', ' Mbit/s').replace('gbit', ' Gbit/s')}"
            for rate, found in cables.items()
        )
        text += f" With a cable that limits: {on}."
    return textwrap.wrap(text, 118)


def paper_reading(a: float, b: float) -> list[str]:
    """What the table of lines nobody here has says."""

    def seconds(width: int, degree: int, rate: float, latency: float) -> float:
        return 2 * degree * a + 8 * width * degree * b + latency + 32 * width * degree / rate

    small, ring = seconds(26_010, 1, 1e8, 0.02), seconds(10**5, 2, 1e8, 0.02)
    slow, large = 3500 * seconds(26_010, 1, 2e7, 0.08), 3500 * seconds(10**7, 1, 2e7, 0.08)
    return textwrap.wrap(
        f"Over 100 Mbit/s and 20 ms a model of 26,010 parameters waits 20 of {1e3 * small:.0f} ms of a round for "
        f"latency; one of 10⁵ on a ring is busy with bandwidth for {1e3 * 32 * 10**5 * 2 / 1e8:.0f} of "
        f"{1e3 * ring:.0f} ms, one of 10⁷ everywhere. There, graphs with one receiver per round (one-peer exponential) "
        "take a tenth of the time of those with ten, at the same mixing over as many rounds. 3,500 rounds of Dyn-D2P "
        f"with 26,010 parameters over 20 Mbit/s and 80 ms take {slow / 60:.0f} minutes of network time; with 10⁷ "
        f"parameters {large / 3600:.0f} hours. The number of nodes does not enter: a node has neighbours, not a "
        "network.",
        118,
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
    slower, off = table(asked.rounds)
    overlapped = overlap(asked.rounds)
    a, b, checked = model(asked.rounds)
    cables = cable(a, b, 6) if asked.cable else {}
    words, on_paper = reading(slower, off, overlapped, checked, cables), paper_reading(a, b)
    print("\n" + "\n".join([*words, "", *on_paper]))
    if asked.write:
        write("tables", said)
        write("reading", words)
        write("internet", internet(a, b))
        write("internet reading", on_paper)


if __name__ == "__main__":
    main()
