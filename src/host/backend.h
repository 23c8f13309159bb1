#pragma once

#include <cstddef>
#include <memory>

#include "tigon/context.h"

namespace tigon::host {

/// What a kind of device gives a Host: memory and matrix products.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual void* allocate(std::size_t bytes) = 0;  // 256-aligned
  virtual void free(void* memory) = 0;            // after all that was launched is done with it
  virtual void gemm(const Context& ctx, const Tensor& d, const Tensor& a, const Tensor& b,
                    const Tensor& c, float alpha, float beta) = 0;
};

std::unique_ptr<Backend> make_cpu_backend();
std::unique_ptr<Backend> make_cuda_backend(Device device);  // with TIGON_CUDA only

}  // namespace tigon::host
