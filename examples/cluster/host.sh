#!/usr/bin/env bash
# One host of a run over two: the same command on both, but for the first word.
#   ./host.sh 0 ADDRESS-OF-HOST-0 INTERFACE      on the first host
#   ./host.sh 1 ADDRESS-OF-HOST-0 INTERFACE      on the second
# INTERFACE is this host's network card towards the other (see `ip address`). More words go to `gossamer run`.
# After a stop:  RECIPE= ./host.sh ... --resume DIR   on both.
set -euo pipefail
host=$1 address=$2 interface=$3
shift 3
export GLOO_SOCKET_IFNAME=$interface OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_WAIT_POLICY=PASSIVE
exec "${TORCHRUN:-torchrun}" --nnodes 2 --node-rank "$host" --nproc-per-node "${RANKS_PER_HOST:-1}" \
    --master-addr "$address" --master-port "${PORT:-29500}" \
    -m gossamer run ${RECIPE-quickstart} --runtime processes "$@"
