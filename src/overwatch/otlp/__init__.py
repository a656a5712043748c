"""Events as OTLP and back: the one place that knows how facts and numbers lie on the wire.

`encode` makes log records of events, `decode` makes events of requests, `jsonl` is OTLP/JSON. Pure
functions over bytes; must not know who sent them or what they will change.
"""
