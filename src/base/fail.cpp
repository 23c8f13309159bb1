#include "base/fail.h"

namespace tigon {

std::string to_string(DType dtype) {
  switch (dtype) {
    case DType::float32: return "float32";
    case DType::bfloat16: return "bfloat16";
    case DType::float16: return "float16";
    case DType::int32: return "int32";
    case DType::int64: return "int64";
    case DType::boolean: return "bool";
    case DType::float64: return "float64";
    case DType::other: return "another type";
  }
  return "?";
}

std::string to_string(Device device) {
  return device.type == DeviceType::cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

std::string shape_string(const Tensor& t) {
  if (!t) return "nothing";
  std::ostringstream out;
  out << '[';
  for (int i = 0; i < t.rank; ++i) out << (i > 0 ? ", " : "") << t.sizes[i];
  out << ']';
  return out.str();
}

}  // namespace tigon
