#include "tigon/ops/cross_entropy.h"

#include "call.h"
#include "loss.h"

namespace tigon::torch_binding {
namespace {

std::tuple<TorchTensor, OptionalTensor, OptionalTensor, OptionalTensor, OptionalTensor,
           OptionalTensor>
cross_entropy_forward(TorchTensor logits, TorchTensor labels, OptionalTensor weight,
                      std::int64_t ignore_index, double label_smoothing, double z_loss,
                      double softcap, double logit_scale, std::int64_t reduction, bool need_z_loss,
                      bool need_accuracy, bool need_lse, bool need_dlogits) {
  Call call("cross_entropy_forward", logits);
  const auto o =
      cross_entropy_options(ignore_index, label_smoothing, z_loss, softcap, logit_scale, reduction);
  const auto result = [&]() { return loss_output(call, labels, o.reduction); };
  const TorchTensor loss = result();
  OptionalTensor z;
  OptionalTensor accuracy;
  OptionalTensor lse;
  OptionalTensor divisor;
  OptionalTensor dlogits;
  if (need_z_loss) z = result();
  if (need_accuracy) accuracy = result();
  if (need_lse) lse = call.empty(shape(labels), ScalarType::Float);
  if (need_lse && o.reduction == Reduction::mean) divisor = call.empty({}, ScalarType::Float);
  if (need_dlogits) dlogits = call.like(logits);
  const CrossEntropyOutputs out{.loss = view(loss),
                                .z_loss = view(z),
                                .token_accuracy = view(accuracy),
                                .lse = view(lse),
                                .divisor = view(divisor),
                                .dlogits = view(dlogits)};
  call.reserve(cross_entropy_forward_workspace(call.context(), view(logits), o, out));
  tigon::cross_entropy_forward(call.context(), view(logits), view(labels), view(weight), o, out);
  return {loss, z, accuracy, lse, divisor, dlogits};
}

TorchTensor cross_entropy_backward(TorchTensor dloss, TorchTensor logits, TorchTensor labels,
                                   OptionalTensor weight, TorchTensor lse, OptionalTensor divisor,
                                   std::int64_t ignore_index, double label_smoothing, double z_loss,
                                   double softcap, double logit_scale, std::int64_t reduction) {
  const Call call("cross_entropy_backward", logits);
  const TorchTensor dlogits = call.like(logits);
  tigon::cross_entropy_backward(
      call.context(), view(dloss), view(logits), view(labels), view(weight), view(lse),
      view(divisor),
      cross_entropy_options(ignore_index, label_smoothing, z_loss, softcap, logit_scale, reduction),
      view(dlogits));
  return dlogits;
}

TorchTensor cross_entropy_scale(TorchTensor dloss, TorchTensor dlogits, TorchTensor labels,
                                std::int64_t ignore_index) {
  const Call call("cross_entropy_scale", dlogits);
  const TorchTensor out = call.like(dlogits);
  tigon::cross_entropy_scale(call.context(), view(dloss), view(dlogits), view(labels), ignore_index,
                             view(out));
  return out;
}

void cross_entropy_scale_inplace(TorchTensor dloss, TorchTensor dlogits, TorchTensor labels,
                                 std::int64_t ignore_index) {
  const Call call("cross_entropy_scale", dlogits);
  tigon::cross_entropy_scale(call.context(), view(dloss), view(dlogits), view(labels), ignore_index,
                             view(dlogits));
}

TIGON_TORCH_OPERATOR(cross_entropy_forward,
                     "(Tensor logits, Tensor labels, Tensor? weight, int ignore_index, "
                     "float label_smoothing, float z_loss, float softcap, float logit_scale, "
                     "int reduction, bool need_z_loss, bool need_accuracy, bool need_lse, "
                     "bool need_dlogits) "
                     "-> (Tensor, Tensor?, Tensor?, Tensor?, Tensor?, Tensor?)")
TIGON_TORCH_OPERATOR(cross_entropy_backward,
                     "(Tensor dloss, Tensor logits, Tensor labels, Tensor? weight, Tensor lse, "
                     "Tensor? divisor, int ignore_index, float label_smoothing, float z_loss, "
                     "float softcap, float logit_scale, int reduction) -> Tensor")
TIGON_TORCH_OPERATOR(cross_entropy_scale,
                     "(Tensor dloss, Tensor dlogits, Tensor labels, int ignore_index) -> Tensor")
TIGON_TORCH_OPERATOR(cross_entropy_scale_inplace,
                     "(Tensor dloss, Tensor(a!) dlogits, Tensor labels, int ignore_index) -> ()")

}  // namespace
}  // namespace tigon::torch_binding
