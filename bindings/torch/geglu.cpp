#include "tigon/ops/geglu.h"

#include "call.h"
#include "glu.h"

namespace tigon::torch_binding {
namespace {

Gelu gelu(bool tanh) { return tanh ? Gelu::tanh : Gelu::erf; }

TorchTensor geglu_forward(TorchTensor gate, OptionalTensor up, bool tanh) {
  const Call call("geglu_forward", gate);
  const TorchTensor y = glu_output(call, gate, !up);
  tigon::geglu_forward(call.context(), view(gate), view(up), gelu(tanh), view(y));
  return y;
}

std::tuple<OptionalTensor, OptionalTensor> geglu_backward(TorchTensor dy, TorchTensor gate,
                                                          OptionalTensor up, bool tanh,
                                                          bool need_dgate, bool need_dup) {
  const Call call("geglu_backward", gate);
  OptionalTensor dgate;
  OptionalTensor dup;
  if (need_dgate) dgate = call.like(gate);
  if (need_dup && up) dup = call.like(*up);
  tigon::geglu_backward(call.context(), view(dy), view(gate), view(up), gelu(tanh), view(dgate),
                        view(dup));
  return {dgate, dup};
}

TIGON_TORCH_OPERATOR(geglu_forward, "(Tensor gate, Tensor? up, bool tanh) -> Tensor")
TIGON_TORCH_OPERATOR(geglu_backward,
                     "(Tensor dy, Tensor gate, Tensor? up, bool tanh, bool need_dgate, "
                     "bool need_dup) -> (Tensor?, Tensor?)")

}  // namespace
}  // namespace tigon::torch_binding
