"""A language model cut over several nodes: each stage is an actor that owns one worker process."""
