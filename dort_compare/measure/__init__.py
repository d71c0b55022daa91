"""Numbers for a pair of values and the verdict over all pairs; no files, no screen."""
