"""How a gRPC channel finds its server again: soon after it is back, and however slow the way to it is.

Must not know what is called.
"""

from typing import Final

LONGEST_PAUSE_S: Final = 0.5
"""Between two tries to connect."""
LONGEST_TRY_S: Final = 10.0
"""Of one try, with TLS and HTTP/2: a busy machine or a far one takes seconds."""
RECONNECTING: Final = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", round(LONGEST_PAUSE_S * 1000)),
    # gRPC's core takes its "least backoff" as the deadline of a try.
    ("grpc.min_reconnect_backoff_ms", round(LONGEST_TRY_S * 1000)),
    ("grpc.use_local_subchannel_pool", 1),
)
"""Options of a channel."""
