"""The rewrites, one file each: a rule changes a model at a node, or says in a few words why not."""
