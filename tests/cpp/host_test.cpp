#include "tigon/host.h"

#include <gtest/gtest.h>

#if defined(TIGON_TEST_CUDA)
#include <cuda_runtime_api.h>
#endif

#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

#include "tigon/error.h"

namespace tigon {
namespace {

TEST(Host, ParallelForCoversEveryItemOnce) {
  const Host host;
  for (const std::int64_t count : {0, 1, 7, 100, 4096}) {
    for (const std::int64_t grain : {1, 3, 4096}) {
      std::vector<std::atomic<int>> seen(count);
      std::atomic<int> small{0};
      host.context().parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
        if (end - begin < grain && end != count) ++small;
        for (std::int64_t i = begin; i < end; ++i) ++seen[i];
      });
      for (const auto& n : seen) EXPECT_EQ(n, 1);
      EXPECT_EQ(small, 0) << "pieces below the grain, count " << count << ", grain " << grain;
    }
  }
}

TEST(Host, WorkspaceGrowsAndIsAligned) {
  Host host;
  for (const std::size_t bytes : {1, 1000, 10}) {
    const Context& ctx = host.reserve(bytes);
    EXPECT_GE(ctx.workspace_bytes, bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ctx.workspace) % 256, 0U);
    std::memset(ctx.workspace, 1, ctx.workspace_bytes);
  }
  EXPECT_EQ(host.context().workspace_bytes, 1000U);
}

// --- products against a loop in double -------------------------------------------------------

float to_float(const Tensor& t, std::int64_t at) {
  if (t.dtype == DType::float32) return static_cast<const float*>(t.data)[at];
  const std::uint16_t v = static_cast<const std::uint16_t*>(t.data)[at];
  const std::uint32_t bits = static_cast<std::uint32_t>(v) << 16U;
  float out = 0;
  if (t.dtype == DType::bfloat16) {
    std::memcpy(&out, &bits, 4);
  } else {
    _Float16 half{};
    std::memcpy(&half, &v, 2);
    out = static_cast<float>(half);
  }
  return out;
}

/// [rows, cols] of small random integers over 4, which every type holds exactly.
struct Matrix {
  std::vector<std::byte> memory;
  Tensor tensor;

  Matrix(DType dtype, std::int64_t rows, std::int64_t cols, bool transposed, int gap, unsigned seed)
      : memory(static_cast<std::size_t>((rows + gap) * (cols + gap) * size_of(dtype))) {
    tensor = {.data = memory.data(), .dtype = dtype, .rank = 2, .sizes = {rows, cols}};
    tensor.strides = transposed ? std::array<std::int64_t, kMaxRank>{1, rows + gap}
                                : std::array<std::int64_t, kMaxRank>{cols + gap, 1};
    std::mt19937 random(seed);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j)
        set(i, j, static_cast<float>(static_cast<int>(random() % 17) - 8) / 4.0F);
  }

  std::int64_t at(std::int64_t i, std::int64_t j) const {
    return i * tensor.strides[0] + j * tensor.strides[1];
  }
  float get(std::int64_t i, std::int64_t j) const { return to_float(tensor, at(i, j)); }
  void set(std::int64_t i, std::int64_t j, float v) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &v, 4);
    const auto upper = static_cast<std::uint16_t>(bits >> 16U);
    const auto half = static_cast<_Float16>(v);
    std::byte* to = memory.data() + at(i, j) * size_of(tensor.dtype);
    if (tensor.dtype == DType::float32) std::memcpy(to, &v, 4);
    if (tensor.dtype == DType::bfloat16) std::memcpy(to, &upper, 2);
    if (tensor.dtype == DType::float16) std::memcpy(to, &half, 2);
  }
};

/// A tensor's memory where a host computes: itself on the CPU, a copy that is read back on CUDA.
class Placed {
 public:
  Placed(const Matrix& m, Device device) : tensor(m.tensor) {
    tensor.device = device;
#if defined(TIGON_TEST_CUDA)
    if (device.type != DeviceType::cuda) return;
    original_ = m.tensor.data;
    bytes_ = m.memory.size();
    EXPECT_EQ(cudaMalloc(&tensor.data, bytes_), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(tensor.data, original_, bytes_, cudaMemcpyDefault), cudaSuccess);
#endif
  }
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;
  ~Placed() {
#if defined(TIGON_TEST_CUDA)
    if (original_ == nullptr) return;
    EXPECT_EQ(cudaMemcpy(original_, tensor.data, bytes_, cudaMemcpyDefault), cudaSuccess);
    cudaFree(tensor.data);
#endif
  }

