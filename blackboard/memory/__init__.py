"""Cold, cross-run memory: records are the truth, the index over them is derived and only referred to."""
