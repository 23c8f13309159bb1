#pragma once

#include <cstddef>

#include "base/fail.h"
#include "tigon/context.h"

namespace tigon {

/// What a backend offers for one Params (a POD of src/kernels, one per operator and direction).
/// `workspace` is a function of sizes and types only and may be null: none needed.
template <class Params>
struct Kernel {
  void (*launch)(const Context&, const Params&) = nullptr;
  std::size_t (*workspace)(const Context&, const Params&) = nullptr;
};

template <class Params>
inline constinit Kernel<Params> kernel_table[kDeviceTypes] = {};

/// One static object per Params in a backend's file makes the kernel known; no list to edit.
template <class Params>
struct RegisterKernel {
  RegisterKernel(DeviceType device, Kernel<Params> kernel) {
    kernel_table<Params>[static_cast<int>(device)] = kernel;
  }
};

template <class Params>
const Kernel<Params>& find_kernel(const Context& ctx, const char* op) {
  const Kernel<Params>& kernel = kernel_table<Params>[static_cast<int>(ctx.device.type)];
  if (kernel.launch == nullptr) fail(op, ": this build has no kernel for ", to_string(ctx.device));
  return kernel;
}

template <class Params>
std::size_t workspace_bytes(const Context& ctx, const char* op, const Params& params) {
  const Kernel<Params>& kernel = find_kernel<Params>(ctx, op);
  return kernel.workspace == nullptr ? 0 : kernel.workspace(ctx, params);
}

template <class Params>
void launch(const Context& ctx, const char* op, const Params& params) {
  find_kernel<Params>(ctx, op).launch(ctx, params);
}

}  // namespace tigon
