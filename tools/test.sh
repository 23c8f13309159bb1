#!/usr/bin/env bash
# Every check and every test; the last line is `N passed, N failed, N skipped`.
cd "$(dirname "$0")/.." && . tools/common.sh
preset=$(preset)
status=0
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false

if [ -n "${PYTHON:-}" ] && ! command -v clang-tidy >/dev/null; then
  say "Checks left out: $PYTHON has no clang-tidy, clang-format, ruff and mypy"
else
  tools/lint.sh || status=1
fi
say "Build report"
"$python" tools/kernel_report.py "build/$preset"

say "C++ tests"
ctest --preset "$preset" --no-tests=error --output-junit "$root/build/test-cpp.xml" -j "$(nproc)" || status=1

say "Python tests"
workers=$(($(nproc) < 4 ? $(nproc) : 4))
options=(-q --junitxml=build/test-python.xml)
! "$python" -c 'import xdist' 2>/dev/null || options+=(-n "$workers" --dist worksteal)
# Threads beyond the cores only make PyTorch's pools wait for each other.
OMP_NUM_THREADS=$(($(nproc) / workers)) "$python" -m pytest "${options[@]}" tests/python || status=1

say "Result"
[ $status = 0 ] || echo "not everything passed, see above"
"$python" tools/test_summary.py build/test-cpp.xml build/test-python.xml || status=1
exit $status
