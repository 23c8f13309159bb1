#include "tigon/ops/softmax.h"

#include "call.h"

namespace tigon::torch_binding {
namespace {

TorchTensor softmax_forward(TorchTensor x) {
  const Call call("softmax_forward", x);
  const TorchTensor y = call.like(x);
  tigon::softmax_forward(call.context(), view(x), view(y));
  return y;
}

TorchTensor softmax_backward(TorchTensor dy, TorchTensor y) {
  const Call call("softmax_backward", y);
  const TorchTensor dx = call.like(y);
  tigon::softmax_backward(call.context(), view(dy), view(y), view(dx));
  return dx;
}

TIGON_TORCH_OPERATOR(softmax_forward, "(Tensor x) -> Tensor")
TIGON_TORCH_OPERATOR(softmax_backward, "(Tensor dy, Tensor y) -> Tensor")

}  // namespace
}  // namespace tigon::torch_binding
