// Attention of one query row over its own list of KV rows, for DeepSeek-V4 on Hopper.
//
// All heads of a row share the list and the KV row is key and value at once, so a block takes 64 heads of one row as the
// 64 rows of a tensor-core product, and gathers 32 listed KV rows at a time into shared memory, once, for both products.
// A producer warpgroup gathers up to four tiles ahead, across rows too; blocks are persistent. Two consumer warpgroups
// take turns: one turns its tile's scores into weights while the tensor cores work for the other, and each sums half of
// the channels of every tile. The softmax has the attention sink in its denominator only. A cluster of blocks may share
// one row's list; they add up their parts through each other's shared memory, so that small batches fill the card too.
#pragma once
#include "consumer.cuh"
#include "epilogue.cuh"
#include "producer.cuh"

namespace dspark {

template <int D>
__device__ __forceinline__ void init_barriers(Shared<D>& s) {
  barrier_init(&s.q_full, kProducers);
  barrier_init(&s.q_empty, 2);
  for (int stage = 0; stage < kStages; ++stage) {
    barrier_init(&s.full[stage], kProducers);
    barrier_init(&s.empty[stage], 2);
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Grid: a cluster for every row and group of 64 heads; without clusters, blocks that take one after the other.
template <int D, int kCluster>
__global__ void __launch_bounds__(kThreads, 1) sparse_attention(const __grid_constant__ Params p) {
  extern __shared__ char memory[];
  auto& s = *reinterpret_cast<Shared<D>*>((reinterpret_cast<uintptr_t>(memory) + 1023) & ~uintptr_t(1023));
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // uniform, as tensor-core instructions need
  const int rank = kCluster > 1 ? static_cast<int>(cluster_rank()) : 0;
  const int items = p.rows * ((p.heads + kHeads - 1) / kHeads), stride = gridDim.x / kCluster;
  if (threadIdx.x == 0) init_barriers<D>(s);
  __syncthreads();
  wait_for_earlier_kernels();
  if (warpgroup == 2) {
    give_registers<40>();
    int order = 0, done = 0;
    for (int index = blockIdx.x / kCluster; index < items; index += stride, ++order) {
      const Item item = item_of<kCluster>(p, index, rank);
      produce<D, kCluster>(p, s, item, order, done);
      done += item.steps;
      if constexpr (kCluster > 1) {
        cluster_sync();
        add_parts<D, kCluster>(p, s, item, rank);
        cluster_sync();
      }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
  } else {
    take_registers<232>();
    int order = 0, done = 0;
    for (int index = blockIdx.x / kCluster; index < items; index += stride, ++order) {
      const Item item = item_of<kCluster>(p, index, rank);
      float out[D / 4];
#pragma unroll
      for (int i = 0; i < D / 4; ++i) out[i] = 0.f;
      RowState state = {{-INFINITY, -INFINITY}, {0.f, 0.f}};
      if (warpgroup == 0) consume<D, kCluster, 0>(p, s, out, state, item, order, done);
      else consume<D, kCluster, 1>(p, s, out, state, item, order, done);
      done += item.steps;
      total_sums<D>(state, s);
      if constexpr (kCluster == 1) {
        write_alone<D>(p, out, state, item);
      } else {
        write_part<D>(s, out, state);
        cluster_sync();
        add_parts<D, kCluster>(p, s, item, rank);
        cluster_sync();
      }
    }
  }
}

}  // namespace dspark
