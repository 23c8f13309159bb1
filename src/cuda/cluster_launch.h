#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "cuda/device.h"

namespace tigon::cuda {

/// A kernel in clusters of `cluster` blocks along x, or in plain blocks where that is 1, on the
/// current device. Kernels whose blocks stay ask how many are resident() and run no more.
class ClusterLaunch {
 public:
  ClusterLaunch(unsigned threads, int cluster, std::size_t shared_bytes, cudaStream_t stream)
      : cluster_(static_cast<unsigned>(cluster)) {
    config_.blockDim = dim3(threads);
    config_.dynamicSmemBytes = shared_bytes;
    config_.stream = stream;
    attribute_.id = cudaLaunchAttributeClusterDimension;
    attribute_.val.clusterDim.x = cluster_;
    attribute_.val.clusterDim.y = 1;
    attribute_.val.clusterDim.z = 1;
    config_.attrs = &attribute_;
    config_.numAttrs = cluster > 1 ? 1 : 0;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
  ClusterLaunch& operator=(const ClusterLaunch&) = delete;

  /// Clusters of `kernel` that the current device, `device`, runs at once: 0 where not even one can
  /// be scheduled. Asked once for each kernel, device and size.
  template <class... P>
  int resident(void (*kernel)(P...), int device) {
    config_.gridDim = dim3(cluster_);
    return resident_clusters(reinterpret_cast<const void*>(kernel), config_, device);
  }

  template <class... P, class... A>
  void run(const char* op, void (*kernel)(P...), unsigned clusters, A&&... arguments) {
    config_.gridDim = dim3(clusters * cluster_);
    allow_shared_memory(kernel, config_.dynamicSmemBytes);
    check(cudaLaunchKernelEx(&config_, kernel, static_cast<A&&>(arguments)...), op);
  }

 private:
  unsigned cluster_;
  cudaLaunchConfig_t config_{};
  cudaLaunchAttribute attribute_{};
};

}  // namespace tigon::cuda
