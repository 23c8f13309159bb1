// An operator in a C++ program without PyTorch. Build it against an installed tigon:
//   cmake -B build -DCMAKE_PREFIX_PATH=/path/to/prefix && cmake --build build && build/rms_norm
#include <tigon/error.h>
#include <tigon/host.h>
#include <tigon/ops/rms_norm.h>

#include <cstdio>
#include <vector>

int main() {
  constexpr int rows = 3;
  constexpr int cols = 4;
  std::vector<float> x{1, 2, 3, 4, -1, 1, -1, 1, 0, 0, 0, 10};
  std::vector<float> weight(cols, 1.0F);
  std::vector<float> y(rows * cols);
  const auto tensor = [](std::vector<float>& v, std::initializer_list<std::int64_t> sizes) {
    return tigon::contiguous(v.data(), tigon::DType::float32, {}, sizes);
  };

  const tigon::Host host;
  tigon::rms_norm_forward(host.context(), tensor(x, {rows, cols}), tensor(weight, {cols}),
                          {.eps = 1e-6F}, tensor(y, {rows, cols}), {});
  for (int row = 0; row < rows; ++row)
    std::printf("%7.4f %7.4f %7.4f %7.4f\n", y[row * cols], y[row * cols + 1], y[row * cols + 2],
                y[row * cols + 3]);

  try {  // what does not fit is refused before anything is written
    tigon::rms_norm_forward(host.context(), tensor(x, {rows, cols}), tensor(weight, {cols - 1}), {},
                            tensor(y, {rows, cols}), {});
  } catch (const tigon::Error& error) {
    std::printf("%s\n", error.what());
  }
}
