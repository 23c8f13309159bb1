#include "ops/glu.h"

#include "base/check.h"
#include "base/fail.h"

namespace tigon {
namespace {

struct Halves {
  Tensor gate;
  Tensor up;
};

Halves split(const Tensor& packed) {
  if (!packed) return {};
  Halves halves{packed, packed};
  const std::int64_t cols = packed.size(-1) / 2;
  halves.gate.sizes[packed.rank - 1] = halves.up.sizes[packed.rank - 1] = cols;
  halves.up.data =
      static_cast<char*>(packed.data) + cols * packed.stride(-1) * size_of(packed.dtype);
  return halves;
}

/// gate and up as two views, after the checks that both directions share.
Halves inputs(const char* op, const Checker& check, const Tensor& gate, const Tensor& up) {
  check.floating(gate, "gate");
  if (!up) {
    if (gate.size(-1) % 2 != 0)
      fail(op, ": without up, gate must be [..., 2 I] with both halves, got ", shape_string(gate));
    return split(gate);
  }
  check.like(up, "up", gate, "gate");
  return {gate, up};
}

}  // namespace

GluForward glu_forward(const char* op, const Context& ctx, const Tensor& gate, const Tensor& up,
                       const Tensor& y) {
  const Checker check(op, ctx);
  const Halves in = inputs(op, check, gate, up);
  check.like(y, "y", in.gate, up ? "gate" : "half of gate");

  GluForward p{.cols = in.gate.size(-1)};
  p.rows = fold_rows({{in.gate, &p.gate}, {in.up, &p.up}, {y, &p.y}});
  merge_rows_into_columns(p.rows, p.cols, {&p.gate, &p.up, &p.y});
  return p;
}

GluBackward glu_backward(const char* op, const Context& ctx, const Tensor& dy, const Tensor& gate,
                         const Tensor& up, const Tensor& dgate, const Tensor& dup) {
  const Checker check(op, ctx);
  const Halves in = inputs(op, check, gate, up);
  check.like(dy, "dy", in.gate, up ? "gate" : "half of gate");
  if (dgate) check.like(dgate, "dgate", gate, "gate");
  if (dup && !up) fail(op, ": dup is wanted but up is missing");
  if (dup) check.like(dup, "dup", up, "up");
  const Halves out = up ? Halves{dgate, dup} : split(dgate);

  GluBackward p{.cols = in.gate.size(-1)};
  p.rows = fold_rows(
      {{in.gate, &p.gate}, {in.up, &p.up}, {dy, &p.dy}, {out.gate, &p.dgate}, {out.up, &p.dup}});
  merge_rows_into_columns(p.rows, p.cols, {&p.gate, &p.up, &p.dy, &p.dgate, &p.dup});
  return p;
}

}  // namespace tigon
