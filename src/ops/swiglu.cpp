#include "tigon/ops/swiglu.h"

#include "kernels/registry.h"
#include "kernels/swiglu.h"
#include "ops/glu.h"

namespace tigon {

void swiglu_forward(const Context& ctx, const Tensor& gate, const Tensor& up, const Tensor& y) {
  const char* op = "swiglu_forward";
  launch(ctx, op, SwigluForward{glu_forward(op, ctx, gate, up, y)});
}

void swiglu_backward(const Context& ctx, const Tensor& dy, const Tensor& gate, const Tensor& up,
                     const Tensor& dgate, const Tensor& dup) {
  const char* op = "swiglu_backward";
  launch(ctx, op, SwigluBackward{glu_backward(op, ctx, dy, gate, up, dgate, dup)});
}

}  // namespace tigon
