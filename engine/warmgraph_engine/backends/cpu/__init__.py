"""The CPU backend: its graph is a traced program of tensor operations for one bucket."""
