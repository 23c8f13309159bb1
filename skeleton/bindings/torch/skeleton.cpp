#include "tigon/ops/skeleton.h"

#include "call.h"

namespace tigon::torch_binding {
namespace {

TorchTensor skeleton_forward(TorchTensor x, TorchTensor weight) {
  const Call call("skeleton_forward", x);
  const TorchTensor y = call.like(x);
  tigon::skeleton_forward(call.context(), view(x), view(weight), view(y));
  return y;
}

std::tuple<OptionalTensor, OptionalTensor> skeleton_backward(TorchTensor dy, TorchTensor x,
                                                             TorchTensor weight, bool need_dx,
                                                             bool need_dweight) {
  Call call("skeleton_backward", x);
  OptionalTensor dx;
  OptionalTensor dweight;
  if (need_dx) dx = call.like(x);
  if (need_dweight) dweight = call.empty(shape(weight), weight.scalar_type());
  call.reserve(tigon::skeleton_backward_workspace(call.context(), view(x), view(dweight)));
  tigon::skeleton_backward(call.context(), view(dy), view(x), view(weight), view(dx),
                           view(dweight));
  return {dx, dweight};
}

TIGON_TORCH_OPERATOR(skeleton_forward, "(Tensor x, Tensor weight) -> Tensor")
TIGON_TORCH_OPERATOR(skeleton_backward,
                     "(Tensor dy, Tensor x, Tensor weight, bool need_dx, bool need_dweight) "
                     "-> (Tensor?, Tensor?)")

}  // namespace
}  // namespace tigon::torch_binding
