#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace tigon {

/// No operator takes float64 or `other`, what has no name here: errors need words for them.
enum class DType : std::uint8_t {
  float32,
  bfloat16,
  float16,
  int32,
  int64,
  boolean,
  float64,
  other
};

/// Bytes of one element; 0 where they are not known.
constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::boolean: return 1;
    case DType::bfloat16:
    case DType::float16: return 2;
    case DType::float32:
    case DType::int32: return 4;
    case DType::int64:
    case DType::float64: return 8;
    case DType::other: return 0;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::float32 || dtype == DType::bfloat16 || dtype == DType::float16;
}

enum class DeviceType : std::uint8_t { cpu, cuda };
inline constexpr int kDeviceTypes = 2;

struct Device {
  DeviceType type = DeviceType::cpu;
  std::int32_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

inline constexpr int kMaxRank = 8;

/// A non-owning view of memory: first element, type, device, sizes, and strides in elements.
/// Strides may be zero (expanded) or anything else that is not negative. A default-constructed
/// Tensor means "absent": an input that was not given, an output that is not wanted.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::float32;
  Device device;
  int rank = -1;
  std::array<std::int64_t, kMaxRank> sizes{};
  std::array<std::int64_t, kMaxRank> strides{};

  explicit operator bool() const { return rank >= 0; }

  std::int64_t size(int axis) const { return sizes[axis < 0 ? rank + axis : axis]; }
  std::int64_t stride(int axis) const { return strides[axis < 0 ? rank + axis : axis]; }

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= sizes[i];
    return n;
  }

  /// Row-major without gaps; axes of size 1 may have any stride.
  bool is_contiguous() const {
    std::int64_t expected = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (sizes[i] != 1 && strides[i] != expected) return numel() == 0;
      expected *= sizes[i];
    }
    return true;
  }
};

/// A contiguous view: contiguous(pointer, DType::bfloat16, device, {rows, cols}).
inline Tensor contiguous(void* data, DType dtype, Device device,
                         std::initializer_list<std::int64_t> sizes) {
  Tensor t{.data = data, .dtype = dtype, .device = device, .rank = static_cast<int>(sizes.size())};
  int i = 0;
  for (std::int64_t n : sizes) t.sizes[i++] = n;
  std::int64_t step = 1;
  for (i = t.rank - 1; i >= 0; --i) {
    t.strides[i] = step;
    step *= t.sizes[i];
  }
  return t;
}

}  // namespace tigon
