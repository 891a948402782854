// The warpgroup that gathers queries and KV rows: passes of 16 rows, eight lanes per 128 bytes of a row.
#pragma once
#include "layout.cuh"

namespace dspark {

struct Gather {
  int thread = threadIdx.x - kConsumers, chunk = thread % 8, place = thread / 8;
};

template <int D>
__device__ __forceinline__ void load_query(const Params& p, Shared<D>& s, const Item& item, const Gather& at) {
#pragma unroll
  for (int pass = 0; pass < kHeads / 16; ++pass) {
    const int head = pass * 16 + at.place;
    const bool valid = item.head0 + head < p.heads;
    const bf16* source = p.q + item.row * p.q_row + (valid ? item.head0 + head : 0) * p.q_head + at.chunk * 8;
    const uint32_t target = shared_address(s.q) + swizzled(head, at.chunk);
#pragma unroll
    for (int panel = 0; panel < D / 64; ++panel)
      copy_16_bytes(target + panel * kQueryPanel, source + panel * 64, valid);
  }
  barrier_arrive_on_copies(&s.q_full);
}

// `done` counts the tiles of earlier items. The first query goes first; later ones follow two tiles, which need no
// waiting for the consumers to let go of the query before.
template <int D, int kCluster>
__device__ __forceinline__ void produce(const Params& p, Shared<D>& s, const Item& item, int order, int done) {
  const Gather at;
  constexpr int kPasses = kTile / 16;
  const int* list = p.keys + static_cast<long long>(item.row) * p.list;
  const int query_at = order == 0 ? 0 : min(2, item.steps);
  int index[kPasses];
  auto fetch = [&](int step) {  // entries past a list's length are negative, so this need not wait for the length
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int key = (item.first + step * kCluster) * kTile + pass * 16 + at.place;
      index[pass] = key < p.list ? list[key] : -1;
    }
  };
  fetch(0);
  for (int step = 0; step <= item.steps; ++step) {
    if (step == query_at) {
      if (order > 0) barrier_wait(&s.q_empty, (order - 1) & 1);
      load_query<D>(p, s, item, at);
    }
    if (step == item.steps) break;
    const int turn = done + step, stage = turn % kStages;
    if (turn >= kStages) barrier_wait(&s.empty[stage], (turn / kStages - 1) & 1);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const bool valid = index[pass] >= 0;
      const bf16* source = p.pool + static_cast<long long>(valid ? index[pass] : 0) * D + at.chunk * 8;
      const uint32_t target = shared_address(s.kv[stage]) + swizzled(pass * 16 + at.place, at.chunk);
#pragma unroll
      for (int panel = 0; panel < D / 64; ++panel) copy_16_bytes(target + panel * kPanel, source + panel * 64, valid);
    }
    barrier_arrive_on_copies(&s.full[stage]);
    if (step + 1 < item.steps) fetch(step + 1);
  }
}

}  // namespace dspark
