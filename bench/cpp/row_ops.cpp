// Row-wise operators on a CPU, outputs reused: bytes per second, and their share of a plain copy.
//
//   build/cpu/bench/cpp/tigon_bench --rows=4096 --cols=4096 --benchmark_filter=rms_norm
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tigon/host.h"
#include "tigon/ops/cross_entropy.h"
#include "tigon/ops/geglu.h"
#include "tigon/ops/layer_norm.h"
#include "tigon/ops/rms_norm.h"
#include "tigon/ops/softmax.h"
#include "tigon/ops/swiglu.h"

namespace {

using tigon::DType;
using tigon::Tensor;

/// Memory with a shape, filled with values in [-2, 2) that every type can hold.
class Array {
 public:
  Array(DType dtype, std::initializer_list<std::int64_t> sizes)
      : memory_(static_cast<std::size_t>(tigon::contiguous(nullptr, dtype, {}, sizes).numel() *
                                         tigon::size_of(dtype))),
        tensor_(tigon::contiguous(memory_.data(), dtype, {}, sizes)) {
    std::uint32_t random = 1;
    for (std::int64_t i = 0; i < tensor_.numel(); ++i) {
      random = random * 1664525U + 1013904223U;
      const float value = static_cast<float>(random >> 24U) / 64.0F - 2.0F;
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      if (dtype == DType::float32) std::memcpy(memory_.data() + 4 * i, &bits, 4);
      const auto upper = static_cast<std::uint16_t>(bits >> 16U);
      if (dtype == DType::bfloat16) std::memcpy(memory_.data() + 2 * i, &upper, 2);
    }
  }

  operator const Tensor&() const { return tensor_; }  // NOLINT(google-explicit-constructor)
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_.size()); }

 private:
  std::vector<std::byte> memory_;
  Tensor tensor_;
};

tigon::Host& host() {
  static tigon::Host instance;
  return instance;
}

/// Bytes read and written per second by a copy of one array onto another, median of 15.
double copy_rate(const Array& from, const Array& to) {
  const auto copy = [&] {
    const Tensor& a = from;
    const Tensor& b = to;
    host().context().parallel_for(from.bytes(), 1 << 18, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(static_cast<std::byte*>(b.data) + begin,
                  static_cast<const std::byte*>(a.data) + begin,
                  static_cast<std::size_t>(end - begin));
    });
  };
  copy();
  std::vector<double> seconds;
  for (int i = 0; i < 15; ++i) {
    const auto start = std::chrono::steady_clock::now();
    copy();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + 7, seconds.end());
  return 2.0 * static_cast<double>(from.bytes()) / seconds[7];
}

/// The arrays that all operators of one type and size work on.
struct Arrays {
  Arrays(DType dtype, std::int64_t rows, std::int64_t cols)
      : a(dtype, {rows, cols}),
        b(dtype, {rows, cols}),
        c(dtype, {rows, cols}),
        d(dtype, {rows, cols}),
        e(dtype, {rows, cols}),
        weight(dtype, {cols}),
        bias(dtype, {cols}),
        dweight(dtype, {cols}),
        dbias(dtype, {cols}),
        mean(DType::float32, {rows}),
        rstd(DType::float32, {rows}),
        loss(DType::float32, {1}),
        labels(DType::int64, {rows}),
        copy(copy_rate(a, b)) {}

  Array a, b, c, d, e, weight, bias, dweight, dbias, mean, rstd, loss, labels;
  double copy;
};

