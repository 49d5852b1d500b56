"""The pages of the documentation, and the few programs that keep them true."""
