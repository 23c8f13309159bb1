#include "kernels/swiglu.h"

#include "cuda/glu.cuh"
#include "kernels/registry.h"

namespace tigon::cuda {
namespace {

struct Silu {
  template <bool kRough>
  __device__ __forceinline__ float value(float x) const {
    return x * logistic<kRough>(x);
  }
  template <bool kRough>
  __device__ __forceinline__ float slope(float x, float& y) const {
    const float s = logistic<kRough>(x);
    y = x * s;
    return fmaf(y, 1.0F - s, s);
  }
};

void launch_forward(const Context& ctx, const SwigluForward& p) {
  launch_glu_forward(ctx, "swiglu_forward", p, Silu());
}

void launch_backward(const Context& ctx, const SwigluBackward& p) {
  launch_glu_backward(ctx, "swiglu_backward", p, Silu());
}

const RegisterKernel<SwigluForward> kForward(DeviceType::cuda, {.launch = launch_forward});
const RegisterKernel<SwigluBackward> kBackward(DeviceType::cuda, {.launch = launch_backward});

}  // namespace
}  // namespace tigon::cuda
