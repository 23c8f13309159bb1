#include "tigon/ops/layer_norm.h"

#include "call.h"

namespace tigon::torch_binding {
namespace {

std::tuple<TorchTensor, OptionalTensor, OptionalTensor> layer_norm_forward(
    TorchTensor x, OptionalTensor weight, OptionalTensor bias, double eps, bool need_stats) {
  const Call call("layer_norm_forward", x);
  const TorchTensor y = call.like(x);
  OptionalTensor mean;
  OptionalTensor rstd;
  if (need_stats) {
    mean = call.empty(leading(x), ScalarType::Float);
    rstd = call.empty(leading(x), ScalarType::Float);
  }
  tigon::layer_norm_forward(call.context(), view(x), view(weight), view(bias),
                            {static_cast<float>(eps)}, view(y), view(mean), view(rstd));
  return {y, mean, rstd};
}

std::tuple<OptionalTensor, OptionalTensor, OptionalTensor> layer_norm_backward(
    TorchTensor dy, TorchTensor x, OptionalTensor weight, TorchTensor mean, TorchTensor rstd,
    bool need_dx, bool need_dweight, std::optional<ScalarType> dbias_dtype) {
  Call call("layer_norm_backward", x);
  OptionalTensor dx;
  OptionalTensor dweight;
  OptionalTensor dbias;
  if (need_dx) dx = call.like(x);
  if (need_dweight && weight) dweight = call.empty(shape(*weight), weight->scalar_type());
  if (dbias_dtype) dbias = call.empty(shape(x).last(1), *dbias_dtype);
  call.reserve(
      tigon::layer_norm_backward_workspace(call.context(), view(x), view(dweight), view(dbias)));
  tigon::layer_norm_backward(call.context(), view(dy), view(x), view(weight), view(mean),
                             view(rstd), view(dx), view(dweight), view(dbias));
  return {dx, dweight, dbias};
}

TIGON_TORCH_OPERATOR(layer_norm_forward,
                     "(Tensor x, Tensor? weight, Tensor? bias, float eps, bool need_stats) "
                     "-> (Tensor, Tensor?, Tensor?)")
TIGON_TORCH_OPERATOR(layer_norm_backward,
                     "(Tensor dy, Tensor x, Tensor? weight, Tensor mean, Tensor rstd, "
                     "bool need_dx, bool need_dweight, ScalarType? dbias_dtype) "
                     "-> (Tensor?, Tensor?, Tensor?)")

}  // namespace
}  // namespace tigon::torch_binding
