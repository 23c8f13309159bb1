#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tigon::cuda {

/// Throws DeviceError "OP: words (code)" when status is not success.
void check(cudaError_t status, const char* op);

/// Streaming multiprocessors of a device; asked once per device.
int multiprocessors(int device);

}  // namespace tigon::cuda
