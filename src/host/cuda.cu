#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <string>

#include "host/backend.h"
#include "tigon/error.h"

// Memory of the CUDA runtime and matrix products of cuBLASLt, whose own cache keeps the chosen
// algorithm of each shape.
namespace tigon::host {
namespace {

constexpr std::size_t kProductWorkspace = std::size_t{32} << 20;  // what Hopper's kernels may ask

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw DeviceError(std::string("Host: ") + what + ": " + cudaGetErrorString(status));
}

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceError(std::string("gemm: ") + what + ": " + cublasLtGetStatusString(status));
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::bfloat16: return CUDA_R_16BF;
    case DType::float16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}

/// Makes a device current for its lifetime.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    check(cudaGetDevice(&previous_), "cudaGetDevice");
    check(cudaSetDevice(device), "cudaSetDevice");
  }
  ~DeviceGuard() { cudaSetDevice(previous_); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
};

/// The transpose of a matrix as cuBLASLt names it, column by column: that of a row-major matrix as
/// it lies in memory, that of a column-major one by an operation. D^T = B^T A^T is then the product
/// to ask for, and a bias for every row of D is one for every column, as the epilogue has it.
class Transpose {
 public:
  explicit Transpose(const Tensor& t) : transposed_(t.stride(1) != 1 && t.size(1) != 1) {
    const int outer = transposed_ ? 1 : 0;
    const std::int64_t stride = t.size(outer) == 1 ? t.size(1 - outer) : t.stride(outer);
    check(cublasLtMatrixLayoutCreate(&layout_, type_of(t.dtype), t.size(1 - outer), t.size(outer),
                                     stride),
          "layout");
  }
  ~Transpose() { cublasLtMatrixLayoutDestroy(layout_); }
  Transpose(const Transpose&) = delete;
  Transpose& operator=(const Transpose&) = delete;

  cublasLtMatrixLayout_t get() const { return layout_; }
  cublasOperation_t operation() const { return transposed_ ? CUBLAS_OP_T : CUBLAS_OP_N; }

 private:
  bool transposed_;
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(Device device) : device_(device.index) {
    const DeviceGuard guard(device_);
    check(cublasLtCreate(&handle_), "cublasLtCreate");
    workspace_ = allocate(kProductWorkspace);
  }
  ~CudaBackend() override {
    cudaFree(workspace_);
    cublasLtDestroy(handle_);
  }

  void* allocate(std::size_t bytes) override {
    const DeviceGuard guard(device_);
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes),
          ("CUDA out of memory, asked for " + std::to_string(bytes) + " bytes").c_str());
    return memory;
  }
  void free(void* memory) override { cudaFree(memory); }  // synchronises by itself

  void gemm(const Context& ctx, const Tensor& d, const Tensor& a, const Tensor& b, const Tensor& c,
            float alpha, float beta) override {
    if (d.numel() == 0) return;
    const bool has_bias = c && c.rank == 1;
    if (!c || has_bias) beta = 0.0F;
    const DeviceGuard guard(device_);
    const Transpose in_a(a);
    const Transpose in_b(b);
    const Transpose out(d);
    const cublasOperation_t op_a = in_a.operation();
    const cublasOperation_t op_b = in_b.operation();
    cublasLtMatmulDesc_t product = nullptr;
    check(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description");
    const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
      cublasLtMatmulDescSetAttribute(product, name, &value, sizeof value);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, op_b);
    set(CUBLASLT_MATMUL_DESC_TRANSB, op_a);
    if (has_bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, c.data);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(d.dtype));
    }
    const cublasStatus_t status =
        cublasLtMatmul(handle_, product, &alpha, b.data, in_b.get(), a.data, in_a.get(), &beta,
                       d.data, out.get(), d.data, out.get(), nullptr, workspace_, kProductWorkspace,
                       static_cast<cudaStream_t>(ctx.stream));
    cublasLtMatmulDescDestroy(product);
    check(status, "cublasLtMatmul");
  }

 private:
  int device_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(Device device) {
  return std::make_unique<CudaBackend>(device);
}

}  // namespace tigon::host
