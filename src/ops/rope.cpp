#include "tigon/ops/rope.h"

#include "base/check.h"
#include "base/fail.h"
#include "kernels/registry.h"
#include "kernels/rope.h"

namespace tigon {
namespace {

/// A view whose row strides are the tensor's over the given axes. An axis of size 1 is never
/// walked: its stride, which may be anything, becomes 0.
RowView view_over(const Tensor& t, std::initializer_list<int> axes) {
  RowView view{.data = t.data, .dtype = t.dtype, .col_stride = t.stride(-1)};
  int i = 0;
  for (const int axis : axes) {
    const bool walked = axis >= 0 && t.sizes[axis] != 1;
    view.strides[i++] = walked ? t.strides[axis] : 0;
  }
  return view;
}

RopeHeads heads(const Checker& check, const Tensor& x, const char* x_name, const Tensor& y,
                const char* y_name, int head_axis) {
  check.like(y, y_name, x, x_name);
  const int token_axis = 3 - head_axis;
  return {x.sizes[head_axis], view_over(x, {0, token_axis, head_axis}),
          view_over(y, {0, token_axis, head_axis})};
}

/// On the CPU, where the host can read them.
void check_positions(const char* op, const Rope& p) {
  const RowView& ids = p.position_ids;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t t = 0; t < p.tokens; ++t) {
      const std::int64_t position = load_integer(ids, b * ids.strides[0] + t * ids.strides[1]);
      if (position < 0 || position >= p.positions)
        fail(op, ": position_ids must be in [0, ", p.positions, "), got ", position, " at [", b,
             ", ", t, "]");
    }
}

void set_positions(const char* op, const Context& ctx, const Tensor& ids, const Tensor& cos,
                   Rope& p) {
  if (ids.dtype != DType::int64 && ids.dtype != DType::int32)
    fail(op, ": position_ids must be int64 or int32, got ", to_string(ids.dtype));
  if (ids.device != ctx.device)
    fail(op, ": position_ids must be on ", to_string(ctx.device), ", got ", to_string(ids.device));
  if (ids.rank != 2 || (ids.sizes[0] != 1 && ids.sizes[0] != p.batch) || ids.sizes[1] != p.tokens)
    fail(op, ": position_ids must be [", p.batch, " or 1, ", p.tokens, "], got ",
         shape_string(ids));
  if (cos.rank != 2)
    fail(op, ": with position_ids, cos must be [positions, features], got ", shape_string(cos));
  p.position_ids = view_over(ids, {0, 1});
  if (ctx.device.type == DeviceType::cpu) check_positions(op, p);
}

void set_tables(const char* op, const Checker& check, const Tensor& cos, const Tensor& sin,
                const RopeOptions& options, bool gathered, Rope& p) {
  check.floating(cos, "cos", 2);
  check.like(sin, "sin", cos, "cos");
  const std::int64_t width = cos.size(-1);
  const std::int64_t rotary_dim = options.rotary_dim == 0 ? width : options.rotary_dim;
  if (rotary_dim < 0 || rotary_dim % 2 != 0 || rotary_dim > p.head_dim)
    fail(op, ": the rotary width must be even and at most the head's ", p.head_dim, ", got ",
         rotary_dim);
  p.pairs = rotary_dim / 2;
  if (width != rotary_dim && width != p.pairs)
    fail(op, ": cos must have ", rotary_dim, " features or ", p.pairs, " pairs, got ",
         shape_string(cos));
  p.per_pair = width != rotary_dim;
  p.positions = cos.size(-2);
  if (!gathered && p.positions != p.tokens)
    fail(op, ": cos must have a row for each of ", p.tokens, " tokens, got ", shape_string(cos));
  if (cos.rank > 3 || (cos.rank == 3 && cos.sizes[0] != 1 && cos.sizes[0] != p.batch))
    fail(op, ": cos must be [", p.tokens, ", ", width, "] or [", p.batch, " or 1, ", p.tokens, ", ",
         width, "], got ", shape_string(cos));
  const int batch_axis = cos.rank == 3 ? 0 : -1;
  p.cos = view_over(cos, {batch_axis, cos.rank - 2});
  p.sin = view_over(sin, {batch_axis, cos.rank - 2});
}

struct Names {
  const char* q;
  const char* k;
  const char* q_out;
  const char* k_out;
};

void run(const char* op, const Context& ctx, const Names& names, const Tensor& q, const Tensor& k,
         const Tensor& cos, const Tensor& sin, const Tensor& ids, const RopeOptions& options,
         const Tensor& q_out, const Tensor& k_out, bool transposed) {
  const Checker check(op, ctx);
  if (options.unsqueeze_dim != 1 && options.unsqueeze_dim != 2)
    fail(op, ": unsqueeze_dim must be 1 or 2, got ", options.unsqueeze_dim);
  const int head_axis = static_cast<int>(options.unsqueeze_dim);
  check.floating(q, names.q, 4);
  if (q.rank != 4) fail(op, ": ", names.q, " must have 4 axes, got ", shape_string(q));

  Rope p{.batch = q.sizes[0],
         .tokens = q.sizes[3 - head_axis],
         .head_dim = q.sizes[3],
         .interleaved = options.interleaved,
         .transposed = transposed};
  p.q = heads(check, q, names.q, q_out, names.q_out, head_axis);
  if (k) {
    check.floating(k, names.k, 4);
    check.same_dtype(k, names.k, q.dtype);
    Tensor expected = q;
    expected.sizes[head_axis] = k.sizes[head_axis];
    check.same_shape(k, names.k, expected, "(up to heads) q");
    p.k = heads(check, k, names.k, k_out, names.k_out, head_axis);
  }
  set_tables(op, check, cos, sin, options, static_cast<bool>(ids), p);
  if (ids) set_positions(op, ctx, ids, cos, p);
  launch(ctx, op, p);
}

}  // namespace

void rope_forward(const Context& ctx, const Tensor& q, const Tensor& k, const Tensor& cos,
                  const Tensor& sin, const Tensor& position_ids, const RopeOptions& options,
                  const Tensor& q_out, const Tensor& k_out) {
  run("rope_forward", ctx, {"q", "k", "q_out", "k_out"}, q, k, cos, sin, position_ids, options,
      q_out, k_out, false);
}

void rope_backward(const Context& ctx, const Tensor& dq_out, const Tensor& dk_out,
                   const Tensor& cos, const Tensor& sin, const Tensor& position_ids,
                   const RopeOptions& options, const Tensor& dq, const Tensor& dk) {
  run("rope_backward", ctx, {"dq_out", "dk_out", "dq", "dk"}, dq_out, dk_out, cos, sin,
      position_ids, options, dq, dk, true);
}

}  // namespace tigon
