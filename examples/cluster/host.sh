#!/usr/bin/env bash
# One host of a run over two: the same command on both, but for the first word.
#   ./host.sh 0 ADDRESS-OF-HOST-0 INTERFACE      on the first host
#   ./host.sh 1 ADDRESS-OF-HOST-0 INTERFACE      on the second
# INTERFACE is this host's network card towards the other (see `ip address`). More words go to `gossamer run`.
# After a stop:  RECIPE= ./host.sh ... --resume DIR   on both.
set -euo pipefail
host=$1 meeting_point=$2 interface=$3
shift 3
export GLOO_SOCKET_IFNAME=$interface TORCH_CPP_LOG_LEVEL=ERROR
exec "${TORCHRUN:-torchrun}" --nnodes 2 --node-rank "$host" --nproc-per-node "${RANKS_PER_HOST:-1}" \
    --master-addr "$meeting_point" --master-port "${PORT:-29500}" \
    -m gossamer run ${RECIPE-quickstart} --runtime processes "$@"
