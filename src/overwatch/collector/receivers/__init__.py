"""What brings OTLP in: one receiver, two transports.

Transports turn bytes into calls of the intake and its answers into their protocol.
"""
