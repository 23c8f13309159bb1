#pragma once

#include <stdexcept>

namespace tigon {

/// A call that breaks an operator's contract. what() is one sentence with the values:
/// "rms_norm_forward: weight must be [4096], got [4095]". Nothing has been launched or written.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The device refused a launch (a CUDA error code in words). Outputs are undefined.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tigon
