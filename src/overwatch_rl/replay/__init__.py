"""Experience: chunks of steps in tables, sampled, leased, acknowledged; served by gRPC.

Never imports torch.
"""
