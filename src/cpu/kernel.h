#pragma once

#include "hwy/highway.h"
#include "kernels/registry.h"

/// Registers function(ctx, params), compiled once per instruction set, as the CPU kernel of Params;
/// the best one present runs. What follows are other members of Kernel: .workspace = ...
#define TIGON_CPU_KERNEL(Params, function, ...)                                                    \
  HWY_EXPORT(function);                                                                            \
  const RegisterKernel<Params> function##Kernel(                                                   \
      DeviceType::cpu, {.launch = [](const Context& ctx,                                           \
                                     const Params& p) { HWY_DYNAMIC_DISPATCH(function)(ctx, p); }, \
                        __VA_ARGS__})
