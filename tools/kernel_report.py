"""What the build cost: compile time per source, kernel instances per source.

python tools/kernel_report.py BUILD_FOLDER
"""

from __future__ import annotations

import collections
import re
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
    """Instances by source file: nvcc leaves one host stub with one guard variable for each, whatever the targets."""
    symbols = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
    stubs = set(re.findall(r"_ZGVZ\S*__device_stub__\S+", symbols))
    files = (re.search(r"_GLOBAL__N__[0-9a-f]+_\d+_(\w+?)_cu_", stub) for stub in stubs)
    return collections.Counter(f"{match[1]}.cu" if match else "shared" for match in files)


def main() -> None:
    build = Path(sys.argv[1])
    seconds = compile_seconds(build)
    total = sum(seconds.values())
    print(f"{len(seconds)} objects, {total:.0f} s of compilation; the slowest:")
    for name, took in sorted(seconds.items(), key=lambda item: -item[1])[:SHOWN]:
        print(f"  {took:7.1f} s  {name}")
    for library in sorted(Path("python/tigon/_lib").glob("*cuda*.so")):
        counts = kernels(library)
        print(f"{counts.total()} kernel instances in {library.name}, {library.stat().st_size / 2**20:.1f} MiB:")
        for name, count in counts.most_common():
            print(f"  {count:7d}    {name}")


if __name__ == "__main__":
    main()
