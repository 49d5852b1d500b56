"""The flight recorder: what a node says about itself, on its way into a bundle, and back out of one."""
