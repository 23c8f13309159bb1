#include "tigon/ops/geglu.h"

#include "kernels/geglu.h"
#include "kernels/registry.h"
#include "ops/glu.h"

namespace tigon {

void geglu_forward(const Context& ctx, const Tensor& gate, const Tensor& up, Gelu gelu,
                   const Tensor& y) {
  const char* op = "geglu_forward";
  launch(ctx, op, GegluForward{glu_forward(op, ctx, gate, up, y), gelu});
}

void geglu_backward(const Context& ctx, const Tensor& dy, const Tensor& gate, const Tensor& up,
                    Gelu gelu, const Tensor& dgate, const Tensor& dup) {
  const char* op = "geglu_backward";
  launch(ctx, op, GegluBackward{glu_backward(op, ctx, dy, gate, up, dgate, dup), gelu});
}

}  // namespace tigon
