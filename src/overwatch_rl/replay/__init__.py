"""Experience: chunks of steps in tables, sampled, leased, acknowledged; served over gRPC, without torch."""
