#!/usr/bin/env bash
# One host of a run over two: the same command on both, but for the first word.
#   GOSSAMER_SECRET_FILE=run.secret ./host.sh 0 ADDRESS-OF-HOST-0 INTERFACE      on the first host
#   GOSSAMER_SECRET_FILE=run.secret ./host.sh 1 ADDRESS-OF-HOST-0 INTERFACE      on the second
# INTERFACE is this host's network card towards the other (see `ip address`). The secret's file is the same on both, and
# nobody else's: `openssl rand -hex 32 > run.secret; chmod 600 run.secret`. More words go to `gossamer run`.
# After a stop:  RECIPE= ./host.sh ... --resume DIR   on both.
# The ranks are started with the variables that torchrun would set, without torchrun: its own meeting point has no secret.
set -euo pipefail
host=$1 meeting_point=$2 interface=$3 here=${RANKS_PER_HOST:-1}
shift 3
export GLOO_SOCKET_IFNAME=$interface TORCH_CPP_LOG_LEVEL=ERROR OMP_WAIT_POLICY=PASSIVE
export MASTER_ADDR=$meeting_point MASTER_PORT=${PORT:-29500} GROUP_RANK=$host
export WORLD_SIZE=$((2 * here)) LOCAL_WORLD_SIZE=$here
ranks=()
# An interrupt or a stop goes to every rank, which then put their files in order.
trap 'kill -INT "${ranks[@]}" 2>/dev/null || true' INT TERM
for ((i = here - 1; i > 0; i--)); do
    RANK=$((host * here + i)) LOCAL_RANK=$i "${GOSSAMER:-gossamer}" run ${RECIPE-quickstart} --runtime processes "$@" >/dev/null &
    ranks+=($!)
done
RANK=$((host * here)) LOCAL_RANK=0 "${GOSSAMER:-gossamer}" run ${RECIPE-quickstart} --runtime processes "$@" &
ranks+=($!)
code=0
for rank in "${ranks[@]}"; do
    wait "$rank" || code=$?
done
exit "$code"
