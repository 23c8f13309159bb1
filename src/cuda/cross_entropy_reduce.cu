#include <algorithm>

#include "cuda/device.h"
#include "cuda/logits.cuh"
#include "cuda/reduce.cuh"
#include "kernels/cross_entropy.h"
#include "kernels/registry.h"

// Sums over rows in float64: partial sums per block, then the blocks in order.
namespace tigon::cuda {
namespace {

constexpr int kSums = 5;  // loss, z_loss, correct, rows that count, their weights
constexpr int kSumThreads = 512;
constexpr std::int64_t kSumBlocks = 64;

__device__ void finish(const CrossEntropyReduce& p, const double (&sums)[kSums]) {
  const double given = p.given_divisor == nullptr ? sums[4] : double{*p.given_divisor};
  const double divisor = p.mean ? given : 1.0;
  if (p.total_loss != nullptr) *p.total_loss = static_cast<float>(sums[0] / divisor);
  if (p.total_z_loss != nullptr) *p.total_z_loss = static_cast<float>(sums[1] / divisor);
  if (p.token_accuracy != nullptr) *p.token_accuracy = static_cast<float>(sums[2] / sums[3]);
  if (p.divisor != nullptr) *p.divisor = static_cast<float>(sums[4]);
}

__device__ __forceinline__ void add_warp(double (&sums)[kSums]) {
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2)
#pragma unroll
    for (int k = 0; k < kSums; ++k) sums[k] += __shfl_xor_sync(0xFFFFFFFF, sums[k], lane);
}

__global__ void sum_rows(const CrossEntropyReduce p, double* partials) {
  __shared__ double shared[kSums][kSumThreads / kWarp];
  const auto get = [&](const RowView& view, std::int64_t row) {
    return view ? double{at_row(view, p.rows, row)} : 0.0;
  };
  double sums[kSums] = {};
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kSumThreads;
#pragma unroll 4
  for (std::int64_t row = blockIdx.x * std::int64_t{kSumThreads} + threadIdx.x; row < p.rows.count;
       row += step) {
    // Read whether the row counts or not: all loads of several rows are in flight at once.
    const std::int64_t label = load_integer(p.labels, p.labels.offset(p.rows, row));
    const double loss = get(p.loss, row);
    const double z_loss = get(p.z_loss, row);
    const double correct = get(p.correct, row);
    if (label == p.ignore_index) continue;
    sums[0] += loss;
    sums[1] += z_loss;
    sums[2] += correct;
    sums[3] += 1.0;
    // A label out of range has made its row NaN already; the others keep their gradients.
    if (label >= 0 && label < p.cols) sums[4] += double{class_weight(p.weight, label)};
  }
  add_warp(sums);
  if (threadIdx.x % kWarp == 0)
    for (int k = 0; k < kSums; ++k) shared[k][threadIdx.x / kWarp] = sums[k];
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  for (int k = 0; k < kSums; ++k)
    sums[k] = threadIdx.x < kSumThreads / kWarp ? shared[k][threadIdx.x] : 0.0;
  add_warp(sums);
  if (threadIdx.x > 0) return;
  if (gridDim.x == 1) return finish(p, sums);
  for (int k = 0; k < kSums; ++k) partials[blockIdx.x * kSums + k] = sums[k];
}

__global__ void sum_blocks(const CrossEntropyReduce p, const double* partials, int blocks) {
  double sums[kSums] = {};
  for (int b = 0; b < blocks; ++b)
    for (int k = 0; k < kSums; ++k) sums[k] += partials[b * kSums + k];
  finish(p, sums);
}

void launch_reduce(const Context& ctx, const CrossEntropyReduce& p) {
  const auto stream = static_cast<cudaStream_t>(ctx.stream);
  const std::int64_t wanted = p.rows.count / (16 * kSumThreads);
  const auto blocks = static_cast<int>(std::clamp<std::int64_t>(wanted, 1, kSumBlocks));
  auto* partials = static_cast<double*>(ctx.workspace);
  sum_rows<<<blocks, kSumThreads, 0, stream>>>(p, partials);
  if (blocks > 1) sum_blocks<<<1, 1, 0, stream>>>(p, partials, blocks);
  check(cudaGetLastError(), "cross_entropy_reduce");
}

std::size_t reduce_workspace(const Context&, const CrossEntropyReduce&) {
  return kSumBlocks * kSums * sizeof(double);
}

const RegisterKernel<CrossEntropyReduce> kReduce(DeviceType::cuda, {.launch = launch_reduce,
                                                                    .workspace = reduce_workspace});

}  // namespace
}  // namespace tigon::cuda
