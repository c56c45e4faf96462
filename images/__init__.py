"""Builds the container images, keyed by what is in them, and takes them to a registry."""
