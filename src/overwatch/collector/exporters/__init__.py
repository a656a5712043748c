"""What carries accepted batches and finished snapshots out of the collector."""
