#pragma once

#include <cstddef>
#include <sstream>
#include <string>

#include "tigon/error.h"
#include "tigon/tensor.h"

namespace tigon {

std::string to_string(DType dtype);
std::string to_string(Device device);
std::string shape_string(const Tensor& t);  // "[8, 4096]", "nothing" when absent

// fail("rms_norm_forward: weight must be [", 4096, "], got ", shape_string(w))
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw Error(message.str());
}

}  // namespace tigon
