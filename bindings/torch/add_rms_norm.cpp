#include "tigon/ops/add_rms_norm.h"

#include "call.h"

namespace tigon::torch_binding {
namespace {

std::tuple<TorchTensor, TorchTensor, OptionalTensor> add_rms_norm_forward(
    TorchTensor x, TorchTensor residual, OptionalTensor weight, double eps, double weight_offset,
    bool round_before_weight, bool need_rstd) {
  const Call call("add_rms_norm_forward", x);
  const bool promotes = round_before_weight && weight.has_value();
  const auto y_type = promotes ? promote(x.scalar_type(), weight->scalar_type()) : x.scalar_type();
  const TorchTensor y = call.like(x, y_type);
  const TorchTensor sum = call.like(x);
  OptionalTensor rstd;
  if (need_rstd) rstd = call.empty(leading(x), ScalarType::Float);
  tigon::add_rms_norm_forward(
      call.context(), view(x), view(residual), view(weight),
      {static_cast<float>(eps), static_cast<float>(weight_offset), round_before_weight}, view(y),
      view(sum), view(rstd));
  return {y, sum, rstd};
}

std::tuple<OptionalTensor, OptionalTensor> add_rms_norm_backward(
    TorchTensor dy, OptionalTensor dsum, TorchTensor sum, OptionalTensor weight, TorchTensor rstd,
    double weight_offset, bool round_before_weight, bool need_dx, bool need_dweight) {
  Call call("add_rms_norm_backward", sum);
  OptionalTensor dx;
  OptionalTensor dweight;
  if (need_dx) dx = call.like(sum);
  if (need_dweight && weight) dweight = call.empty(shape(*weight), weight->scalar_type());
  call.reserve(tigon::add_rms_norm_backward_workspace(call.context(), view(sum), view(dweight)));
  tigon::add_rms_norm_backward(call.context(), view(dy), view(dsum), view(sum), view(weight),
                               view(rstd),
                               {.weight_offset = static_cast<float>(weight_offset),
                                .round_before_weight = round_before_weight},
                               view(dx), view(dweight));
  return {dx, dweight};
}

TIGON_TORCH_OPERATOR(add_rms_norm_forward,
                     "(Tensor x, Tensor residual, Tensor? weight, float eps, float weight_offset, "
                     "bool round_before_weight, bool need_rstd) -> (Tensor, Tensor, Tensor?)")
TIGON_TORCH_OPERATOR(add_rms_norm_backward,
                     "(Tensor dy, Tensor? dsum, Tensor sum, Tensor? weight, Tensor rstd, "
                     "float weight_offset, bool round_before_weight, bool need_dx, "
                     "bool need_dweight) -> (Tensor?, Tensor?)")

}  // namespace
}  // namespace tigon::torch_binding
