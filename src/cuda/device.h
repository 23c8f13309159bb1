#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace tigon::cuda {

/// Throws DeviceError "OP: words (code)" when status is not success.
void check(cudaError_t status, const char* op);

/// Streaming multiprocessors of a device; asked once per device.
int multiprocessors(int device);

/// Lets `kernel` be launched with this much dynamic shared memory; false where the device has less.
template <class Kernel>
bool allow_shared_memory(Kernel* kernel, std::size_t bytes, int device) {
  if (bytes <= 48 * 1024) return true;
  int most = 0;
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "shared memory");
  if (bytes > static_cast<std::size_t>(most)) return false;
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "shared memory");
  return true;
}

}  // namespace tigon::cuda
