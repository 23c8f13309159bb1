#pragma once

#include <cstdint>

#include "cuda/vector.cuh"
#include "kernels/cross_entropy.h"

// What the losses over a vocabulary read of their rows.
namespace tigon::cuda {

__device__ __forceinline__ float& at_row(const RowView& view, const RowSpace& rows,
                                         std::int64_t row) {
  return static_cast<float*>(view.data)[view.offset(rows, row)];
}

/// What a thread knows of the label of its row; rows past the end count as ignored.
struct Label {
  std::int64_t value;
  bool counts;  // not ignored
  bool known;   // counts, and lies in the vocabulary

  template <class Params>
  __device__ __forceinline__ Label(const Params& p, std::int64_t row, bool active)
      : Label(p, active ? load(p, row) : 0, active, true) {}

  /// One whose value was read before.
  template <class Params>
  __device__ __forceinline__ static Label read(const Params& p, std::int64_t value, bool active) {
    return Label(p, value, active, true);
  }
  template <class Params>
  __device__ __forceinline__ static std::int64_t load(const Params& p, std::int64_t row) {
    return load_integer(p.labels, p.labels.offset(p.rows, row));
  }

 private:
  template <class Params>
  __device__ __forceinline__ Label(const Params& p, std::int64_t v, bool active, bool) : value(v) {
    counts = active && value != p.ignore_index;
    known = counts && value >= 0 && value < p.cols;
  }
};

/// 1 where there are no class weights.
__device__ __forceinline__ float class_weight(const RowView& weight, std::int64_t v) {
  if (!weight) return 1.0F;
  float w[1];
  load(weight, v * weight.col_stride, w);
  return w[0];
}

/// x = map(z) of W logits from column `col` of the row z on.
template <class Params, class T, int W>
__device__ __forceinline__ void load_logits(const Params& p, const T* z, std::int64_t col,
                                            float (&x)[W]) {
  load(z + col * p.logits.col_stride, x);
#pragma unroll
  for (int i = 0; i < W; ++i)
    x[i] = p.map.outer * (p.map.inner == 0.0F ? x[i] : tanhf(p.map.inner * x[i]));
}

}  // namespace tigon::cuda
