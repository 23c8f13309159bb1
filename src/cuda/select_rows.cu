#include "kernels/select_rows.h"

#include "cuda/device.h"
#include "cuda/reduce.cuh"
#include "kernels/registry.h"

namespace tigon::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kPerThread = 8;  // rows of a thread at a time

/// One block walks all rows in order: 64k of them take about ten turns. `every` selects them all.
__global__ void __launch_bounds__(kThreads) select(const SelectRows p, bool every) {
  __shared__ int warp_total[kThreads / kWarp];
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  std::int64_t selected = 0;  // before this turn; the same in all threads
  for (std::int64_t start = 0; start < p.rows.count; start += kThreads * kPerThread) {
    const std::int64_t first = start + threadIdx.x * kPerThread;
    std::int64_t label[kPerThread];
    unsigned counts = 0;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      if (first + i >= p.rows.count) continue;
      label[i] = load_integer(p.labels, p.labels.offset(p.rows, first + i));
      if (every || label[i] != p.ignore_index) counts |= 1U << i;
    }
    const int mine = __popc(counts);
    int before = mine;  // inclusive sum over the warp, then over warps
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFF, before, step);
      if (lane >= step) before += other;
    }
    __syncthreads();  // the last turn's totals are read
    if (lane == kWarp - 1) warp_total[warp] = before;
    __syncthreads();
    int turn = 0;
    for (int w = 0; w < kThreads / kWarp; ++w) {
      if (w == warp) before += turn;
      turn += warp_total[w];
    }
    std::int64_t at = selected + before - mine;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      if ((counts >> i & 1U) == 0) continue;
      p.selected[at] = first + i;
      p.selected_label[at] = label[i];
      ++at;
    }
    selected += turn;
  }
  if (threadIdx.x == 0) *p.device_count = selected;
}

void launch_select(const Context& ctx, const SelectRows& p) {
  const auto stream = static_cast<cudaStream_t>(ctx.stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &capture), "select_rows");
  const bool captured = capture != cudaStreamCaptureStatusNone;
  select<<<1, kThreads, 0, stream>>>(p, captured);
  check(cudaGetLastError(), "select_rows");
  if (captured) {
    *p.count = p.rows.count;
    return;
  }
  check(cudaMemcpyAsync(p.count, p.device_count, sizeof *p.count, cudaMemcpyDeviceToHost, stream),
        "select_rows");
  check(cudaStreamSynchronize(stream), "select_rows");
}

const RegisterKernel<SelectRows> kSelect(DeviceType::cuda, {.launch = launch_select});

}  // namespace
}  // namespace tigon::cuda
