"""Choosing the next token: validated parameters, the sampler's interface, and the CPU's sampler."""
