#!/usr/bin/env bash
# Form, static checks, types, who may import whom. `--fix` rewrites what the formatters can.
cd "$(dirname "$0")/.." && . tools/common.sh

mapfile -t sources < <(find include src bindings tests/cpp bench examples \
  -name '*.h' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.cu' 2>/dev/null | sort)
python_folders=(python tools tests/python)
[ ! -d bench ] || python_folders+=(bench)

if [ "${1:-}" = --fix ]; then
  clang-format -i "${sources[@]}"
  ruff check --quiet --fix "${python_folders[@]}" || true
  ruff format --quiet "${python_folders[@]}"
  exit 0
fi

for tool in clang-format clang-tidy ruff mypy; do need "$tool" "$tool from PyPI"; done
status=0
check() { # NAME COMMAND...: its output is shown when it fails
  local name=$1 log=build/lint.log start=$SECONDS
  shift
  if "$@" >"$log" 2>&1; then
    printf '  ok      %-14s %3d s\n' "$name" $((SECONDS - start))
  else
    printf '  FAILED  %s\n' "$name"
    cat "$log"
    status=1
  fi
}
tidy() { # the host code of every folder: nvcc's translation units are not clang's to read
  local files
  mapfile -t files < <(printf '%s\n' "${sources[@]}" | grep -E '^(src|bindings)/.*\.cpp$')
  printf '%s\n' "${files[@]}" |
    xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p "build/$(preset)" \
      --extra-arg=-Wno-unknown-warning-option
}

mkdir -p build
say "Checks"
check clang-format clang-format --dry-run -Werror "${sources[@]}"
check ruff ruff check "${python_folders[@]}"
check "ruff format" ruff format --check "${python_folders[@]}"
check imports "$python" tools/check_imports.py
check mypy mypy
check clang-tidy tidy
exit $status
