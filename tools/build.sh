#!/usr/bin/env bash
# Configures and builds: the CUDA backend too where nvcc is present.
cd "$(dirname "$0")/.." && . tools/common.sh

preset=$(preset)
arguments=("-DPython_EXECUTABLE=$python")
[ -z "$nvcc" ] || export CUDACXX=$nvcc
if [ "$preset" = cuda ]; then
  if nvidia-smi -L 2>/dev/null | grep -q GPU; then
    architectures=native
  else # nothing here runs it: the oldest and the newest architecture show that it compiles
    known=$("$nvcc" --list-gpu-code | sed -n 's/^sm_\([0-9]*\)$/\1/p')
    supported=$(for a in 75 80 90 100 120; do ! grep -qx "$a" <<<"$known" || echo "$a"; done)
    architectures="$(head -1 <<<"$supported");$(tail -1 <<<"$supported")"
  fi
  arguments+=("-DCMAKE_CUDA_ARCHITECTURES=$architectures")
fi
say "Building (preset $preset${architectures:+, architectures $architectures})"
mkdir -p build
cmake --preset "$preset" "${arguments[@]}" >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
cmake --build --preset "$preset"
