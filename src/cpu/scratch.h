#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/aligned_allocator.h"

namespace tigon {

/// `buffers` float rows of `cols` each, aligned and padded for any vector width.
class Scratch {
 public:
  Scratch(int buffers, std::int64_t cols)
      : stride_((cols + 63) / 64 * 64),
        data_(hwy::AllocateAligned<float>(static_cast<std::size_t>(buffers * stride_))) {}

  float* operator[](int buffer) const { return data_.get() + buffer * stride_; }

 private:
  std::int64_t stride_;
  hwy::AlignedFreeUniquePtr<float[]> data_;
};

/// Rows per task: enough work to be worth a thread, about 32k elements.
inline std::int64_t row_grain(std::int64_t cols) {
  return cols >= 32768 ? 1 : 1 + 32768 / (cols + 1);
}

/// Rows cut into slices whose number depends on the shape alone, never on the threads, so that
/// sums over rows (dweight) come out the same bit for bit on any number of threads.
class RowSlices {
 public:
  RowSlices(std::int64_t rows, std::int64_t cols)
      : rows_(rows), cols_(cols), count_(std::clamp<std::int64_t>(rows / row_grain(cols), 1, 32)) {}

  std::int64_t count() const { return count_; }
  std::int64_t begin(std::int64_t slice) const { return rows_ * slice / count_; }
  /// One float row per slice.
  std::size_t bytes() const { return static_cast<std::size_t>(count_ * cols_) * sizeof(float); }

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  std::int64_t count_;
};

}  // namespace tigon
