"""Reports of one model at several times."""
