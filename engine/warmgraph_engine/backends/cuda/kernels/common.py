"""What the kernels share."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def wait_for_previous(PDL: tl.constexpr):
    """Let the next kernel become resident, then wait until everything before has been written.

    Every kernel calls it, also one that reads nothing from its predecessor: that is what makes
    the order of the whole chain hold.
    """
    if PDL:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def prefetch(pointers, size):
    """Ask for `size` bytes from each pointer on to be brought into the L2 cache.

    Pointers are aligned to 16 bytes, and 16 divides size.
    """
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; // $0",
        "=r,l,r",
        [pointers.to(tl.int64), size],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def widen(w, DTYPE: tl.constexpr):
    """Weights in the activations' type; every fp8 number has its like there."""
    return w if w.dtype == DTYPE else w.to(tl.float32).to(DTYPE)


@triton.jit
def settle(acc):
    """The sum of a matrix instruction, once it is there: who reads it waits.

    Weights that are widened go to the instruction by registers, and Triton 3.6 loads the next ones
    into the same registers while three instructions, or seven, may still read them. Seen on an
    H200: with 512 rows a product had other numbers each time.
    """
    return tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=f,f", [acc], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def multiply(a, b, COMPILED: tl.constexpr):
    """a * b in float32, rounded before anything is added to it.

    A compiler fuses a plain product with the sum that follows, which rounds once. Where one kernel
    adds up what another leaves to its reader, the bits of the two would differ. An interpreter,
    which fuses nothing, takes the plain one.
    """
    if COMPILED:
        return tl.inline_asm_elementwise(
            "mul.rn.f32 $0, $1, $2;", "=f,f,f", [a, b], dtype=tl.float32, is_pure=True, pack=1
        )
    return a * b


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """`silu`, `gelu`, `gelu_tanh` or `none`, in float32."""
    if ACTIVATION == "silu":
        x = x / (1.0 + tl.exp(-x))
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))  # 1 / sqrt(2)
    elif ACTIVATION == "gelu_tanh":
        # 0.5 (1 + tanh(u)) = sigmoid(2u), with u = sqrt(2 / pi) (x + 0.044715 x^3)
        x = x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
    return x
