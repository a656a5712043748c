"""Checkpoints: what a training can go on from, a folder each.

```
OUT/checkpoints/
  001-00000010/          lineage and updates done; a resume begins the next lineage
    policy.safetensors optimizer.safetensors algorithm.safetensors   the algorithm's state, by prefix
    world.safetensors    left out where the world is not resumable or too large
    trainer.safetensors  running sums of episodes, the generator of draws
    state.json           counts, plan, configuration
    MANIFEST.json        written last: every file with its size and hash, every tensor with shape and dtype
  latest  best           names, each replaced as a whole
```

`manifest` is the format, `writing` makes one, `reading` finds and loads one, `manager` has them written by a
process of its own (`writer`) while training goes on.
"""
