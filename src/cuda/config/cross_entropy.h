#pragma once

#include "cuda/config/rows.h"

namespace tigon::cuda {

/// Rows of a vocabulary are read twice, and the second time should come from L2. 1024 threads a row
/// put one row on a multiprocessor, so 132 of 256 KiB (128k classes in bfloat16) are 33 MiB of an
/// H200's 50. Rows of at most 128 KiB leave room for two at once, which hides one's reductions
/// behind the other's loads.
constexpr RowLaunch choose_cross_entropy_launch(std::int64_t rows, std::int64_t cols, int width,
                                                std::int64_t element_bytes) {
  RowLaunch launch = choose_row_launch(rows, cols, width);
  if (launch.threads_per_row == 1024 && cols * element_bytes <= 128 * 1024) {
    launch.threads_per_row = 512;
    launch.shared_floats = 512 / 32;
  }
  return launch;
}

}  // namespace tigon::cuda
