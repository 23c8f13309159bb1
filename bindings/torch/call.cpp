#include "call.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "gemm.h"
#include "tigon/error.h"

#if defined(TIGON_TORCH_CUDA)
// Declared by torch's shim only where the CUDA toolkit's headers are included.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** stream);
#endif

namespace tigon::torch_binding {
namespace {

DType dtype_of(ScalarType type) {
  switch (type) {
    case ScalarType::Float: return DType::float32;
    case ScalarType::BFloat16: return DType::bfloat16;
    case ScalarType::Half: return DType::float16;
    case ScalarType::Int: return DType::int32;
    case ScalarType::Long: return DType::int64;
    case ScalarType::Bool: return DType::boolean;
    case ScalarType::Double: return DType::float64;
    default: return DType::other;
  }
}

// With TIGON_TEST_GUARDS=1 every output lies between guard elements, and all of it starts as NaN,
// so that a write beside it and an element never written both show. Tests set the variable before
// the library is loaded and may then switch it; without it nothing is asked.
bool guards() {
  static const bool testing = std::getenv("TIGON_TEST_GUARDS") != nullptr;
  return testing && std::string_view(std::getenv("TIGON_TEST_GUARDS")) == "1";
}
constexpr std::int64_t kGuardElements = 64;

void parallel_for(void* /*state*/, std::int64_t count, std::int64_t grain,
                  void (*body)(void*, std::int64_t, std::int64_t), void* closure) {
  torch::stable::parallel_for(
      0, count, grain, [&](std::int64_t begin, std::int64_t end) { body(closure, begin, end); });
}

}  // namespace

Tensor view(const TorchTensor& t) {
  Tensor v;
  const auto sizes = t.sizes();
  const auto strides = t.strides();
  if (sizes.size() > static_cast<std::size_t>(kMaxRank))
    throw Error("tensors have at most " + std::to_string(kMaxRank) + " axes, got " +
                std::to_string(sizes.size()));
  v.data = const_cast<void*>(t.const_data_ptr());
  v.dtype = dtype_of(t.scalar_type());
  v.device = {t.is_cuda() ? DeviceType::cuda : DeviceType::cpu, std::max(0, t.get_device_index())};
  v.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), v.sizes.begin());
  std::copy(strides.begin(), strides.end(), v.strides.begin());
  return v;
}

ScalarType promote(ScalarType a, ScalarType b) { return a == b ? a : ScalarType::Float; }

Call::Call(const char* op, const TorchTensor& anchor) : op_(op), anchor_(anchor) {
  context_.parallel_for_fn = parallel_for;
  context_.gemm_fn = gemm;
#if defined(TIGON_TORCH_CUDA)
  // One tensor on CUDA is enough for the dispatcher to come here.
  if (!anchor.is_cuda())
    throw Error(std::string(op) + ": all tensors must be on one device, got cpu and cuda");
  const std::int32_t index = anchor.get_device_index();
  context_.device = {DeviceType::cuda, index};
  guard_.emplace(index);
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(index, &context_.stream));
#endif
}

void Call::out_of_memory(std::span<const std::int64_t> sizes, ScalarType dtype) const {
  std::int64_t bytes = size_of(dtype_of(dtype));
  for (const std::int64_t n : sizes) bytes *= n;
  throw std::runtime_error(
      std::string(anchor_.is_cuda() ? "CUDA out of memory. " : "out of memory. ") + op_ +
      " needs " + std::to_string(bytes) + " bytes");
}

TorchTensor Call::allocate(std::span<const std::int64_t> sizes,
                           std::span<const std::int64_t> strides, ScalarType dtype) const {
  const auto type = torch::stable::detail::to<std::int32_t>(torch::stable::detail::from(dtype));
  const std::int32_t device =
      anchor_.is_cuda() ? aoti_torch_device_type_cuda() : aoti_torch_device_type_cpu();
  AtenTensorHandle handle = nullptr;
  if (aoti_torch_empty_strided(static_cast<std::int64_t>(sizes.size()), sizes.data(),
                               strides.data(), type, device, anchor_.get_device_index(),
                               &handle) != 0)
    out_of_memory(sizes, dtype);
  return TorchTensor(handle);
}

TorchTensor Call::guarded(std::span<const std::int64_t> sizes,
                          std::span<const std::int64_t> strides, ScalarType dtype) const {
  std::int64_t extent = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) extent += (sizes[i] - 1) * strides[i];
  const std::array<std::int64_t, 1> size{std::max<std::int64_t>(extent, 0) + 2 * kGuardElements};
  const std::array<std::int64_t, 1> stride{1};
  TorchTensor whole = allocate(size, stride, dtype);
  const bool floating = is_floating(dtype_of(dtype));
  torch::stable::fill_(whole, floating ? std::numeric_limits<double>::quiet_NaN() : 1.0);
  std::array<StableIValue, 4> stack{
      torch::stable::detail::from(whole),
      torch::stable::detail::from(
          torch::headeronly::IntHeaderOnlyArrayRef(sizes.data(), sizes.size())),
      torch::stable::detail::from(
          torch::headeronly::IntHeaderOnlyArrayRef(strides.data(), strides.size())),
      torch::stable::detail::from(std::optional<std::int64_t>(kGuardElements))};
  TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher("aten::as_strided", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<TorchTensor>(stack[0]);
}

TorchTensor Call::empty(std::span<const std::int64_t> sizes, ScalarType dtype) const {
  std::array<std::int64_t, kMaxRank> strides{};
  std::int64_t step = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<std::int64_t>(sizes[i], 1);
  }
  const std::span<const std::int64_t> dense(strides.data(), sizes.size());
  return guards() ? guarded(sizes, dense, dtype) : allocate(sizes, dense, dtype);
}

TorchTensor Call::like(const TorchTensor& t, std::optional<ScalarType> dtype) const {
  const ScalarType type = dtype.value_or(t.scalar_type());
  if (t.is_contiguous()) return empty(shape(t), type);
  // Any other layout is torch's to decide, so that the fake kernel's torch.empty_like agrees.
  std::array<StableIValue, 6> stack{torch::stable::detail::from(t),
                                    torch::stable::detail::from(std::optional<ScalarType>(type)),
                                    torch::stable::detail::from(std::nullopt),
                                    torch::stable::detail::from(std::nullopt),
                                    torch::stable::detail::from(std::nullopt),
                                    torch::stable::detail::from(std::nullopt)};
  if (torch_call_dispatcher("aten::empty_like", "", stack.data(), TORCH_ABI_VERSION) != 0)
    out_of_memory(shape(t), type);
  const auto out = torch::stable::detail::to<TorchTensor>(stack[0]);
  const auto strides = out.strides();
  return guards() ? guarded(shape(out), {strides.data(), strides.size()}, type) : out;
}

void Call::reserve(std::size_t bytes) {
  if (bytes == 0) return;
  workspace_ = empty({static_cast<std::int64_t>((bytes + 3) / 4)}, ScalarType::Float);
  context_.workspace = workspace_->mutable_data_ptr();
  context_.workspace_bytes = bytes;
}

}  // namespace tigon::torch_binding
