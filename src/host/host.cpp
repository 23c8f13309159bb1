#include "tigon/host.h"

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>

#include "host/backend.h"
#include "tigon/error.h"

namespace tigon {
namespace {

// Four pieces per thread even out what the pieces' costs differ by.
void parallel_for(void* /*state*/, std::int64_t count, std::int64_t grain,
                  void (*body)(void*, std::int64_t, std::int64_t), void* closure) {
  const std::int64_t most = 4 * oneapi::tbb::this_task_arena::max_concurrency();
  const std::int64_t pieces =
      std::clamp<std::int64_t>(count / std::max<std::int64_t>(grain, 1), 1, most);
  oneapi::tbb::parallel_for(std::int64_t{0}, pieces, [&](std::int64_t i) {
    body(closure, count * i / pieces, count * (i + 1) / pieces);
  });
}

void gemm(void* state, const Context& ctx, const Tensor& d, const Tensor& a, const Tensor& b,
          const Tensor& c, float alpha, float beta) {
  static_cast<host::Backend*>(state)->gemm(ctx, d, a, b, c, alpha, beta);
}

std::unique_ptr<host::Backend> make_backend(Device device) {
  if (device.type == DeviceType::cpu) return host::make_cpu_backend();
#if defined(TIGON_HOST_CUDA)
  return host::make_cuda_backend(device);
#else
  throw Error("Host: this build of libtigon has no CUDA (configure with -DTIGON_CUDA=ON)");
#endif
}

}  // namespace

struct Host::State {
  std::unique_ptr<host::Backend> backend;
  Context context;

  ~State() {
    if (context.workspace != nullptr) backend->free(context.workspace);
  }
};

Host::Host(Device device, void* stream) : state_(std::make_unique<State>()) {
  state_->backend = make_backend(device);
  state_->context = {.device = device,
                     .stream = stream,
                     .state = state_->backend.get(),
                     .parallel_for_fn = parallel_for,
                     .gemm_fn = gemm};
}

Host::~Host() = default;

const Context& Host::context() const { return state_->context; }

const Context& Host::reserve(std::size_t bytes) {
  Context& ctx = state_->context;
  if (bytes > ctx.workspace_bytes) {
    if (ctx.workspace != nullptr) state_->backend->free(ctx.workspace);
    ctx.workspace = nullptr;
    ctx.workspace_bytes = 0;
    ctx.workspace = state_->backend->allocate(bytes);
    ctx.workspace_bytes = bytes;
  }
  return ctx;
}

}  // namespace tigon
