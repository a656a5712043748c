#!/bin/sh
# Two ranks on this machine; without a GPU they meet over gloo.
exec accelerate launch --multi_gpu --num_machines=1 --num_processes=2 --mixed_precision=no --dynamo_backend=no \
  "$(dirname "$0")/train.py" "$@"
