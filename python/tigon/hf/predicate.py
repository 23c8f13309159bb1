"""What every fused call asks first: may an operator take these tensors, here and now?

Device, dtype and wrappers change after a model is patched, so this runs at call time. It is traced by
torch.compile, where its answers become guards.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tigon import ops

DEVICES = frozenset(filter(ops.has_kernels, ("cpu", "cuda")))
DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
_PLAIN = (Tensor, nn.Parameter)


def unfit(*tensors: Tensor | None) -> str | None:
    """Why the operators cannot take these tensors together, or None if they can."""
    if not torch.compiler.is_compiling() and _transformed():
        return "inside torch.func or forward-mode differentiation"
    device = None
    for tensor in tensors:
        if tensor is None:
            continue
        if type(tensor) not in _PLAIN:  # DTensor, torchao, bitsandbytes: not memory we may read
            return f"tensor subclass {type(tensor).__name__}"
        if tensor.device.type not in DEVICES:
            return f"no kernels for device {tensor.device.type}"
        if tensor.dtype not in DTYPES:
            return f"dtype {str(tensor.dtype).removeprefix('torch.')}"
        if tensor.layout is not torch.strided:
            return f"layout {tensor.layout}"
        if device is not None and tensor.device != device:
            return "tensors on different devices"
        device = tensor.device
    return None


def _transformed() -> bool:
    """The operators have a backward formula and no others."""
    return torch._C._functorch.peek_interpreter_stack() is not None or torch.autograd.forward_ad._current_level >= 0


def observed(module: nn.Module) -> str | None:
    """Why `module` must be called as a module: somebody watches or has replaced its forward."""
    if "forward" in module.__dict__:
        return "its forward was replaced"
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        return "it has hooks"
    return None
