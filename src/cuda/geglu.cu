#include "kernels/geglu.h"

#include "cuda/glu.cuh"
#include "kernels/registry.h"

namespace tigon::cuda {
namespace {

/// Both forms in one kernel: the branch is the same for all threads and costs nothing beside the
/// memory traffic.
struct GeluOf {
  Gelu gelu;

  template <bool kRough>
  __device__ __forceinline__ float value(float x) const {
    if (gelu == Gelu::erf) return x * normcdff(x);
    float unused;
    return x * tanh_cdf<kRough>(x, unused);
  }

  template <bool kRough>
  __device__ __forceinline__ float slope(float x, float& y) const {
    if (gelu == Gelu::erf) {
      const float cdf = normcdff(x);
      y = x * cdf;
      return fmaf(x, 0.398942280F * expf(-0.5F * x * x), cdf);  // density: 1 / sqrt(2 pi)
    }
    float inner;
    const float p = tanh_cdf<kRough>(x, inner);
    y = x * p;
    return fmaf(y * (1.0F - p), inner, p);
  }

 private:
  /// (1 + tanh(u)) / 2 is the logistic function of 2 u, which does not cancel for negative u.
  /// inner is the derivative of 2 u. Far out the result is 0 or 1 to the last bit: what the clamp
  /// cuts off is only overflow.
  template <bool kRough>
  static __device__ __forceinline__ float tanh_cdf(float x, float& inner) {
    constexpr float kScale = 1.59576912F;  // 2 sqrt(2 / pi)
    constexpr float kCubic = 0.044715F;
    const float c = fminf(fmaxf(x, -32.0F), 32.0F);
    inner = kScale * fmaf(3.0F * kCubic, c * c, 1.0F);
    return logistic<kRough>(kScale * c * fmaf(kCubic, c * c, 1.0F));
  }
};

void launch_forward(const Context& ctx, const GegluForward& p) {
  launch_glu_forward(ctx, "geglu_forward", p, GeluOf{p.gelu});
}

void launch_backward(const Context& ctx, const GegluBackward& p) {
  launch_glu_backward(ctx, "geglu_backward", p, GeluOf{p.gelu});
}

const RegisterKernel<GegluForward> kForward(DeviceType::cuda, {.launch = launch_forward});
const RegisterKernel<GegluBackward> kBackward(DeviceType::cuda, {.launch = launch_backward});

}  // namespace
}  // namespace tigon::cuda
