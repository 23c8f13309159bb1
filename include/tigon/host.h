#pragma once

#include <cstddef>
#include <memory>

#include "tigon/context.h"
#include "tigon/tensor.h"

namespace tigon {

/// The host of a C++ program without PyTorch: fills a Context with oneTBB's threads, oneDNN's
/// matrix products (cuBLASLt's on a CUDA device) and a workspace that grows on demand.
///
///   tigon::Host host;
///   tigon::rms_norm_forward(host.context(), x, weight, {.eps = 1e-5F}, y, {});
///
/// Tensors are the program's own memory (tigon/tensor.h), on a CUDA device cudaMalloc's or any
/// other allocator's, and that device is current (cudaSetDevice). One Host serves one thread and
/// one stream at a time; several may coexist.
class [[gnu::visibility("default")]] Host {
 public:
  /// `stream` is a cudaStream_t (null: the default stream) and is not owned. Throws DeviceError
  /// when the device is not there, Error when this build has no CUDA.
  explicit Host(Device device = {}, void* stream = nullptr);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  /// Valid as long as the Host; its workspace is the one last reserved.
  const Context& context() const;

  /// The same context with a workspace of at least `bytes`, as an operator's *_workspace() says:
  ///
  ///   host.reserve(tigon::rms_norm_backward_workspace(host.context(), x, dweight));
  ///
  /// Growing it waits for the device and frees the old one.
  const Context& reserve(std::size_t bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tigon
