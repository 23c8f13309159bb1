#pragma once

#include "tigon/context.h"

namespace tigon::torch_binding {

/// Context::gemm_fn on ATen's products.
void gemm(void* state, const Context& ctx, const Tensor& d, const Tensor& a, const Tensor& b,
          const Tensor& c, float alpha, float beta);

}  // namespace tigon::torch_binding
