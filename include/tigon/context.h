#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tigon/tensor.h"

namespace tigon {

/// What an operator may ask of the program that calls it: where to run, threads, matrix products
/// and scratch memory. A host (the PyTorch binding, tigon::host, your program) fills it once and
/// passes it to every call; it is cheap to copy and owns nothing.
struct Context {
  Device device;
  void* stream = nullptr;  ///< cudaStream_t on CUDA, unused on CPU.
  void* state = nullptr;   ///< Handed back to the functions below.

  /// Calls body(closure, begin, end) on pieces that cover [0, count), each of at least `grain`
  /// items (but for the last), possibly on several threads, and returns when all are done.
  void (*parallel_for_fn)(void* state, std::int64_t count, std::int64_t grain,
                          void (*body)(void* closure, std::int64_t begin, std::int64_t end),
                          void* closure) = nullptr;

  /// D = alpha * A @ B + beta * C with fp32 accumulation. A [M, K] and B [K, N] share a type and
  /// may be transposed views; D [M, N] is row-major of that type or float32; C is absent
  /// (beta = 0), the same memory as D, or a contiguous bias [N] of D's type for every row
  /// (beta = 1). A product may be rounded to D's type before C is added, as cuBLAS does.
  void (*gemm_fn)(void* state, const Context&, const Tensor& d, const Tensor& a, const Tensor& b,
                  const Tensor& c, float alpha, float beta) = nullptr;

  void* workspace = nullptr;  ///< At least what the operator's *_workspace() says, 256-aligned.
  std::size_t workspace_bytes = 0;

  template <class Body>  // void(std::int64_t begin, std::int64_t end)
  void parallel_for(std::int64_t count, std::int64_t grain, Body&& body) const {
    using Fn = std::remove_reference_t<Body>;
    if (count <= 0) return;
    if (parallel_for_fn == nullptr || count <= grain) {
      body(std::int64_t{0}, count);
      return;
    }
    parallel_for_fn(
        state, count, grain,
        [](void* closure, std::int64_t begin, std::int64_t end) {
          (*static_cast<Fn*>(closure))(begin, end);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  void gemm(const Tensor& d, const Tensor& a, const Tensor& b, const Tensor& c = {},
            float alpha = 1.0F, float beta = 0.0F) const {
    gemm_fn(state, *this, d, a, b, c, alpha, beta);
  }
};

}  // namespace tigon
