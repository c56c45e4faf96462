"""The CUDA backend, for NVIDIA GPUs of compute capability 9.0 and later.

A step is a list of kernel launches (program.py), made of plain values. The recorder compiles the
kernels with Triton and writes the list down as a graph image; the player turns an image into a
CUDA graph. Nothing here needs torch.
"""
