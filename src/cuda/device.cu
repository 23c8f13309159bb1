#include "cuda/device.h"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "cuda/config/cross_entropy.h"
#include "tigon/error.h"

namespace tigon::cuda {

void check(cudaError_t status, const char* op) {
  if (status == cudaSuccess) return;
  throw DeviceError(std::string(op) + ": " + cudaGetErrorString(status) + " (CUDA error " +
                    std::to_string(static_cast<int>(status)) + ")");
}

namespace {

/// An attribute of a device, asked once.
class Attribute {
 public:
  explicit constexpr Attribute(cudaDeviceAttr attribute) : attribute_(attribute) {}

  int of(int device) {
    int value = device < kMany ? known_[device].load(std::memory_order_relaxed) : kUnknown;
    if (value == kUnknown) {
      check(cudaDeviceGetAttribute(&value, attribute_, device), "attribute of the device");
      if (device < kMany) known_[device].store(value, std::memory_order_relaxed);
    }
    return value;
  }

 private:
  static constexpr int kMany = 64;
  static constexpr int kUnknown = 0;  // asked again then, which is right if slow

  cudaDeviceAttr attribute_;
  std::array<std::atomic<int>, kMany> known_{};
};

}  // namespace

int multiprocessors(int device) {
  static Attribute count(cudaDevAttrMultiProcessorCount);
  return count.of(device);
}

int max_cluster(int device) {
  static Attribute major(cudaDevAttrComputeCapabilityMajor);
  return major.of(device) >= 9 ? kMaxCluster : 1;
}

std::size_t shared_memory_per_block(int device) {
  static Attribute bytes(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return static_cast<std::size_t>(bytes.of(device));
}

int resident_clusters(const void* kernel, const cudaLaunchConfig_t& config, int device) {
  using Key = std::tuple<const void*, int, unsigned, unsigned, std::size_t>;
  static std::mutex mutex;
  static std::map<Key, int> known;
  const Key key(kernel, device, config.gridDim.x, config.blockDim.x, config.dynamicSmemBytes);
  const std::lock_guard lock(mutex);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  allow_shared_memory(kernel, config.dynamicSmemBytes);
  int clusters = 0;
  if (config.numAttrs == 0) {  // blocks alone
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
              &clusters, kernel, static_cast<int>(config.blockDim.x), config.dynamicSmemBytes),
          "occupancy");
    clusters *= multiprocessors(device);
  } else if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess) {
    cudaGetLastError();  // it is the answer: such clusters cannot run here
    clusters = 0;
  }
  known.emplace(key, clusters);
  return clusters;
}

}  // namespace tigon::cuda
