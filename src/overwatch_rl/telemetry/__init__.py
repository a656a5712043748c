"""Where a run's numbers go: the tower, files, the screen; reporters are composed."""
