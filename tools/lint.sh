#!/usr/bin/env bash
# Form, static checks, types, who may import whom. `--fix` rewrites what the formatters can.
cd "$(dirname "$0")/.." && . tools/common.sh

mapfile -t sources < <(find include src bindings skeleton tests/cpp bench/cpp examples \
  -name '*.h' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.cu' | sort)
python_folders=(python skeleton tools tests/python)

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
# The host code of every folder (nvcc's translation units are not clang's to read). A file that was fine is not read again
# while it and all headers stay as they are.
tidy_one() {
  local file=$1 seen
  seen=build/tidy/$(cat "$file" - <<<"$file $headers_key" | sha256sum | cut -c1-32)
  [ -e "$seen" ] && return
  clang-tidy --quiet -p build/tidy --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-deprecated-declarations \
    "$file" && touch "$seen"
}
tidy() {
  local build=build/$(preset)
  headers_key=$(printf '%s\n' "${sources[@]}" | grep -E '\.(h|cuh)$' | xargs cat .clang-tidy "$build/CMakeCache.txt" |
    sha256sum)
  export -f tidy_one
  export headers_key
  mkdir -p build/tidy
  # Bindings are compiled for two libraries; once is enough here.
  "$python" -c 'import json, sys
commands = {command["file"]: command for command in json.load(sys.stdin)}
json.dump(list(commands.values()), sys.stdout)' <"$build/compile_commands.json" >build/tidy/compile_commands.json
  printf '%s\n' "${sources[@]}" | grep -E '^(src|bindings)/.*\.cpp$' | xargs -P "$(nproc)" -I{} bash -c 'tidy_one {}'
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
