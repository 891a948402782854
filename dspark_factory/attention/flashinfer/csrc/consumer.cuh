// The two warpgroups that turn scores into weights and sum values.
#pragma once
#include "layout.cuh"

namespace dspark {

// scores [64, 32] of a tile
template <int D>
__device__ __forceinline__ void begin_scores(float (&scores)[16], Shared<D>& s, int stage) {
  const uint32_t q = shared_address(s.q), kv = shared_address(s.kv[stage]);
  products_begin();
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    const uint32_t offset = (step % 4) * 32;
    const uint64_t b = k_major(kv + (step / 4) * kPanel + offset);
    product_n32(scores, k_major(q + (step / 4) * kQueryPanel + offset), b, step > 0);
  }
  products_commit();
}

// out [64, D / 2] += weights [64, 32] values [32, D / 2] of this warpgroup's half of the channels
template <int D>
__device__ __forceinline__ void begin_sums(float (&out)[D / 4], Shared<D>& s, int stage, int tile) {
  const int group = threadIdx.x / 128;
  const uint32_t weights = shared_address(s.weights) + (tile & 1) * 64, kv = shared_address(s.kv[stage]) + group * (D / 128) * kPanel;
  products_begin();
#pragma unroll
  for (int step = 0; step < kTile / 16; ++step) {
    const uint64_t a = k_major(weights + step * 32), b = n_major(kv + step * 2048, kPanel);
    if constexpr (D == 512) product_n256(out, a, b);
    if constexpr (D == 256) product_n128(out, a, b);
    if constexpr (D == 128) product_n64(out, a, b);
  }
  products_commit();
}

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

struct RowState {
  float max[2], sum[2];  // of rows lane / 4 and lane / 4 + 8 of the warp's 16
};

__device__ __forceinline__ void mask_scores(float (&scores)[16], int tile, int len) {
  if ((tile + 1) * kTile <= len) return;
  const int first = tile * kTile + (threadIdx.x % 4) * 2;
#pragma unroll
  for (int i = 0; i < 16; ++i)
    if (first + (i / 4) * 8 + i % 2 >= len) scores[i] = -INFINITY;
}

// The maximum moves on; accumulators follow where it grew.
__device__ __forceinline__ bool move_max(RowState& state, const float (&max)[2], float (&rescale)[2], float scale) {
  bool grew = false;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool grows = max[half] != state.max[half];
    rescale[half] = grows ? exp2f((state.max[half] - max[half]) * scale) : 1.f;
    state.max[half] = max[half];
    state.sum[half] *= rescale[half];
    grew |= grows;
  }
  return __any_sync(~0u, grew);
}

template <int D>
__device__ __forceinline__ void write_weights(float (&scores)[16], RowState& state, Shared<D>& s, int tile, float scale) {
  const int warp = (threadIdx.x / 32) % 4, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int half = (i / 2) % 2;
    scores[i] = exp2f(scores[i] * scale - state.max[half] * scale);
    state.sum[half] += scores[i];
  }
  const int matrix = lane / 8, r = warp * 16 + lane % 8 + (matrix & 1) * 8;
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const float* d = scores + pair * 8;
    const uint32_t at = shared_address(s.weights) + swizzled(r, (tile & 1) * 4 + pair * 2 + (matrix >> 1));
    store_matrices(at, pack(d[0], d[1]), pack(d[2], d[3]), pack(d[4], d[5]), pack(d[6], d[7]));
  }
}

template <int D>
__device__ __forceinline__ void rescale_out(float (&out)[D / 4], const float (&rescale)[2]) {
#pragma unroll
  for (int i = 0; i < D / 4; ++i) out[i] *= rescale[(i / 2) % 2];
}

// The maximum after a tile of one's own; it moves only when it grows by more than the slack.
template <int D>
__device__ __forceinline__ void tile_max(const float (&scores)[16], const RowState& state, float (&max)[2], Shared<D>& s,
                                         int group, float scale) {
  const int lane = threadIdx.x % 32, row = (threadIdx.x / 32) % 4 * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float m = -INFINITY;
#pragma unroll
    for (int i = 0; i < 4; ++i) m = fmaxf(m, fmaxf(scores[i * 4 + half * 2], scores[i * 4 + half * 2 + 1]));
    m = quad_max(m);
    const bool grows = state.max[half] == -INFINITY || (m - state.max[half]) * scale > kSlack;
    max[half] = grows ? m : state.max[half];
    if (lane % 4 == 0) s.tile_max[group][row + 8 * half] = max[half];
  }
}

// Tile t belongs to warpgroup t % 2, which scores it and turns the scores into weights; both sum its values. Named
// barriers: 1 and 2 say that the weights of group 0 or 1 are ready, 3 and 4 sync a group.
template <int D, int kCluster, int group>
__device__ __forceinline__ void consume(const Params& p, Shared<D>& s, float (&out)[D / 4], RowState& state,
                                        const Item& item, int order, int done) {
  const int row = (threadIdx.x / 32) % 4 * 16 + threadIdx.x % 32 / 4, steps = item.steps;
  const bool elected = threadIdx.x % 128 == 0;
  const float scale = p.scale * kLog2E;
  float scores[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) scores[i] = 0.f;
  auto score = [&](int step) {
    const int turn = done + step;
    barrier_wait(&s.full[turn % kStages], (turn / kStages) & 1);
    fence_for_tensor_cores();
    begin_scores<D>(scores, s, turn % kStages);
  };
  auto release = [&](int step) {
    if (elected) barrier_arrive(&s.empty[(done + step) % kStages]);
  };
  auto follow = [&](int step) {  // the other group's tile
    named_barrier(2 - group, kConsumers);
    float rescale[2], max[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) max[half] = s.tile_max[1 - group][row + 8 * half];
    if (move_max(state, max, rescale, scale)) rescale_out<D>(out, rescale);
    begin_sums<D>(out, s, (done + step) % kStages, step);
  };
  barrier_wait(&s.q_full, order & 1);
  fence_for_tensor_cores();
  if (group < steps) {
    score(group);
    products_wait<0>();
  }
  if (group + 2 >= steps && elected) barrier_arrive(&s.q_empty);
  for (int step = group; step < steps; step += 2) {
    if (step > 0) follow(step - 1);
    float rescale[2], max[2];
    mask_scores(scores, item.first + step * kCluster, item.len);
    tile_max<D>(scores, state, max, s, group, scale);
    const bool grew = move_max(state, max, rescale, scale);
    write_weights<D>(scores, state, s, step, scale);
    products_wait<0>();
    if (step > 0) release(step - 1);
    fence_for_tensor_cores();
    named_arrive(1 + group, kConsumers);
    named_barrier(3 + group, 128);
    if (grew) rescale_out<D>(out, rescale);
    begin_sums<D>(out, s, (done + step) % kStages, step);
    if (step + 2 < steps) {
      score(step + 2);
      products_wait<1>();
      release(step);
      products_wait<0>();
      if (step + 4 >= steps && elected) barrier_arrive(&s.q_empty);
    } else {
      products_wait<0>();
      release(step);
    }
  }
  if (steps > 0 && (steps - 1) % 2 != group) {
    follow(steps - 1);
    products_wait<0>();
    release(steps - 1);
  }
}

}  // namespace dspark
