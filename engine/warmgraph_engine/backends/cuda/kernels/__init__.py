"""Triton kernels of a step, compiled ahead of time (compiler.py) and launched by the driver.

Two properties hold for all of them, and the rest of the backend builds on them:

- A row's result does not depend on the rows beside it, the tile sizes, the step's kind or its
  padding, down to the last bit: every sum over a row runs in one fixed order.
- A kernel may become resident while the kernels before it still run (programmatic dependent
  launch). Until `wait_for_previous` it touches only what no kernel of the step writes.
"""
