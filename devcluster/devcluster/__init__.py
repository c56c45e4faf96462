"""A real Kubernetes on one machine, without Docker: for tests, the demo and development.

Nothing in the product knows about it. It needs Python 3.11 and Go, nothing else from outside
Debian, and imports only the standard library, so that it runs before any environment exists.
"""