  Tensor tensor;

 private:
  [[maybe_unused]] void* original_ = nullptr;
  [[maybe_unused]] std::size_t bytes_ = 0;
};

enum class Adds { nothing, itself, bias };

struct Product {
  DType in;
  DType out;
  std::int64_t m, n, k;
  bool transposed_a, transposed_b;
  float alpha, beta;
  Adds adds = Adds::nothing;
};

void expect_product(const Product& p, Device device) {
  const Host host(device);
  const Matrix a(p.in, p.m, p.k, p.transposed_a, 3, 1);
  const Matrix b(p.in, p.k, p.n, p.transposed_b, 5, 2);
  const Matrix before(p.out, p.m, p.n, false, 2, 3);
  const Matrix d(p.out, p.m, p.n, false, 2, 3);
  const Matrix bias(p.out, 1, p.n, false, 0, 4);
  {
    const Placed on_a(a, device);
    const Placed on_b(b, device);
    const Placed on_d(d, device);
    const Placed on_bias(bias, device);
    const Tensor row = contiguous(on_bias.tensor.data, p.out, device, {p.n});
    const Tensor c = p.adds == Adds::nothing ? Tensor{} : p.adds == Adds::bias ? row : on_d.tensor;
    host.context().gemm(on_d.tensor, on_a.tensor, on_b.tensor, c, p.alpha, p.beta);
  }
  const double unit = p.out == DType::float32 ? 1e-6 : p.out == DType::bfloat16 ? 4e-3 : 5e-4;
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < p.k; ++l) sum += double{a.get(i, l)} * b.get(l, j);
      const double added = p.adds == Adds::bias ? bias.get(0, j) : before.get(i, j);
      const double expected = p.alpha * sum + p.beta * added;
      // cuBLAS rounds some products to 16 bits before it adds what is added; oneDNN rounds once.
      const double rounded = device.type == DeviceType::cuda
                                 ? std::abs(p.alpha * sum) + std::abs(p.beta * added)
                                 : std::abs(expected);
      ASSERT_NEAR(d.get(i, j), expected, unit * (1.0 + rounded)) << "at " << i << ", " << j;
    }
    for (int gap = 0; gap < 2; ++gap)  // between rows nothing is written
      ASSERT_EQ(to_float(d.tensor, d.at(i, p.n + gap)), 0.0F);
  }
}

void expect_products(Device device) {
  for (const DType in : {DType::float32, DType::bfloat16, DType::float16})
    for (const DType out : {in, DType::float32})
      for (const bool ta : {false, true})
        for (const bool tb : {false, true})
          for (const auto& [alpha, beta, adds] : {std::tuple{1.0F, 0.0F, Adds::nothing},
                                                  {1.0F, 1.0F, Adds::itself},
                                                  {0.5F, -2.0F, Adds::itself},
                                                  {1.0F, 1.0F, Adds::bias}}) {
            SCOPED_TRACE(testing::Message()
                         << "in " << int(in) << " out " << int(out) << " transposed " << ta << tb
                         << " alpha " << alpha << " beta " << beta << " adds " << int(adds));
            for (const auto& [m, n, k] : {std::array<int, 3>{1, 1, 1}, {5, 17, 33}, {64, 96, 32}})
              expect_product({in, out, m, n, k, ta, tb, alpha, beta, adds}, device);
          }
}

TEST(Host, ProductsOfEveryTypeAndLayout) { expect_products({}); }

#if defined(TIGON_TEST_CUDA)
TEST(Host, ProductsOnCuda) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
  expect_products({DeviceType::cuda, 0});
}
#endif

TEST(Host, CudaIsRefusedByNameWhereItIsNotBuiltOrNotThere) {
  EXPECT_ANY_THROW(Host(Device{DeviceType::cuda, 99}));
}

}  // namespace
}  // namespace tigon
