#!/usr/bin/env bash
# host.sh on two "hosts" of this machine: two network namespaces with an address and a disk of their own, joined by one
# cable. Needs root (ip netns). Words go to `gossamer run`; the hosts' folders are host-0 and host-1 in $WORK.
#   RATE=100mbit ./namespaces.sh ...    limits the cable
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${WORK:-$(mktemp -d)} a=gossamer-$$-0 b=gossamer-$$-1
cleanup() { ip netns del "$a" 2>/dev/null || true; ip netns del "$b" 2>/dev/null || true; }
trap cleanup EXIT
ip netns add "$a"
ip netns add "$b"
ip link add cable netns "$a" type veth peer name cable netns "$b"
for i in 0 1; do
    name=gossamer-$$-$i
    ip -n "$name" address add "10.77.0.$((i + 1))/24" dev cable
    ip -n "$name" link set cable up
    ip -n "$name" link set lo up
    if [ -n "${RATE:-}" ]; then
        ip netns exec "$name" tc qdisc add dev cable root tbf rate "$RATE" burst 64kb latency 200ms
    fi
    mkdir -p "$work/host-$i"
done
(cd "$work/host-1" && exec ip netns exec "$b" "$here/host.sh" 1 10.77.0.1 cable "$@") >"$work/host-1/log" 2>&1 &
second=$!
code=0
(cd "$work/host-0" && exec ip netns exec "$a" "$here/host.sh" 0 10.77.0.1 cable "$@") || code=$?
wait "$second" || code=$?
exit "$code"
