#pragma once

#include "cuda/vector.cuh"

namespace tigon::cuda {

/// Calls f.template operator()<T, N>() for the type of the large streams: N = 16 bytes' worth of T
/// where every access may be a vector, else 1. These are all the instances a kernel has.
template <class F>
void dispatch(DType dtype, bool vectorised, F&& f) {
  switch (dtype) {
    case DType::bfloat16:
      return vectorised ? f.template operator()<__nv_bfloat16, 8>()
                        : f.template operator()<__nv_bfloat16, 1>();
    case DType::float16:
      return vectorised ? f.template operator()<__half, 8>() : f.template operator()<__half, 1>();
    default:
      return vectorised ? f.template operator()<float, 4>() : f.template operator()<float, 1>();
  }
}

}  // namespace tigon::cuda
