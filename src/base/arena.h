#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "tigon/context.h"
#include "tigon/tensor.h"

namespace tigon {

/// The context as it is before a workspace is reserved.
inline Context without_workspace(Context ctx) {
  ctx.workspace = nullptr;
  ctx.workspace_bytes = 0;
  return ctx;
}

/// Cuts a workspace into 256-aligned tensors, in order. Over a context without workspace it only
/// counts: the function that lays a workspace out is then also the one that says how large it is.
class Arena {
 public:
  explicit Arena(const Context& ctx)
      : device_(ctx.device), base_(static_cast<std::byte*>(ctx.workspace)) {}

  Tensor take(DType dtype, std::initializer_list<std::int64_t> sizes) {
    Tensor t = contiguous(base_ == nullptr ? nullptr : base_ + bytes_, dtype, device_, sizes);
    bytes_ += (static_cast<std::size_t>(t.numel() * size_of(dtype)) + 255) / 256 * 256;
    return t;
  }

  /// The bytes taken so far, and `bytes` more that rest() leaves to a kernel.
  std::size_t bytes() const { return bytes_ + kernel_bytes_; }
  void need_kernel_workspace(std::size_t bytes) { kernel_bytes_ = std::max(kernel_bytes_, bytes); }

  /// The context for a kernel: its workspace is what no tensor has taken.
  Context rest(const Context& ctx) const {
    Context rest = ctx;
    rest.workspace = base_ == nullptr ? nullptr : base_ + bytes_;
    rest.workspace_bytes = ctx.workspace_bytes - std::min(bytes_, ctx.workspace_bytes);
    return rest;
  }

 private:
  Device device_;
  std::byte* base_;
  std::size_t bytes_ = 0;
  std::size_t kernel_bytes_ = 0;
};

}  // namespace tigon
