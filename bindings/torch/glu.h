#pragma once

#include <vector>

#include "call.h"

// Outputs of the gated activations, which swiglu and geglu share.
namespace tigon::torch_binding {

/// y: like gate, or half of its last axis where gate is packed.
inline TorchTensor glu_output(const Call& call, const TorchTensor& gate, bool packed) {
  if (!packed) return call.like(gate);
  const auto sizes = shape(gate);
  std::vector<std::int64_t> half(sizes.begin(), sizes.end());
  if (!half.empty()) half.back() /= 2;
  return call.empty(half, gate.scalar_type());
}

}  // namespace tigon::torch_binding
