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

/// With c a vector this is what F.linear does: cuBLASLt's bias epilogue, where shapes allow.
void add_product(const TorchTensor& d, const TorchTensor& c, const TorchTensor& a,
                 const TorchTensor& b, double alpha, double beta) {
  TORCH_ERROR_CODE_CHECK(TIGON_SHIM(addmm_out)(d.get(), c.get(), a.get(), b.get(), beta, alpha));
}

#if defined(TIGON_TORCH_CUDA)
/// D (+)= A @ B for 16-bit A and B and a float32 D.
void widening_product(const TorchTensor& d, const TorchTensor& a, const TorchTensor& b,
                      bool accumulates) {
  if (accumulates) {
    // ATen's addmm.dtype_out takes Scalars, which the stable dispatcher cannot pass; the Python
    // package registers an operator without them (tigon/ops/_gemm.py).
    std::array<StableIValue, 3> stack{torch::stable::detail::from(d),
                                      torch::stable::detail::from(a),
                                      torch::stable::detail::from(b)};
    TORCH_ERROR_CODE_CHECK(
        torch_call_dispatcher("tigon::add_product", "", stack.data(), TORCH_ABI_VERSION));
    return;
  }
  std::array<StableIValue, 4> stack{torch::stable::detail::from(a), torch::stable::detail::from(b),
                                    torch::stable::detail::from(ScalarType::Float),
                                    torch::stable::detail::from(d)};
  TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher("aten::mm", "dtype_out", stack.data(), TORCH_ABI_VERSION));
  (void)torch::stable::detail::to<TorchTensor>(stack[0]);  // takes back the reference to d
}
#endif

}  // namespace

void gemm(void* /*state*/, const Context& /*ctx*/, const Tensor& d, const Tensor& a,
          const Tensor& b, const Tensor& c, float alpha, float beta) {
  const TorchTensor out = borrow(d);
  TorchTensor lhs = borrow(a);
  TorchTensor rhs = borrow(b);
  const bool accumulates = static_cast<bool>(c) && beta != 0.0F;
  if (d.dtype != a.dtype) {
#if defined(TIGON_TORCH_CUDA)
    if (alpha == 1.0F && (!accumulates || (beta == 1.0F && c.rank == 2)))
      return widening_product(out, lhs, rhs, accumulates);
#endif
    // ATen has no such product on the CPU.
    lhs = torch::stable::to(lhs, ScalarType::Float);
    rhs = torch::stable::to(rhs, ScalarType::Float);
  }
  if (accumulates || alpha != 1.0F)
    add_product(out, accumulates ? borrow(c) : out, lhs, rhs, alpha, accumulates ? beta : 0.0);
  else
    TORCH_ERROR_CODE_CHECK(TIGON_SHIM(mm_out)(out.get(), lhs.get(), rhs.get()));
}

}  // namespace tigon::torch_binding
