#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace tigon::cuda {

/// Throws DeviceError "OP: words (code)" when status is not success.
void check(cudaError_t status, const char* op);

/// Streaming multiprocessors of a device; asked once per device.
int multiprocessors(int device);

/// Blocks that one cluster may have on a device, kMaxCluster or, without clusters, 1. Asked once.
int max_cluster(int device);

/// Bytes of dynamic shared memory that one block may ask for. Asked once per device.
std::size_t shared_memory_per_block(int device);

/// Clusters of a kernel that fit the current device, `device`, at the same time, as `config` has
/// their blocks, threads and shared memory; 0 where not even one does. Asked once for each of
/// these.
int resident_clusters(const void* kernel, const cudaLaunchConfig_t& config, int device);

/// Lets `kernel` be launched with this much dynamic shared memory on the current device.
template <class Kernel>
void allow_shared_memory(Kernel* kernel, std::size_t bytes) {
  if (bytes <= 48 * 1024) return;
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "shared memory");
}

}  // namespace tigon::cuda
