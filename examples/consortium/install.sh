#!/usr/bin/env bash
# A site's machine: a user without a shell, Gossamer in a venv of its own, one folder for keys and records, one service.
# Run as root in a checkout: examples/consortium/install.sh
#   ROOT=/elsewhere    puts everything below that folder and leaves users and services alone
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd) source=$(cd "$here/../.." && pwd) root=${ROOT:-}
if [ -z "$root" ] && ! id gossamer >/dev/null 2>&1; then
    useradd --system --home-dir /var/lib/gossamer --shell /usr/sbin/nologin gossamer
fi
install -d "$root/opt" "$root/etc/systemd/system"
install -d -m 700 "$root/var/lib/gossamer"
if [ -z "${WITHOUT_VENV:-}" ]; then
    "${PYTHON:-python3}" -m venv "$root/opt/gossamer"
    "$root/opt/gossamer/bin/pip" install --quiet -c "$source/constraints.txt" "$source[peers]"
fi
install -m 644 "$here/gossamer-peer@.service" "$root/etc/systemd/system/"
if [ -z "$root" ]; then
    chown gossamer: /var/lib/gossamer
    systemctl daemon-reload
fi
echo "next, as the user gossamer in $root/var/lib/gossamer: gossamer pki join INVITE --dir site ..."
