#include "tigon/ops/linear_logprob.h"

#include <array>

#include "base/check.h"
#include "kernels/log_prob.h"
#include "kernels/registry.h"
#include "ops/linear_head.h"
#include "ops/loss.h"

namespace tigon {
namespace {

using Inputs = LinearLogProbInputs;
using Options = LinearLogProbOptions;
using Outputs = LinearLogProbOutputs;
using Upstream = LinearLogProbUpstream;
using Gradients = LinearLogProbGradients;

constexpr const char* kForward = "linear_logprob_forward";
constexpr const char* kBackward = "linear_logprob_backward";

LinearHead::Arguments head_arguments(const Inputs& in, const Options& o,
                                     const Gradients& out = {}) {
  return {.x = in.x,
          .weight = in.weight,
          .bias = in.bias,
          .labels = in.labels,
          .ignore_index = o.ignore_index,
          .chunk_rows = o.chunk_rows,
          .dx = out.dx,
          .dweight = out.dweight,
          .dbias = out.dbias};
}

void check(const Context& ctx, const char* op, const Inputs& in, const Options& o,
           const Gradients& out = {}) {
  LinearHead::check(ctx, op, head_arguments(in, o, out));
  check_logit_map(op, o.logit_scale, o.softcap, o.temperature);
}

LogitMap map_of(const Options& o) { return logit_map(o.logit_scale, o.softcap, o.temperature); }

struct Result {
  const char* name;
  Tensor Outputs::* tensor;
};
constexpr std::array<Result, 6> kResults{{{"lse", &Outputs::lse},
                                          {"log_probs", &Outputs::log_probs},
                                          {"entropy", &Outputs::entropy},
                                          {"log_sum_sq_probs", &Outputs::log_sum_sq_probs},
                                          {"mean_logits", &Outputs::mean_logits},
                                          {"is_top1", &Outputs::is_top1}}};

/// The results of the rows that count, before they are scattered.
struct Forward {
  Forward(const Context& ctx, const Inputs& in, const Options& o, const Outputs& out)
      : arena(ctx), head(ctx, kForward, head_arguments(in, o), arena) {
    for (const Result& r : kResults)
      if (out.*r.tensor) counted.*r.tensor = arena.take(DType::float32, {head.rows()});
  }

  Arena arena;
  LinearHead head;
  Outputs counted;
};

struct Backward {
  Backward(const Context& ctx, const Inputs& in, const Options& o, const Gradients& out)
      : arena(ctx), head(ctx, kBackward, head_arguments(in, o, out), arena) {
    for (Tensor& column : columns) column = arena.take(DType::float32, {head.rows()});
  }

  Arena arena;
  LinearHead head;
  std::array<Tensor, 7> columns;
};

}  // namespace

void linear_logprob_forward(const Context& ctx, const Inputs& in, const Options& o,
                            const Outputs& out) {
  const Checker check(kForward, ctx);
  check.workspace(linear_logprob_forward_workspace(ctx, in, o, out));
  for (const Result& r : kResults)
    if (out.*r.tensor) check.vector(out.*r.tensor, r.name, DType::float32, row_count(in.x));
  Forward f(ctx, in, o, out);
  f.head.select();
  f.head.for_each_chunk([&](const LinearHead::Part& chunk) {
    const auto part = [&](const Tensor& t) { return column_view(t, chunk.first); };
    const LogProbForward p{.rows = chunk.rows,
                           .cols = in.weight.size(0),
                           .logits = chunk.logits,
                           .labels = chunk.labels,
                           .map = map_of(o),
                           .ignore_index = o.ignore_index,
                           .lse = part(f.counted.lse),
                           .log_prob = part(f.counted.log_probs),
                           .entropy = part(f.counted.entropy),
                           .log_sum_sq_probs = part(f.counted.log_sum_sq_probs),
                           .mean_logit = part(f.counted.mean_logits),
                           .is_top1 = part(f.counted.is_top1)};
    launch(ctx, kForward, p);
  });
  for (const Result& r : kResults) f.head.scatter(f.counted.*r.tensor, out.*r.tensor);
}

std::size_t linear_logprob_forward_workspace(const Context& ctx, const Inputs& in, const Options& o,
                                             const Outputs& out) {
  check(ctx, kForward, in, o);
  return Forward(without_workspace(ctx), in, o, out).arena.bytes();
}

void linear_logprob_backward(const Context& ctx, const Upstream& up, const Inputs& in,
                             const Options& o, const Gradients& out) {
  const Checker check(kBackward, ctx);
  check.workspace(linear_logprob_backward_workspace(ctx, in, o, out));
  for (const auto& [t, name] : {std::pair{&up.dlog_probs, "dlog_probs"},
                                {&up.dentropy, "dentropy"},
                                {&up.dlog_sum_sq_probs, "dlog_sum_sq_probs"},
                                {&up.dmean_logits, "dmean_logits"}})
    if (*t) check.column(*t, name, in.x, "x");
  const std::int64_t rows = row_count(in.x);
  check.vector(up.lse, "lse", DType::float32, rows);
  if (up.dentropy) check.vector(up.entropy, "entropy", DType::float32, rows);
  if (up.dlog_sum_sq_probs)
    check.vector(up.log_sum_sq_probs, "log_sum_sq_probs", DType::float32, rows);

  Backward b(ctx, in, o, out);
  b.head.select();
  const std::array<const Tensor*, 7> all{&up.lse,         &up.entropy,  &up.log_sum_sq_probs,
                                         &up.dlog_probs,  &up.dentropy, &up.dlog_sum_sq_probs,
                                         &up.dmean_logits};
  for (std::size_t i = 0; i < all.size(); ++i) {
    b.head.gather(*all[i], b.columns[i]);
    if (!*all[i]) b.columns[i] = {};
  }
  b.head.for_each_chunk([&](const LinearHead::Part& chunk) {
    const auto part = [&](int i) { return column_view(b.columns[i], chunk.first); };
    const LogProbBackward p{.rows = chunk.rows,
                            .cols = in.weight.size(0),
                            .logits = chunk.logits,
                            .labels = chunk.labels,
                            .map = map_of(o),
                            .ignore_index = o.ignore_index,
                            .lse = part(0),
                            .entropy = part(1),
                            .log_sum_sq_probs = part(2),
                            .dlog_prob = part(3),
                            .dentropy = part(4),
                            .dlog_sum_sq_probs = part(5),
                            .dmean_logit = part(6),
                            .dlogits = chunk.logits};
    launch(ctx, kBackward, p);
  });
}

std::size_t linear_logprob_backward_workspace(const Context& ctx, const Inputs& in,
                                              const Options& o, const Gradients& out) {
  check(ctx, kBackward, in, o, out);
  return Backward(without_workspace(ctx), in, o, out).arena.bytes();
}

}  // namespace tigon
