"""torch's "cuda" as a name of the CPU: scripts that make tensors there, and ask which GPU it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

from tcsim.core.targets import ARCHS


class CpuForCuda(TorchFunctionMode):  # type: ignore[misc]  # torch is not type-checked here
    """Every call of torch with the device "cuda" gets the CPU instead; `tensor.cuda()` is the tensor, and `is_cuda` holds."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The call with other devices."""
        if func is torch.Tensor.cuda:
            return args[0]
        if func == torch.Tensor.is_cuda.__get__:
            return True
        return func(*map(on_cpu, args), **{name: on_cpu(value) for name, value in (kwargs or {}).items()})


def on_cpu(value: Any) -> Any:
    """The CPU for a CUDA device, everything else as it is.

    >>> on_cpu("cuda:0"), on_cpu(torch.device("cuda")), on_cpu("cudarap"), on_cpu(3)
    ('cpu', device(type='cpu'), 'cudarap', 3)
    """
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return value


class Stream:
    """The stream of all launches, whose work has been done when it is asked for."""

    cuda_stream = 0

    def __init__(self, *given: Any, **options: Any) -> None:
        self.given = given, options

    def synchronize(self) -> None:
        """Nothing: launches have ended when they return."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing: there is one stream."""


@contextmanager
def cpu_for_cuda(arch: str, multiprocessors: int) -> Iterator[None]:
    """Take "cuda" for the CPU: in calls of torch, and in the functions of torch.cuda that say what there is.

    `is_available`, `device_count`, `current_device`, `get_device_capability`, `get_device_name`, `get_device_properties`,
    `current_stream`, `default_stream`, `synchronize`, `empty_cache`, `manual_seed` and `manual_seed_all` answer, and
    `Stream` is the one stream; the rest of torch.cuda stays as it is.
    """
    chip = ARCHS[arch]
    capability = divmod(chip.number, 10)
    name = f"{chip.example} (tcsim)"
    answers: dict[str, Any] = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_capability": capability, "get_device_name": name,
        "get_device_properties": SimpleNamespace(
            name=name, major=capability[0], minor=capability[1], multi_processor_count=multiprocessors, warp_size=32
        ),
        "current_stream": Stream(), "default_stream": Stream(), "synchronize": None, "empty_cache": None, "manual_seed": None, "manual_seed_all": None,
    }  # fmt: skip
    with ExitStack() as stack:
        for function, answer in answers.items():
            stack.enter_context(patch.object(torch.cuda, function, lambda *given, answer=answer, **more: answer))
        stack.enter_context(patch.object(torch.cuda, "Stream", Stream))
        stack.enter_context(CpuForCuda())
        yield
