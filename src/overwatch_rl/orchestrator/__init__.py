"""Control of runs: their state machine, heartbeats and commands behind a REST API. Never imports torch."""
