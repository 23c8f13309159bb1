#include "gemm.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>

#if defined(TIGON_TORCH_CUDA)
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h>
#define TIGON_SHIM(name) aoti_torch_cuda_##name
#else
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#define TIGON_SHIM(name) aoti_torch_cpu_##name
#endif

namespace tigon::torch_binding {
namespace {

using torch::headeronly::ScalarType;
using TorchTensor = torch::stable::Tensor;

ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::bfloat16: return ScalarType::BFloat16;
    case DType::float16: return ScalarType::Half;
    default: return ScalarType::Float;
  }
}

TorchTensor borrow(const Tensor& t) {
  const auto rank = static_cast<std::size_t>(t.rank);
  const auto type = t.device.type == DeviceType::cuda ? torch::headeronly::DeviceType::CUDA
                                                      : torch::headeronly::DeviceType::CPU;
  const auto index =
      static_cast<std::int8_t>(t.device.type == DeviceType::cuda ? t.device.index : -1);
  return torch::stable::from_blob(t.data, {t.sizes.data(), rank}, {t.strides.data(), rank},
                                  torch::stable::Device(type, index), scalar_type(t.dtype));
}

void add_product(const TorchTensor& d, const TorchTensor& a, const TorchTensor& b, double alpha,
                 double beta) {
  STABLE_TORCH_ERROR_CODE_CHECK(
      TIGON_SHIM(addmm_out)(d.get(), d.get(), a.get(), b.get(), beta, alpha));
}

}  // namespace

void gemm(void* /*state*/, const Context& /*ctx*/, const Tensor& d, const Tensor& a,
          const Tensor& b, const Tensor& c, float alpha, float beta) {
  const TorchTensor out = borrow(d);
  TorchTensor lhs = borrow(a);
  TorchTensor rhs = borrow(b);
  const bool accumulates = static_cast<bool>(c) && beta != 0.0F;
  if (d.dtype != a.dtype) {
    // ATen has no product of 16-bit tensors that adds to float32. On the GPU it has one that
    // writes float32; on the CPU the operands are widened.
#if defined(TIGON_TORCH_CUDA)
    if (!accumulates && alpha == 1.0F) {
      std::array<StableIValue, 4> stack{
          torch::stable::detail::from(lhs), torch::stable::detail::from(rhs),
          torch::stable::detail::from(ScalarType::Float), torch::stable::detail::from(out)};
      STABLE_TORCH_ERROR_CODE_CHECK(
          torch_call_dispatcher("aten::mm", "dtype_out", stack.data(), TORCH_ABI_VERSION));
      (void)torch::stable::detail::to<TorchTensor>(stack[0]);  // takes back the reference to out
      return;
    }
#endif
    lhs = torch::stable::to(lhs, ScalarType::Float);
    rhs = torch::stable::to(rhs, ScalarType::Float);
  }
  if (accumulates || alpha != 1.0F)
    add_product(out, lhs, rhs, alpha, accumulates ? beta : 0.0);
  else
    STABLE_TORCH_ERROR_CODE_CHECK(TIGON_SHIM(mm_out)(out.get(), lhs.get(), rhs.get()));
}

}  // namespace tigon::torch_binding
