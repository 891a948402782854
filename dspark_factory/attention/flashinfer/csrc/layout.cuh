// Parameters, shared memory and work items of the sparse attention kernel.
#pragma once
#include "hopper.cuh"

namespace dspark {

using bf16 = __nv_bfloat16;

constexpr int kHeads = 64;        // rows of the tensor-core tile
constexpr int kTile = 32;         // keys of a tile
constexpr int kStages = 4;        // tiles in shared memory
constexpr int kConsumers = 256;   // two warpgroups
constexpr int kProducers = 128;   // one warpgroup
constexpr int kThreads = kConsumers + kProducers;
constexpr int kPanel = kTile * 128;    // bytes of 64 channels of a tile
constexpr int kQueryPanel = kHeads * 128;
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kSlack = 8.f;     // rescale only when a maximum grows by more than 2^kSlack

struct Params {
  const bf16* q;         // [rows, heads, D]
  const bf16* pool;      // [pool rows, D]
  const int* keys;       // [rows, list] pool rows, the first lens[row] are real
  const int* lens;       // [rows]
  const float* sinks;    // [heads]
  bf16* out;             // [rows, heads, D]
  int rows, heads, list;
  long long q_row, q_head;  // strides of q in elements
  float scale;           // of the scores
};

template <int D>
struct Shared {
  alignas(1024) bf16 q[kHeads * D];
  alignas(1024) bf16 kv[kStages][kTile * D];
  alignas(1024) bf16 weights[kHeads * 2 * kTile];
  float tile_max[2][kHeads];
  float sum[2][kHeads];
  float part_max[kHeads], part_sum[kHeads];
  uint64_t q_full, q_empty, full[kStages], empty[kStages];
};

// One row's 64 heads, and the tiles of its list that this block takes: `first`, `first + kCluster`, ...
struct Item {
  int row, head0, len, first, steps;
};

template <int kCluster>
__device__ __forceinline__ Item item_of(const Params& p, int index, int rank) {
  const int groups = (p.heads + kHeads - 1) / kHeads, row = index / groups;
  const int len = min(p.lens[row], p.list), tiles = (len + kTile - 1) / kTile;
  return {row, (index % groups) * kHeads, len, rank, max(0, (tiles - rank + kCluster - 1) / kCluster)};
}

// Byte offset of 8 channels (16 bytes) in a panel of 64 channels with 128-byte swizzle.
__device__ __forceinline__ uint32_t swizzled(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

}  // namespace dspark
