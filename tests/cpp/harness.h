#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "hwy/targets.h"
#include "tigon/error.h"
#include "tigon/tensor.h"

// What the C++ tests share: memory with guards, random values, every instruction set, and errors.
namespace tigon::test {

/// Elements of one type between guard bytes, all of them 0xFF at first: NaN in every floating type.
class Buffer {
 public:
  Buffer(DType dtype, std::initializer_list<std::int64_t> sizes) : dtype_(dtype), sizes_(sizes) {
    std::int64_t count = 1;
    for (const std::int64_t n : sizes) count *= n;
    bytes_ = static_cast<std::size_t>(count * size_of(dtype));
    memory_.assign(bytes_ + 2 * kGuard, 0xFF);
  }

  Tensor view() {
    Tensor t = contiguous(memory_.data() + kGuard, dtype_, {}, {});
    t.rank = static_cast<int>(sizes_.size());
    std::int64_t step = 1;
    for (int i = t.rank - 1; i >= 0; --i) {
      t.sizes[i] = sizes_[i];
      t.strides[i] = step;
      step *= sizes_[i];
    }
    return t;
  }

  std::int64_t size() const { return static_cast<std::int64_t>(bytes_) / size_of(dtype_); }
  float* floats() { return reinterpret_cast<float*>(memory_.data() + kGuard); }
  std::uint16_t* halves() { return reinterpret_cast<std::uint16_t*>(memory_.data() + kGuard); }

  /// As float32; bfloat16 is the upper half of one.
  float at(std::int64_t i) {
    if (dtype_ == DType::float32) return floats()[i];
    const std::uint32_t bits = static_cast<std::uint32_t>(halves()[i]) << 16;
    float value = 0.0F;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }

  /// Normal values that every type has exactly: bfloat16's.
  Buffer& randomise(unsigned seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < size(); ++i) {
      const float value = normal(engine);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      bits &= 0xFFFF0000U;
      if (dtype_ == DType::float32)
        std::memcpy(floats() + i, &bits, sizeof(bits));
      else
        halves()[i] = static_cast<std::uint16_t>(bits >> 16);
    }
    return *this;
  }

  void expect_guards_intact() const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(memory_[i], 0xFF) << "written " << kGuard - i << " bytes before the buffer";
      ASSERT_EQ(memory_[kGuard + bytes_ + i], 0xFF) << "written " << i << " bytes behind it";
    }
  }

 private:
  static constexpr std::size_t kGuard = 256;
  DType dtype_;
  std::vector<std::int64_t> sizes_;
  std::size_t bytes_ = 0;
  std::vector<std::uint8_t> memory_;
};

/// Runs body() once for every instruction set that this machine and this build have.
template <class Body>
void for_each_target(Body&& body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

/// What call() throws as tigon::Error; "nothing" when it does not.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace tigon::test
