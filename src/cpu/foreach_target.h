#pragma once

// Each instruction set is one more compilation of every kernel: a baseline for any x86-64, AVX2,
// and AVX-512. The best one present is chosen when the program runs. Bits 4 and 6 are AVX3_SPR
// and AVX3_ZEN4 of newer Highway versions, which older ones do not name.
#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | (1LL << 4) | (1LL << 6))
#endif

// Compiles the file named by HWY_TARGET_INCLUDE once per instruction set.
#include "hwy/foreach_target.h"  // IWYU pragma: export
