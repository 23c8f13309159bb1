#include "tigon/ops/swiglu.h"

#include "call.h"
#include "glu.h"

namespace tigon::torch_binding {
namespace {

TorchTensor swiglu_forward(TorchTensor gate, OptionalTensor up) {
  const Call call("swiglu_forward", gate);
  const TorchTensor y = glu_output(call, gate, !up);
  tigon::swiglu_forward(call.context(), view(gate), view(up), view(y));
  return y;
}

std::tuple<OptionalTensor, OptionalTensor> swiglu_backward(TorchTensor dy, TorchTensor gate,
                                                           OptionalTensor up, bool need_dgate,
                                                           bool need_dup) {
  const Call call("swiglu_backward", gate);
  OptionalTensor dgate;
  OptionalTensor dup;
  if (need_dgate) dgate = call.like(gate);
  if (need_dup && up) dup = call.like(*up);
  tigon::swiglu_backward(call.context(), view(dy), view(gate), view(up), view(dgate), view(dup));
  return {dgate, dup};
}

/// gate and up become their gradients.
void swiglu_backward_inplace(TorchTensor dy, TorchTensor gate, TorchTensor up) {
  const Call call("swiglu_backward_inplace", gate);
  tigon::swiglu_backward(call.context(), view(dy), view(gate), view(up), view(gate), view(up));
}

TIGON_TORCH_OPERATOR(swiglu_forward, "(Tensor gate, Tensor? up) -> Tensor")
TIGON_TORCH_OPERATOR(swiglu_backward,
                     "(Tensor dy, Tensor gate, Tensor? up, bool need_dgate, bool need_dup) "
                     "-> (Tensor?, Tensor?)")
TIGON_TORCH_OPERATOR(swiglu_backward_inplace, "(Tensor dy, Tensor(a!) gate, Tensor(b!) up) -> ()")

}  // namespace
}  // namespace tigon::torch_binding
