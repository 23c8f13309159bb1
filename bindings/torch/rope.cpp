#include "tigon/ops/rope.h"

#include "call.h"

namespace tigon::torch_binding {
namespace {

using Rotated = std::tuple<TorchTensor, OptionalTensor>;

Rotated rope_forward(TorchTensor q, OptionalTensor k, TorchTensor cos, TorchTensor sin,
                     OptionalTensor position_ids, bool interleaved, std::int64_t unsqueeze_dim,
                     std::int64_t rotary_dim) {
  const Call call("rope_forward", q);
  const TorchTensor q_out = call.like(q);
  OptionalTensor k_out;
  if (k) k_out = call.like(*k);
  tigon::rope_forward(call.context(), view(q), view(k), view(cos), view(sin), view(position_ids),
                      {interleaved, unsqueeze_dim, rotary_dim}, view(q_out), view(k_out));
  return {q_out, k_out};
}

Rotated rope_backward(TorchTensor dq_out, OptionalTensor dk_out, TorchTensor cos, TorchTensor sin,
                      OptionalTensor position_ids, bool interleaved, std::int64_t unsqueeze_dim,
                      std::int64_t rotary_dim) {
  const Call call("rope_backward", dq_out);
  const TorchTensor dq = call.like(dq_out);
  OptionalTensor dk;
  if (dk_out) dk = call.like(*dk_out);
  tigon::rope_backward(call.context(), view(dq_out), view(dk_out), view(cos), view(sin),
                       view(position_ids), {interleaved, unsqueeze_dim, rotary_dim}, view(dq),
                       view(dk));
  return {dq, dk};
}

TIGON_TORCH_OPERATOR(rope_forward,
                     "(Tensor q, Tensor? k, Tensor cos, Tensor sin, Tensor? position_ids, "
                     "bool interleaved, int unsqueeze_dim, int rotary_dim) -> (Tensor, Tensor?)")
TIGON_TORCH_OPERATOR(rope_backward,
                     "(Tensor dq_out, Tensor? dk_out, Tensor cos, Tensor sin, "
                     "Tensor? position_ids, bool interleaved, int unsqueeze_dim, int rotary_dim) "
                     "-> (Tensor, Tensor?)")

}  // namespace
}  // namespace tigon::torch_binding
