"""Checkpoints: what a training can go on from, in a folder of the run or in an object store.

```
PLACE/
  001-00000010/          lineage and number of the version; a resume begins the next lineage
    policy.safetensors value.safetensors optimizer.safetensors algorithm.safetensors   by prefix
    world.safetensors    left out where the world is not resumable or too large
    trainer.safetensors  running sums of episodes, the generator of draws
    state.json           counts, plan, configuration, how far experience was consumed
    MANIFEST.json        written last: every file with its size and hash, every tensor with shape and dtype
  latest  best           names, each replaced as a whole
  evaluations/           what was found of a version afterwards
```

`manifest` is the format, `content` what is the same in every place, `writing` makes one in a folder and
`uploading` in an object store, `remote` and `reading` find and load one, `listing` shows them, `manager` has
them written by a process of its own (`writer`) while training goes on.
"""
