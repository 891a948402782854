// Entry point of the sparse attention kernel for FlashInfer's just-in-time compiler.
#include <algorithm>

#include "sparse_attention.cuh"
#include "tvm_ffi_utils.h"

namespace {

using dspark::Params;

int multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

template <int D, int kCluster>
void launch(const Params& params, cudaStream_t stream) {
  constexpr int kShared = sizeof(dspark::Shared<D>) + 1024;
  auto kernel = dspark::sparse_attention<D, kCluster>;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  TVM_FFI_ICHECK(allowed == cudaSuccess) << "shared memory of " << kShared << " bytes: " << cudaGetErrorString(allowed);
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {kCluster, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  const int items = params.rows * ((params.heads + dspark::kHeads - 1) / dspark::kHeads);
  config.gridDim = dim3(kCluster > 1 ? items * kCluster : std::min(items, multiprocessors()));
  config.blockDim = dim3(dspark::kThreads);
  config.dynamicSmemBytes = kShared;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, params);
  TVM_FFI_ICHECK(status == cudaSuccess) << "sparse attention: " << cudaGetErrorString(status);
}

template <int D>
void dispatch(const Params& params, int64_t cluster, cudaStream_t stream) {
  switch (cluster) {
    case 1: return launch<D, 1>(params, stream);
    case 2: return launch<D, 2>(params, stream);
    case 4: return launch<D, 4>(params, stream);
    case 8: return launch<D, 8>(params, stream);
    default: TVM_FFI_ICHECK(false) << "cluster size " << cluster << " is none of 1, 2, 4, 8";
  }
}

}  // namespace

// q, out [rows, heads, D] bf16; pool [pool rows, D] bf16; keys [rows, list] and lens [rows] int32; sinks [heads] fp32.
void SparseAttention(TensorView q, TensorView pool, TensorView keys, TensorView lens, TensorView sinks, TensorView out,
                     double scale, int64_t cluster) {
  CHECK_INPUT_TYPE(q, dl_bfloat16);
  CHECK_INPUT_TYPE(pool, dl_bfloat16);
  CHECK_INPUT_TYPE(out, dl_bfloat16);
  CHECK_INPUT_TYPE(keys, dl_int32);
  CHECK_INPUT_TYPE(lens, dl_int32);
  CHECK_INPUT_TYPE(sinks, dl_float32);
  CHECK_LAST_DIM_CONTIGUOUS(q);
  CHECK_CONTIGUOUS(pool);
  CHECK_CONTIGUOUS(out);
  CHECK_CONTIGUOUS(keys);
  ffi::CUDADeviceGuard guard(q.device().device_id);
  const cudaStream_t stream = get_stream(q.device());
  Params params;
  params.q = static_cast<const dspark::bf16*>(q.data_ptr());
  params.pool = static_cast<const dspark::bf16*>(pool.data_ptr());
  params.keys = static_cast<const int*>(keys.data_ptr());
  params.lens = static_cast<const int*>(lens.data_ptr());
  params.sinks = static_cast<const float*>(sinks.data_ptr());
  params.out = static_cast<dspark::bf16*>(out.data_ptr());
  params.rows = q.size(0), params.heads = q.size(1), params.list = keys.size(1);
  params.q_row = q.stride(0), params.q_head = q.stride(1);
  params.scale = static_cast<float>(scale);
  if (params.rows == 0) return;
  switch (q.size(2)) {
    case 128: return dispatch<128>(params, cluster, stream);
    case 256: return dispatch<256>(params, cluster, stream);
    case 512: return dispatch<512>(params, cluster, stream);
    default: TVM_FFI_ICHECK(false) << "head_dim " << q.size(2) << " is none of 128, 256, 512";
  }
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(sparse_attention, SparseAttention);
