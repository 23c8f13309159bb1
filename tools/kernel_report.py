"""What the build cost: compile time per source, machine-code kernels per library.

python tools/kernel_report.py BUILD_FOLDER
"""

from __future__ import annotations

import collections
import re
import shutil
import subprocess
import sys
from pathlib import Path

SHOWN = 15


def compile_seconds(build: Path) -> dict[str, float]:
    """Seconds of each object's newest build, from ninja's log (start, end, mtime, output, hash)."""
    seconds = {}
    for line in (build / ".ninja_log").read_text().splitlines():
        fields = line.split("\t")
        if len(fields) == 5 and fields[3].endswith(".o"):
            seconds[re.sub(r"CMakeFiles/[^/]*\.dir/", "", fields[3])] = (int(fields[1]) - int(fields[0])) / 1000
    return seconds


def kernels(library: Path) -> collections.Counter[str]:
    """Kernels per architecture in a library's fat binary."""
    cuobjdump = shutil.which("cuobjdump") or "/usr/local/cuda/bin/cuobjdump"
    result = subprocess.run([cuobjdump, "-res-usage", library], capture_output=True, text=True, check=False)
    found: collections.Counter[str] = collections.Counter()
    arch = "?"
    for line in (result.stdout + result.stderr).splitlines():
        if match := re.search(r"arch = (\S+)", line):
            arch = match[1]
        elif line.strip().startswith("Function "):
            found[arch] += 1
    return found


def main() -> None:
    build = Path(sys.argv[1])
    seconds = compile_seconds(build)
    total = sum(seconds.values())
    print(f"{len(seconds)} objects, {total:.0f} s of compilation; the slowest:")
    for name, took in sorted(seconds.items(), key=lambda item: -item[1])[:SHOWN]:
        print(f"  {took:7.1f} s  {name}")
    for library in sorted(Path("python/tigon/_lib").glob("*cuda*.so")):
        for arch, count in sorted(kernels(library).items()):
            print(f"  {count:5d} kernels for {arch} in {library.name}")


if __name__ == "__main__":
    main()
