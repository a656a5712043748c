"""The exporter process: frames from the trainer in, OTLP out.

Only this package loads OpenTelemetry. Rules: reading the trainer's stream never waits for the network; facts
outlive numbers; everything is counted. Must not be imported by the trainer.
"""
