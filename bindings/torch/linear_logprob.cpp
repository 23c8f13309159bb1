#include "tigon/ops/linear_logprob.h"

#include "call.h"
#include "loss.h"

namespace tigon::torch_binding {
namespace {

LinearLogProbOptions options(std::int64_t ignore_index, double temperature, double softcap,
                             double logit_scale, std::int64_t chunk_rows) {
  return {ignore_index, static_cast<float>(temperature), static_cast<float>(softcap),
          static_cast<float>(logit_scale), chunk_rows};
}

std::tuple<OptionalTensor, OptionalTensor, OptionalTensor, OptionalTensor, OptionalTensor,
           OptionalTensor>
linear_logprob_forward(TorchTensor x, TorchTensor weight, OptionalTensor bias, TorchTensor labels,
                       std::int64_t ignore_index, double temperature, double softcap,
                       double logit_scale, std::int64_t chunk_rows, bool need_lse,
                       bool need_log_probs, bool need_entropy, bool need_log_sum_sq_probs,
                       bool need_mean_logits, bool need_is_top1) {
  Call call("linear_logprob_forward", x);
  const auto o = options(ignore_index, temperature, softcap, logit_scale, chunk_rows);
  const auto result = [&](bool wanted) {
    OptionalTensor t;
    if (wanted) t = call.empty(shape(labels), ScalarType::Float);
    return t;
  };
  const OptionalTensor lse = result(need_lse);
  const OptionalTensor log_probs = result(need_log_probs);
  const OptionalTensor entropy = result(need_entropy);
  const OptionalTensor log_sum_sq_probs = result(need_log_sum_sq_probs);
  const OptionalTensor mean_logits = result(need_mean_logits);
  const OptionalTensor is_top1 = result(need_is_top1);
  const LinearLogProbInputs in{view(x), view(weight), view(bias), view(labels)};
  const LinearLogProbOutputs out{view(lse),         view(log_probs),
                                 view(entropy),     view(log_sum_sq_probs),
                                 view(mean_logits), view(is_top1)};
  call.reserve(linear_logprob_forward_workspace(call.context(), in, o, out));
  tigon::linear_logprob_forward(call.context(), in, o, out);
  return {lse, log_probs, entropy, log_sum_sq_probs, mean_logits, is_top1};
}

std::tuple<OptionalTensor, OptionalTensor, OptionalTensor> linear_logprob_backward(
    OptionalTensor dlog_probs, OptionalTensor dentropy, OptionalTensor dlog_sum_sq_probs,
    OptionalTensor dmean_logits, TorchTensor lse, OptionalTensor entropy,
    OptionalTensor log_sum_sq_probs, TorchTensor x, TorchTensor weight, OptionalTensor bias,
    TorchTensor labels, std::int64_t ignore_index, double temperature, double softcap,
    double logit_scale, std::int64_t chunk_rows, bool need_dx, bool need_dweight, bool need_dbias) {
  Call call("linear_logprob_backward", x);
  const auto o = options(ignore_index, temperature, softcap, logit_scale, chunk_rows);
  const HeadGradients d = head_gradients(call, x, weight, bias, need_dx, need_dweight, need_dbias);
  const LinearLogProbInputs in{view(x), view(weight), view(bias), view(labels)};
  const LinearLogProbUpstream upstream{
      view(dlog_probs), view(dentropy), view(dlog_sum_sq_probs), view(dmean_logits),
      view(lse),        view(entropy),  view(log_sum_sq_probs)};
  const LinearLogProbGradients out{view(d.dx), view(d.dweight), view(d.dbias)};
  call.reserve(linear_logprob_backward_workspace(call.context(), in, o, out));
  tigon::linear_logprob_backward(call.context(), upstream, in, o, out);
  return {d.dx, d.dweight, d.dbias};
}

TIGON_TORCH_OPERATOR(linear_logprob_forward,
                     "(Tensor x, Tensor weight, Tensor? bias, Tensor labels, int ignore_index, "
                     "float temperature, float softcap, float logit_scale, int chunk_rows, "
                     "bool need_lse, bool need_log_probs, bool need_entropy, "
                     "bool need_log_sum_sq_probs, bool need_mean_logits, bool need_is_top1) "
                     "-> (Tensor?, Tensor?, Tensor?, Tensor?, Tensor?, Tensor?)")
TIGON_TORCH_OPERATOR(linear_logprob_backward,
                     "(Tensor? dlog_probs, Tensor? dentropy, Tensor? dlog_sum_sq_probs, "
                     "Tensor? dmean_logits, Tensor lse, Tensor? entropy, "
                     "Tensor? log_sum_sq_probs, Tensor x, Tensor weight, Tensor? bias, "
                     "Tensor labels, int ignore_index, float temperature, float softcap, "
                     "float logit_scale, int chunk_rows, bool need_dx, bool need_dweight, "
                     "bool need_dbias) -> (Tensor?, Tensor?, Tensor?)")

}  // namespace
}  // namespace tigon::torch_binding
