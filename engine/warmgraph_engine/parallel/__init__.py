"""Tensor parallelism: one process a rank, of which rank 0 decides and the others follow.

Rank 0 is the engine with everything it has; its backend (backend.py) tells the other ranks of every
step, capture and load before it does its own part, over a socket each (ranks.py, messages.py). The
others (worker.py) hold a backend of their own and nothing else, and end when their socket closes.
"""
