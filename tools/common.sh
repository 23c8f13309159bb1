# shellcheck shell=bash
# Shared by the scripts beside it, which source it from the repository root.
set -euo pipefail
root=$PWD

say() { printf '\n==> %s\n' "$*"; }
die() { printf 'tigon: %s\n' "$*" >&2; exit 1; }
need() { command -v "$1" >/dev/null || die "$1 not found: install the package $2."; }

venv=$root/.venv
tools=$root/build/tools         # programs of our own that the environment does not bring
sysroot=$root/build/sysroot     # unpacked system packages, where we may not install them
python=${PYTHON:-$venv/bin/python}

export PATH=$venv/bin:$tools/bin:$PATH
[ -z "${PYTHON:-}" ] || PATH=$(dirname "$(command -v "$PYTHON" || echo "$PYTHON")"):$PATH
export PYTHONPATH=$root/python${PYTHONPATH:+:$PYTHONPATH}
if [ -d "$sysroot" ]; then
  triplet=$(g++ -print-multiarch)
  export CMAKE_PREFIX_PATH=$sysroot/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
  export LD_LIBRARY_PATH=$sysroot/usr/lib/$triplet${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  # Not CPATH: these are system headers, and their warnings are not ours.
  for include in "$sysroot/usr/include" "$sysroot"/usr/include/python3.*; do
    [ ! -d "$include" ] || export CPLUS_INCLUDE_PATH=$include${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
  done
  export C_INCLUDE_PATH=${CPLUS_INCLUDE_PATH:-}
fi
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)

# The preset to build: PRESET, else `cuda` where there is a compiler for it and a torch that can load the result.
preset() {
  [ -z "${PRESET:-}" ] || { echo "$PRESET" && return; }
  local torch_cuda
  torch_cuda=$("$python" -c 'import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("torch").origin).parent / "lib/libtorch_cuda.so")')
  if [ -n "$nvcc" ] && [ -e "$torch_cuda" ]; then echo cuda; else echo cpu; fi
}
