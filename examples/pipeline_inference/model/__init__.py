"""The language models of the example: what they are made of, how they are cut, and how they are computed."""
