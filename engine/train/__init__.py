"""Training of small models: the graphs that serve, differentiated as functions of their parameters."""
