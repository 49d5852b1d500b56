"""The simulator: the production node function in virtual time, over simulated links and scripted children.

Owns: the virtual-time loop, the world of one run and the ports it hands to nodes. A run is a function of
(scenario, seed): the same pair gives the same bundle, byte for byte, in every process.
Not here: actors, protocols, introspectors, bundle assembly. Those are the production ones.
"""
