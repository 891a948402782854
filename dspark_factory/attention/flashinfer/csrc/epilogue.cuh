// From accumulators to the output: alone, or together with the other blocks of a cluster.
#pragma once
#include "consumer.cuh"

namespace dspark {

// Row totals over both warpgroups; every consumer thread gets those of its two rows.
template <int D>
__device__ __forceinline__ void total_sums(RowState& state, Shared<D>& s) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32, row = (threadIdx.x / 32) % 4 * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    state.sum[half] = quad_sum(state.sum[half]);
    if (lane % 4 == 0) s.sum[group][row + 8 * half] = state.sum[half];
  }
  named_barrier(5, kConsumers);
#pragma unroll
  for (int half = 0; half < 2; ++half) state.sum[half] += s.sum[1 - group][row + 8 * half];
}

__device__ __forceinline__ float sink_weight(const Params& p, int head, float max, float scale) {
  return head < p.heads ? exp2f(p.sinks[head] * kLog2E - max * scale) : 1.f;
}

// Transpose 4 registers among 4 lanes: lane t ends with register t of all of them.
__device__ __forceinline__ void transpose_quad(uint32_t (&r)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t got = __shfl_xor_sync(~0u, odd ? r[i] : r[i + 1], 1);
    (odd ? r[i] : r[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = __shfl_xor_sync(~0u, high ? r[i] : r[i + 2], 2);
    (high ? r[i] : r[i + 2]) = got;
  }
}

// One block has the whole list: normalise and write 16 bytes per thread, leaving shared memory to the producer.
template <int D>
__device__ __forceinline__ void write_alone(const Params& p, float (&out)[D / 4], const RowState& state,
                                            const Item& item) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32, first = (threadIdx.x / 32) % 4 * 16 + lane / 4;
  const float scale = p.scale * kLog2E;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int head = item.head0 + first + 8 * half;
    const float max = state.max[half] == -INFINITY ? 0.f : state.max[half];
    const float factor = 1.f / (state.sum[half] + sink_weight(p, head, max, scale));
    bf16* target = p.out + (static_cast<long long>(item.row) * p.heads + head) * D + group * (D / 2);
#pragma unroll
    for (int i = 0; i < D / 64; ++i) {
      uint32_t r[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float* pair = out + (i * 4 + k) * 4 + half * 2;
        r[k] = pack(pair[0] * factor, pair[1] * factor);
      }
      transpose_quad(r);
      if (head < p.heads) reinterpret_cast<uint4*>(target)[i * 4 + lane % 4] = {r[0], r[1], r[2], r[3]};
    }
  }
}

// ---- several blocks share the list

// Byte offset of 8 channels (16 bytes) of a block's part, spread over the banks.
template <int D>
__device__ __forceinline__ uint32_t part_offset(int head, int chunk) {
  return (head * (D / 8) + (chunk ^ (head & 7))) * 16;
}

// A block's part is its own weighted mean: bounded by the values themselves, so half precision holds it.
template <int D>
__device__ __forceinline__ void write_part(Shared<D>& s, float (&out)[D / 4], const RowState& state) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32, first = (threadIdx.x / 32) % 4 * 16 + lane / 4;
  char* part = reinterpret_cast<char*>(s.kv);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int head = first + 8 * half;
    const float factor = state.sum[half] > 0.f ? 1.f / state.sum[half] : 0.f;
    if (group == 0 && lane % 4 == 0) s.part_max[head] = state.max[half], s.part_sum[head] = state.sum[half];
#pragma unroll
    for (int i = 0; i < D / 16; ++i) {
      const float* pair = out + i * 4 + half * 2;
      *reinterpret_cast<__half2*>(part + part_offset<D>(head, group * (D / 16) + i) + (lane % 4) * 4) =
          __floats2half2_rn(pair[0] * factor, pair[1] * factor);
    }
  }
}

// Every block adds up a slice of all parts, each with the share of its keys in the row's softmax.
template <int D, int kCluster>
__device__ __forceinline__ void add_parts(const Params& p, Shared<D>& s, const Item& item, int rank) {
  constexpr int kChunks = kHeads * D / 8;
  const float scale = p.scale * kLog2E;
  uint4* target = reinterpret_cast<uint4*>(p.out + (static_cast<long long>(item.row) * p.heads + item.head0) * D);
  for (int i = kChunks * rank / kCluster + threadIdx.x; i < kChunks * (rank + 1) / kCluster; i += kThreads) {
    const int head = i / (D / 8), chunk = i % (D / 8);
    if (item.head0 + head >= p.heads) continue;
    uint4 parts[kCluster];
    float maxima[kCluster], sums[kCluster], max = -INFINITY;
#pragma unroll
    for (int peer = 0; peer < kCluster; ++peer) {
      maxima[peer] = load_peer(peer_address(shared_address(&s.part_max[head]), peer));
      sums[peer] = load_peer(peer_address(shared_address(&s.part_sum[head]), peer));
      parts[peer] = load_peer4(peer_address(shared_address(s.kv) + part_offset<D>(head, chunk), peer));
    }
#pragma unroll
    for (int peer = 0; peer < kCluster; ++peer) max = fmaxf(max, maxima[peer]);
    max = max == -INFINITY ? 0.f : max;
    float total = sink_weight(p, item.head0 + head, max, scale), mean[8] = {};
#pragma unroll
    for (int peer = 0; peer < kCluster; ++peer) {
      const float share = sums[peer] * exp2f((maxima[peer] - max) * scale);
      const __half2* pairs = reinterpret_cast<const __half2*>(&parts[peer]);
      total += share;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float2 pair = __half22float2(pairs[k]);
        mean[2 * k] += share * pair.x, mean[2 * k + 1] += share * pair.y;
      }
    }
    const float factor = 1.f / total;
    target[i] = {pack(mean[0] * factor, mean[1] * factor), pack(mean[2] * factor, mean[3] * factor),
                 pack(mean[4] * factor, mean[5] * factor), pack(mean[6] * factor, mean[7] * factor)};
  }
}

}  // namespace dspark
