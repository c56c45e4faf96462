"""The built-in autoscaler."""
