#pragma once

#include <cstdint>

// Copies that nobody waits for until they are needed, from compute capability 9.0 on: bytes that
// count themselves on a barrier in shared memory.
namespace tigon::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

#if __CUDA_ARCH__ >= 900

/// Where a block of this cluster has what lies at `shared` in this block.
__device__ __forceinline__ std::uint32_t shared_address_in(const void* shared, int rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(there)
      : "r"(shared_address(shared)), "r"(rank));
  return there;
}

/// A barrier that is passed when as many bytes as one thread expects have come. Its phases are 0
/// and 1 in turn; bytes may come before they are expected.
class ByteBarrier {
 public:
  __device__ __forceinline__ explicit ByteBarrier(std::uint64_t& barrier)
      : address_(shared_address(&barrier)) {}

  /// By one thread; others may use it after a barrier of the block, or of the cluster.
  __device__ __forceinline__ void init() const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address_) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }

  /// By one thread, once in a phase.
  __device__ __forceinline__ void expect(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_),
                 "r"(bytes)
                 : "memory");
  }

  __device__ __forceinline__ void wait(int phase) const {
    std::uint32_t done = 0;
    while (done == 0)
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(address_), "r"(phase)
          : "memory");
  }

  __device__ __forceinline__ std::uint32_t address() const { return address_; }

 private:
  std::uint32_t address_;
};

/// Copies from device to shared memory, by one thread: both 16-byte aligned, a multiple of 16
/// bytes.
__device__ __forceinline__ void copy_bulk(void* to, const void* from, int bytes,
                                          const ByteBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier.address())
      : "memory");
}

#endif

}  // namespace tigon::cuda
