"""What a bundle contains, as records; reading one needs this package and no running node.

Rules of change: an addition has a default and raises nothing; a field never changes its type or meaning;
a reader keeps kinds, blocks and values it does not know, counts them, and reads the rest.
"""
