#pragma once

#include "call.h"
#include "tigon/ops/cross_entropy.h"

// What the bindings of the losses share.
namespace tigon::torch_binding {

inline CrossEntropyOptions cross_entropy_options(std::int64_t ignore_index, double label_smoothing,
                                                 double z_loss, double softcap, double logit_scale,
                                                 std::int64_t reduction) {
  return {ignore_index,
          static_cast<float>(label_smoothing),
          static_cast<float>(z_loss),
          static_cast<float>(softcap),
          static_cast<float>(logit_scale),
          static_cast<Reduction>(reduction)};
}

/// A loss: one value per label, or one in all.
inline TorchTensor loss_output(const Call& call, const TorchTensor& labels, Reduction reduction) {
  if (reduction == Reduction::none) return call.empty(shape(labels), ScalarType::Float);
  return call.empty({}, ScalarType::Float);
}

/// The gradients of a linear head that are wanted.
struct HeadGradients {
  OptionalTensor dx, dweight, dbias;
};

inline HeadGradients head_gradients(const Call& call, const TorchTensor& x,
                                    const TorchTensor& weight, const OptionalTensor& bias,
                                    bool need_dx, bool need_dweight, bool need_dbias) {
  HeadGradients d;
  if (need_dx) d.dx = call.like(x);
  if (need_dweight) d.dweight = call.empty(shape(weight), weight.scalar_type());
  if (need_dbias && bias) d.dbias = call.empty(shape(*bias), bias->scalar_type());
  return d;
}

}  // namespace tigon::torch_binding
