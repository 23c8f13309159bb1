#include "tigon/ops/softmax.h"

#include "base/check.h"
#include "kernels/registry.h"
#include "kernels/softmax.h"

namespace tigon {

void softmax_forward(const Context& ctx, const Tensor& x, const Tensor& y) {
  const char* op = "softmax_forward";
  const Checker check(op, ctx);
  check.floating(x, "x");
  check.floating(y, "y");
  check.same_shape(y, "y", x, "x");
  SoftmaxForward p{.cols = x.size(-1)};
  p.rows = fold_rows({{&x, &p.x}, {&y, &p.y}});
  launch(ctx, op, p);
}

void softmax_backward(const Context& ctx, const Tensor& dy, const Tensor& y, const Tensor& dx) {
  const char* op = "softmax_backward";
  const Checker check(op, ctx);
  check.floating(y, "y");
  check.floating(dy, "dy");
  check.same_shape(dy, "dy", y, "y");
  check.floating(dx, "dx");
  check.same_shape(dx, "dx", y, "y");
  SoftmaxBackward p{.cols = y.size(-1)};
  p.rows = fold_rows({{&y, &p.y}, {&dy, &p.dy}, {&dx, &p.dx}});
  launch(ctx, op, p);
}

}  // namespace tigon
