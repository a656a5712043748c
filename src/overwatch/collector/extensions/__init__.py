"""What stands beside the pipelines: health, the view API, the locked data folder."""
