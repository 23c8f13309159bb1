#include "tigon/ops/linear_cross_entropy.h"

#include "call.h"
#include "loss.h"

namespace tigon::torch_binding {
namespace {

LinearCrossEntropyOptions options(std::int64_t ignore_index, double label_smoothing, double z_loss,
                                  double softcap, double logit_scale, std::int64_t reduction,
                                  bool sum_in_float32, bool low_memory, std::int64_t chunk_rows) {
  return {.loss = cross_entropy_options(ignore_index, label_smoothing, z_loss, softcap, logit_scale,
                                        reduction),
          .sum_in_float32 = sum_in_float32,
          .memory = low_memory ? HeadMemory::low : HeadMemory::fast,
          .chunk_rows = chunk_rows};
}

std::tuple<TorchTensor, OptionalTensor, OptionalTensor, OptionalTensor, OptionalTensor,
           OptionalTensor, OptionalTensor, OptionalTensor>
linear_cross_entropy_forward(TorchTensor x, TorchTensor weight, OptionalTensor bias,
                             TorchTensor labels, OptionalTensor class_weight,
                             OptionalTensor token_weights, OptionalTensor num_items,
                             std::int64_t ignore_index, double label_smoothing, double z_loss,
                             double softcap, double logit_scale, std::int64_t reduction,
                             bool sum_in_float32, bool low_memory, std::int64_t chunk_rows,
                             bool need_z_loss, bool need_accuracy, bool need_lse, bool need_dx,
                             bool need_dweight, bool need_dbias) {
  Call call("linear_cross_entropy_forward", x);
  const auto o = options(ignore_index, label_smoothing, z_loss, softcap, logit_scale, reduction,
                         sum_in_float32, low_memory, chunk_rows);
  const auto result = [&]() { return loss_output(call, labels, o.loss.reduction); };
  const TorchTensor loss = result();
  OptionalTensor z;
  OptionalTensor accuracy;
  OptionalTensor lse;
  OptionalTensor divisor;
  if (need_z_loss) z = result();
  if (need_accuracy) accuracy = result();
  if (need_lse) lse = call.empty(shape(labels), ScalarType::Float);
  if (need_lse && o.loss.reduction == Reduction::mean && !num_items)
    divisor = call.empty({}, ScalarType::Float);
  const HeadGradients d = head_gradients(call, x, weight, bias, need_dx, need_dweight, need_dbias);
  const LinearCrossEntropyInputs in{view(x),        view(weight),       view(bias),
                                    view(labels),   view(class_weight), view(token_weights),
                                    view(num_items)};
  const LinearCrossEntropyOutputs out{view(loss),    view(z),    view(accuracy),  view(lse),
                                      view(divisor), view(d.dx), view(d.dweight), view(d.dbias)};
  call.reserve(linear_cross_entropy_forward_workspace(call.context(), in, o, out));
  tigon::linear_cross_entropy_forward(call.context(), in, o, out);
  return {loss, z, accuracy, lse, divisor, d.dx, d.dweight, d.dbias};
}

std::tuple<OptionalTensor, OptionalTensor, OptionalTensor> linear_cross_entropy_backward(
    TorchTensor dloss, TorchTensor x, TorchTensor weight, OptionalTensor bias, TorchTensor labels,
    OptionalTensor class_weight, TorchTensor lse, OptionalTensor divisor, std::int64_t ignore_index,
    double label_smoothing, double z_loss, double softcap, double logit_scale,
    std::int64_t reduction, bool sum_in_float32, bool low_memory, std::int64_t chunk_rows,
    bool need_dx, bool need_dweight, bool need_dbias) {
  Call call("linear_cross_entropy_backward", x);
  const auto o = options(ignore_index, label_smoothing, z_loss, softcap, logit_scale, reduction,
                         sum_in_float32, low_memory, chunk_rows);
  const HeadGradients d = head_gradients(call, x, weight, bias, need_dx, need_dweight, need_dbias);
  const LinearCrossEntropyInputs in{.x = view(x),
                                    .weight = view(weight),
                                    .bias = view(bias),
                                    .labels = view(labels),
                                    .class_weight = view(class_weight)};
  const LinearCrossEntropyGradients out{view(d.dx), view(d.dweight), view(d.dbias)};
  call.reserve(linear_cross_entropy_backward_workspace(call.context(), in, o, out));
  tigon::linear_cross_entropy_backward(call.context(), view(dloss), in, view(lse), view(divisor), o,
                                       out);
  return {d.dx, d.dweight, d.dbias};
}

TorchTensor linear_cross_entropy_scale(TorchTensor dloss, TorchTensor gradient) {
  const Call call("linear_cross_entropy_scale", gradient);
  const TorchTensor out = call.like(gradient);
  tigon::linear_cross_entropy_scale(call.context(), view(dloss), view(gradient), view(out));
  return out;
}

void linear_cross_entropy_scale_inplace(TorchTensor dloss, TorchTensor gradient) {
  const Call call("linear_cross_entropy_scale", gradient);
  tigon::linear_cross_entropy_scale(call.context(), view(dloss), view(gradient), view(gradient));
}

TIGON_TORCH_OPERATOR(
    linear_cross_entropy_forward,
    "(Tensor x, Tensor weight, Tensor? bias, Tensor labels, Tensor? class_weight, "
    "Tensor? token_weights, Tensor? num_items, int ignore_index, "
    "float label_smoothing, float z_loss, float softcap, float logit_scale, "
    "int reduction, bool sum_in_float32, bool low_memory, int chunk_rows, bool need_z_loss, "
    "bool need_accuracy, bool need_lse, bool need_dx, bool need_dweight, "
    "bool need_dbias) -> (Tensor, Tensor?, Tensor?, Tensor?, Tensor?, Tensor?, "
    "Tensor?, Tensor?)")
TIGON_TORCH_OPERATOR(
    linear_cross_entropy_backward,
    "(Tensor dloss, Tensor x, Tensor weight, Tensor? bias, Tensor labels, "
    "Tensor? class_weight, Tensor lse, Tensor? divisor, int ignore_index, "
    "float label_smoothing, float z_loss, float softcap, float logit_scale, "
    "int reduction, bool sum_in_float32, bool low_memory, int chunk_rows, bool need_dx, "
    "bool need_dweight, bool need_dbias) -> (Tensor?, Tensor?, Tensor?)")
TIGON_TORCH_OPERATOR(linear_cross_entropy_scale, "(Tensor dloss, Tensor gradient) -> Tensor")
TIGON_TORCH_OPERATOR(linear_cross_entropy_scale_inplace,
                     "(Tensor dloss, Tensor(a!) gradient) -> ()")

}  // namespace
}  // namespace tigon::torch_binding
