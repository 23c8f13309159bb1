#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "tigon/context.h"
#include "tigon/tensor.h"

namespace tigon {

/// Cuts a context's workspace into contiguous tensors, each 256-aligned. Without a workspace the
/// tensors are of no use, but bytes() says how much it would take: one function describes the
/// layout to both sides.
class Arena {
 public:
  explicit Arena(const Context& ctx) : ctx_(ctx) {}

  Tensor take(DType dtype, std::initializer_list<std::int64_t> sizes) {
    Tensor t = contiguous(at(), dtype, ctx_.device, sizes);
    bytes_ += static_cast<std::size_t>((t.numel() * size_of(dtype) + 255) / 256 * 256);
    return t;
  }

  std::size_t bytes() const { return bytes_; }

  /// The context with what is left of the workspace.
  Context rest() const {
    Context rest = ctx_;
    rest.workspace = at();
    rest.workspace_bytes -= bytes_;
    return rest;
  }

 private:
  void* at() const {
    return ctx_.workspace == nullptr ? nullptr : static_cast<char*>(ctx_.workspace) + bytes_;
  }

  Context ctx_;
  std::size_t bytes_ = 0;
};

}  // namespace tigon
