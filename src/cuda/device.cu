#include "cuda/device.h"

#include <array>
#include <atomic>
#include <string>

#include "tigon/error.h"

namespace tigon::cuda {

void check(cudaError_t status, const char* op) {
  if (status == cudaSuccess) return;
  throw DeviceError(std::string(op) + ": " + cudaGetErrorString(status) + " (CUDA error " +
                    std::to_string(static_cast<int>(status)) + ")");
}

int multiprocessors(int device) {
  static std::array<std::atomic<int>, 64> known{};
  int count = device < 64 ? known[device].load(std::memory_order_relaxed) : 0;
  if (count == 0) {
    check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
          "multiprocessors");
    if (device < 64) known[device].store(count, std::memory_order_relaxed);
  }
  return count;
}

}  // namespace tigon::cuda
