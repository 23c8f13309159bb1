"""`tigon doctor`: what is installed, which devices there are, which kernels are usable and why not."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata

import tigon
from tigon.cli.parser import Parser

_PACKAGES = ("transformers", "peft", "accelerate", "trl", "liger_kernel", "tokenizers")
Row = tuple[str, str, str]


def _packages() -> Iterator[Row]:
    import torch  # here, since --help and mistakes need not wait for it

    yield "python", platform.python_version(), sys.executable
    yield "torch", torch.__version__, ""  # as it is imported; its metadata leave out the build
    for name in _PACKAGES:
        try:
            yield name, metadata.version(name.replace("_", "-")), ""
        except metadata.PackageNotFoundError:
            yield name, "-", "not installed"


def _devices() -> Iterator[Row]:
    import torch

    cpu = torch.backends.cpu.get_cpu_capability()
    yield "cpu", cpu, f"{platform.machine()}, {torch.get_num_threads()} threads of {os.cpu_count()}"
    if torch.version.cuda is None:
        yield "cuda", "-", "this torch is built without CUDA"
    elif not torch.cuda.is_available():
        yield "cuda", "-", f"torch has CUDA {torch.version.cuda}, but no usable GPU or driver ({_driver()})"
    else:
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            memory = f"{properties.total_memory / 2**30:.0f} GiB"
            capability = f"sm_{properties.major}{properties.minor}"
            versions = f"driver {_driver()}, CUDA {torch.version.cuda}"
            yield f"cuda:{index}", capability, f"{properties.name}, {memory}, {versions}"


def _driver() -> str:
    """The driver's version, from the file that it keeps itself."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            words = file.readline().split()
    except OSError:
        return "no NVIDIA driver"
    return next((word for word in words if word[0].isdigit() and "." in word), "unknown")


def _kernels() -> tuple[list[Row], bool]:
    """One row per operator library and kind of device, and whether operators run on some device that is here."""
    import torch

    rows = [
        (library.path.name, "loaded" if library.loaded else "not loaded", library.reason)
        for library in tigon.libraries()
    ]
    present = {"cpu": True, "cuda": torch.cuda.is_available()}
    usable = {device: here and tigon.has_kernels(device) for device, here in present.items()}
    for device, works in usable.items():
        reason = "" if works else "its library is not loaded" if present[device] else "no GPU"
        rows.append((f"kernels on {device}", "usable" if works else "not usable", reason))
    return rows, any(usable.values())


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        prog="tigon doctor",
        description="Show versions, devices and which kernels are usable; exit code 0 when some are.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(argv)
    kernels, usable = _kernels()
    rows = [("tigon", tigon.__version__, ""), *_packages(), *_devices(), *kernels]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for row in rows:
        print(f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}".rstrip())
    if not usable:
        print("No fused kernels: models run on their own PyTorch code.")
    return 0 if usable else 1
