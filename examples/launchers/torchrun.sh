#!/bin/sh
# Two ranks on this machine. On several: `--nnodes`, `--node-rank`, `--master-addr` and `--master-port` instead.
exec torchrun --standalone --nproc-per-node=2 "$(dirname "$0")/train.py" "$@"
