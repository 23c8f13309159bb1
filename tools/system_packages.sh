#!/usr/bin/env bash
# Brings the C++ libraries the build needs: `apt-get install` as root, otherwise unpacked into build/sysroot.
cd "$(dirname "$0")/.." && . tools/common.sh

# header : package (Debian's oneDNN is built with OpenCL, which its CMake files then look for)
wanted="hwy/highway.h:libhwy-dev gtest/gtest.h:libgtest-dev benchmark/benchmark.h:libbenchmark-dev
        oneapi/tbb.h:libtbb-dev oneapi/dnnl/dnnl.hpp:libdnnl-dev CL/cl.h:ocl-icd-opencl-dev"

has_header() {
  local prefix prefixes=${CMAKE_PREFIX_PATH:-}
  for prefix in ${prefixes//:/ }; do [ ! -e "$prefix/include/$1" ] || return 0; done
  printf '#include <%s>\n' "$1" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1
}

missing=
for entry in $wanted; do has_header "${entry%%:*}" || missing+=" ${entry##*:}"; done
# torch.compile builds C++ against Python.h, which Debian ships apart from its interpreter.
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
if [[ $include == /usr/include/* && ! -e $include/Python.h && ! -e $sysroot$include/Python.h ]]; then
  missing+=" lib$(basename "$include")-dev"
fi
[ -n "$missing" ] || exit 0

command -v apt-get >/dev/null || die "these libraries are missing, install them with your package manager:$missing."
say "System packages:$missing"
failed="these packages could not be had, install them:$missing."

if [ "$(id -u)" = 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086  # a list of words
  apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing >/dev/null; } || die "$failed"
  exit 0
fi

need dpkg dpkg
apt=$root/build/apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$sysroot"
options="-qq -o Dir::Cache=$apt/cache -o Dir::State::Lists=$apt/lists -o Debug::NoLocking=1"
# shellcheck disable=SC2086
{
  apt-get $options update || die "$failed"
  # What an installation would add here, dependencies included, is what has to be unpacked.
  packages=$(apt-get $options install --simulate --no-install-recommends $missing | sed -n 's/^Inst \([^ ]*\).*/\1/p')
  (cd "$apt/cache/archives" && apt-get $options download $packages) || die "$failed"
}
for package in "$apt"/cache/archives/*.deb; do dpkg -x "$package" "$sysroot"; done
# A development package's libX.so points to a file of the runtime package, which may be installed outside the sysroot.
find "$sysroot" -xtype l | while read -r link; do
  ln -sfn "$(dirname "${link#"$sysroot"}")/$(readlink "$link")" "$link"
done
rm -rf "$apt"
