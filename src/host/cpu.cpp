#include <cstring>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "host/backend.h"
#include "tigon/error.h"

// Matrix products of oneDNN 2.6 and newer. Where it has none for a 16-bit type (no float16 before
// 3.0, no bfloat16 without AVX-512), operands are widened to float32.
namespace tigon::host {
namespace {

using dnnl::memory;

constexpr std::size_t kAlignment = 256;

memory::data_type type_of(DType dtype) {
  switch (dtype) {
    case DType::bfloat16: return memory::data_type::bf16;
    case DType::float16: return memory::data_type::f16;
    default: return memory::data_type::f32;
  }
}

float widen(std::uint16_t v, DType dtype) {
  float out = 0.0F;
  if (dtype == DType::bfloat16) {
    const std::uint32_t bits = static_cast<std::uint32_t>(v) << 16U;
    std::memcpy(&out, &bits, sizeof out);
  } else {
    _Float16 half{};
    std::memcpy(&half, &v, sizeof half);
    out = static_cast<float>(half);
  }
  return out;
}

std::uint16_t narrow(float v, DType dtype) {
  std::uint16_t out = 0;
  if (dtype == DType::bfloat16) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &v, sizeof bits);
    const std::uint32_t quiet = bits | 0x400000U;
    const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16U) & 1U);
    out = static_cast<std::uint16_t>((v != v ? quiet : rounded) >> 16U);
  } else {
    const auto half = static_cast<_Float16>(v);
    std::memcpy(&out, &half, sizeof out);
  }
  return out;
}

/// A float32 copy without gaps.
struct Widened {
  std::vector<float> values;
  Tensor tensor;

  Widened(const Context& ctx, const Tensor& t)
      : values(static_cast<std::size_t>(t.numel())),
        tensor(contiguous(values.data(), DType::float32, t.device, {t.size(0), t.size(1)})) {
    const auto* from = static_cast<const std::uint16_t*>(t.data);
    ctx.parallel_for(t.size(0), 1 + 32768 / (t.size(1) + 1), [&](std::int64_t i, std::int64_t end) {
      for (; i < end; ++i)
        for (std::int64_t j = 0; j < t.size(1); ++j)
          values[i * t.size(1) + j] = widen(from[i * t.stride(0) + j * t.stride(1)], t.dtype);
    });
  }

  void copy_to(const Context& ctx, const Tensor& t) const {
    auto* to = static_cast<std::uint16_t*>(t.data);
    ctx.parallel_for(t.size(0), 1 + 32768 / (t.size(1) + 1), [&](std::int64_t i, std::int64_t end) {
      for (; i < end; ++i)
        for (std::int64_t j = 0; j < t.size(1); ++j)
          to[i * t.stride(0) + j * t.stride(1)] = narrow(values[i * t.size(1) + j], t.dtype);
    });
  }
};

class CpuBackend final : public Backend {
 public:
  void* allocate(std::size_t bytes) override {
    return ::operator new(bytes, std::align_val_t{kAlignment});
  }
  void free(void* memory) override { ::operator delete(memory, std::align_val_t{kAlignment}); }

  void gemm(const Context& ctx, const Tensor& d, const Tensor& a, const Tensor& b, const Tensor& c,
            float alpha, float beta) override {
    if (d.numel() == 0) return;
    if (!c) beta = 0.0F;
    if (c && c.rank == 1) repeat(ctx, c, d);
    if (multiply(d, a, b, alpha, beta)) return;
    const Widened wide_a(ctx, a);
    const Widened wide_b(ctx, b);
    if (d.dtype == DType::float32) {
      multiply(d, wide_a.tensor, wide_b.tensor, alpha, beta);
      return;
    }
    const Widened wide_d(ctx, d);
    multiply(wide_d.tensor, wide_a.tensor, wide_b.tensor, alpha, beta);
    wide_d.copy_to(ctx, d);
  }

 private:
  static void repeat(const Context& ctx, const Tensor& row, const Tensor& d) {
    const std::size_t bytes = row.numel() * size_of(d.dtype);
    ctx.parallel_for(d.size(0), 64, [&](std::int64_t i, std::int64_t end) {
      for (; i < end; ++i)
        std::memcpy(static_cast<std::byte*>(d.data) + i * d.stride(0) * size_of(d.dtype), row.data,
                    bytes);
    });
  }

  static memory::desc describe(const Tensor& t) {
    return {{t.size(0), t.size(1)}, type_of(t.dtype), {t.stride(0), t.stride(1)}};
  }

  /// False when oneDNN has no such product on this processor.
  bool multiply(const Tensor& d, const Tensor& a, const Tensor& b, float alpha, float beta) {
    if (a.size(1) == 0) throw Error("gemm: the inner size must not be 0");
    const memory::desc a_desc = describe(a);
    const memory::desc b_desc = describe(b);
    const memory::desc d_desc = describe(d);
    const memory::desc scale_desc({1, 1}, memory::data_type::f32, memory::format_tag::ab);
    dnnl::post_ops steps;
    if (alpha != 1.0F) steps.append_binary(dnnl::algorithm::binary_mul, scale_desc);
    if (beta != 0.0F) steps.append_sum(beta);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(steps);
    dnnl::matmul product;
    try {
#if DNNL_VERSION_MAJOR >= 3
      product = dnnl::matmul({engine_, a_desc, b_desc, d_desc, attributes});
#else
      product = dnnl::matmul({{a_desc, b_desc, d_desc}, attributes, engine_});
#endif
    } catch (const dnnl::error& error) {
      if (error.status == dnnl_unimplemented && a.dtype != DType::float32) return false;
      throw Error(std::string("gemm: oneDNN: ") + error.what());
    }
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, {a_desc, engine_, a.data}},
                                              {DNNL_ARG_WEIGHTS, {b_desc, engine_, b.data}},
                                              {DNNL_ARG_DST, {d_desc, engine_, d.data}}};
    if (alpha != 1.0F)
      arguments.insert(
          {DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, {scale_desc, engine_, &alpha}});
    product.execute(stream_, arguments);
    stream_.wait();
    return true;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace tigon::host
