"""The exporter `otlp_file`: every accepted batch into a recording, once, and the recording kept small."""

from overwatch.collector.exporters.otlp_file.config import OtlpFileConfig
from overwatch.collector.exporters.otlp_file.exporter import NAME, OtlpFileExporter

__all__ = ["NAME", "OtlpFileConfig", "OtlpFileExporter"]
