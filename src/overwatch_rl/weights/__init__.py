"""Weights to act with, from a learner to its actors: safetensors, signed, newest wins.

```
learner ─ publisher ─memfd─► writer ── artifact ─► store (folder, S3, GCS)  weights/001-00000010.safetensors
                               └────── manifest ─► version key              weights/current.json, or in Redis
actor ─── subscriber ─► channel (store | redis | http): newest manifest, then its artifact
```

`manifest` is the format and the checks, `publisher` and `writer` are the learner's side, `subscriber` is the
actor's, `channels` are the ways between them, `served` is what the learner serves over HTTP, `checking`
compares tensors.
"""
