#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "tigon/context.h"
#include "tigon/tensor.h"

// What every operator's binding is made of: views of torch tensors, outputs, and a Context that
// runs on torch's device, stream, threads and matrix products.
namespace tigon::torch_binding {

using TorchTensor = torch::stable::Tensor;
using OptionalTensor = std::optional<torch::stable::Tensor>;
using torch::headeronly::ScalarType;

/// Throws tigon::Error for a rank that no operator knows.
Tensor view(const TorchTensor& t);
inline Tensor view(const OptionalTensor& t) { return t ? view(*t) : Tensor{}; }

/// Sizes of all axes, and of all but the last.
inline std::span<const std::int64_t> shape(const TorchTensor& t) {
  const auto sizes = t.sizes();
  return {sizes.data(), sizes.size()};
}
inline std::span<const std::int64_t> leading(const TorchTensor& t) {
  const auto sizes = shape(t);
  return sizes.first(sizes.empty() ? 0 : sizes.size() - 1);
}

/// The type that torch.promote_types gives for two floating types.
ScalarType promote(ScalarType a, ScalarType b);

/// One call of an operator: makes the device of `anchor` current for its lifetime.
class Call {
 public:
  Call(const char* op, const TorchTensor& anchor);

  const Context& context() const { return context_; }

  /// Uninitialised outputs. like() has the strides of torch.empty_like (dense tensors keep
  /// theirs), empty() is contiguous. Out of memory throws with torch's own wording,
  /// "CUDA out of memory", the operator and the bytes, which trainers search for.
  TorchTensor like(const TorchTensor& t, std::optional<ScalarType> dtype = std::nullopt) const;
  TorchTensor empty(std::span<const std::int64_t> sizes, ScalarType dtype) const;
  TorchTensor empty(std::initializer_list<std::int64_t> sizes, ScalarType dtype) const {
    return empty(std::span(sizes.begin(), sizes.size()), dtype);
  }

  /// Gives the context a workspace of this many bytes, kept until the call ends.
  void reserve(std::size_t bytes);

 private:
  TorchTensor allocate(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                       ScalarType dtype) const;
  TorchTensor guarded(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                      ScalarType dtype) const;
  [[noreturn]] void out_of_memory(std::span<const std::int64_t> sizes, ScalarType dtype) const;

  const char* op_;
  TorchTensor anchor_;
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
  Context context_;
  OptionalTensor workspace_;
};

}  // namespace tigon::torch_binding

// TIGON_TORCH_OPERATOR(rms_norm_forward, "(Tensor x, ...) -> Tensor") registers the function of
// that name as torch.ops.tigon.rms_norm_forward: the library of CPU kernels also defines the
// schema, the library of CUDA kernels adds its implementation.
#if defined(TIGON_TORCH_CUDA)
#define TIGON_TORCH_OPERATOR(name, schema) \
  STABLE_TORCH_LIBRARY_IMPL(tigon, CUDA, m) { m.impl(#name, TORCH_BOX(&name)); }
#else
#define TIGON_TORCH_OPERATOR(name, schema)                         \
  STABLE_TORCH_LIBRARY_FRAGMENT(tigon, m) { m.def(#name schema); } \
  STABLE_TORCH_LIBRARY_IMPL(tigon, CPU, m) { m.impl(#name, TORCH_BOX(&name)); }
#endif