/// `streams`: matrices that are read or written, each once.
void add(const std::string& name, const Arrays& in, int streams, std::function<void()> run) {
  const double bytes = static_cast<double>(in.a.bytes()) * streams;
  benchmark::RegisterBenchmark(
      name.c_str(),
      [=, copy = in.copy](benchmark::State& state) {
        const auto start = std::chrono::steady_clock::now();
        for (auto _ : state) run();
        const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
        const double rate = bytes * static_cast<double>(state.iterations()) / elapsed.count();
        state.counters["GB/s"] = rate / 1e9;
        state.counters["of_copy"] = rate / copy;
      })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

void add_all(const Arrays& in, const std::string& type) {
  using tigon::Gelu;
  const auto workspace = [](std::size_t bytes) { host().reserve(bytes); };
  workspace(tigon::rms_norm_backward_workspace(host().context(), in.a, in.dweight));
  workspace(tigon::layer_norm_backward_workspace(host().context(), in.a, in.dweight, in.dbias));
  const tigon::CrossEntropyOutputs loss{.loss = in.loss};
  const tigon::CrossEntropyOutputs both{.loss = in.loss, .dlogits = in.b};
  workspace(tigon::cross_entropy_forward_workspace(host().context(), in.a, {}, both));
  const tigon::Context& ctx = host().context();

  add("rms_norm/forward/" + type, in, 2,
      [&] { rms_norm_forward(ctx, in.a, in.weight, {}, in.b, in.rstd); });
  add("rms_norm/backward/" + type, in, 3,
      [&] { rms_norm_backward(ctx, in.a, in.b, in.weight, in.rstd, {}, in.c, in.dweight); });
  add("layer_norm/forward/" + type, in, 2,
      [&] { layer_norm_forward(ctx, in.a, in.weight, in.bias, {}, in.b, in.mean, in.rstd); });
  add("layer_norm/backward/" + type, in, 3, [&] {
    layer_norm_backward(ctx, in.a, in.b, in.weight, in.mean, in.rstd, in.c, in.dweight, in.dbias);
  });
  add("softmax/forward/" + type, in, 2, [&] { softmax_forward(ctx, in.a, in.b); });
  add("softmax/backward/" + type, in, 3, [&] { softmax_backward(ctx, in.a, in.b, in.c); });
  add("swiglu/forward/" + type, in, 3, [&] { swiglu_forward(ctx, in.a, in.b, in.c); });
  add("swiglu/backward/" + type, in, 5,
      [&] { swiglu_backward(ctx, in.a, in.b, in.c, in.d, in.e); });
  for (const auto& [gelu, name] : {std::pair{Gelu::tanh, "geglu_tanh"}, {Gelu::erf, "geglu_erf"}}) {
    add(std::string(name) + "/forward/" + type, in, 3,
        [&, gelu = gelu] { geglu_forward(ctx, in.a, in.b, gelu, in.c); });
    add(std::string(name) + "/backward/" + type, in, 5,
        [&, gelu = gelu] { geglu_backward(ctx, in.a, in.b, in.c, gelu, in.d, in.e); });
  }
  add("cross_entropy/forward/" + type, in, 1,
      [&, loss] { cross_entropy_forward(ctx, in.a, in.labels, {}, {}, loss); });
  add("cross_entropy/both/" + type, in, 2,
      [&, both] { cross_entropy_forward(ctx, in.a, in.labels, {}, {}, both); });
}

/// Takes --name=value out of the arguments.
std::int64_t take(int& argc, char** argv, const std::string& name, std::int64_t otherwise) {
  const std::string prefix = "--" + name + "=";
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], prefix.c_str(), prefix.size()) != 0) continue;
    const std::int64_t value = std::strtoll(argv[i] + prefix.size(), nullptr, 10);
    std::copy(argv + i + 1, argv + argc, argv + i);
    --argc;
    return std::max<std::int64_t>(value, 1);
  }
  return otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t rows = take(argc, argv, "rows", 4096);
  const std::int64_t cols = take(argc, argv, "cols", 4096);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  const Arrays single(DType::float32, rows, cols);
  const Arrays half(DType::bfloat16, rows, cols);
  add_all(single, "float32");
  add_all(half, "bfloat16");
  benchmark::RunSpecifiedBenchmarks();
}
