"""One module per framework, each with its own extra: thin faces on the rooms."""
