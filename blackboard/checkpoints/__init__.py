"""Hot, run-scoped checkpoints: the engine that stores threads, native state, and retention."""
