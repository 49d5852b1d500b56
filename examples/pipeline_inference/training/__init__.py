"""How the small model was made: text, differentiation, training. Not needed to run the example."""
