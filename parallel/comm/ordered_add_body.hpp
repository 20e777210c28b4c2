// The code of one thread of ordered_add_cuda; the tests compile it for the host.
#pragma once

#include <cstdint>

#include "kernels/cuda/elements.hpp"
#include "parallel/comm/ordered_add_cuda.hpp"

namespace sluice {

inline constexpr int kAddsOfLaunch = 80;  // 3.8 KiB of the 4 KiB that arguments may take
inline constexpr int kAddThreads = 256;   // of a thread block
inline constexpr std::int64_t kAddElems = std::int64_t{4} * kAddThreads;  // of a chunk

struct AddRow {
  CudaAddSegment segment;
  std::int64_t first;  // of the segment's chunks among those of the launch
};

struct AddTable {
  AddRow rows[kAddsOfLaunch];
  CudaShares shares;
  int count;
  std::int64_t chunks;
};
static_assert(sizeof(AddTable) <= 4096, "CUDA's limit for a kernel's arguments");

// Appends a segment with elements. REQUIRES: table.count < kAddsOfLaunch.
inline void append(AddTable& table, const CudaAddSegment& segment) {
  table.rows[table.count++] = {segment, table.chunks};
  table.chunks += (segment.elems + kAddElems - 1) / kAddElems;
}

// Element i of a segment: the shares in rank order, and the output last.
template <class T>
SLUICE_BODY void add_element(const CudaAddSegment& segment, const CudaShares& shares,
                             std::int64_t i) {
  const T* own = static_cast<const T*>(segment.own);
  const T* staged = static_cast<const T*>(segment.staged);
  float sum = 0.0F;
  for (int r = 0; r < shares.size; ++r) {
    const int slot = r < shares.rank ? r : r - 1;
    const T share = r == shares.rank ? own[i] : staged[slot * shares.staged_stride + i];
    sum = r == 0 ? cuda::widen(share) : sum + cuda::widen(share);
  }
  segment.output[i] = segment.accumulate ? segment.output[i] + sum : sum;
}

// Thread `thread` of the thread block that takes chunk `chunk`.
template <class T>
SLUICE_BODY void add_body(const AddTable& table, std::int64_t chunk, int thread) {
  const AddRow& row = table.rows[cuda::row_of(table.rows, table.count, chunk)];
  const std::int64_t begin = (chunk - row.first) * kAddElems;
  const std::int64_t left = row.segment.elems - begin;
  const std::int64_t end = begin + (left < kAddElems ? left : kAddElems);
  for (std::int64_t i = begin + thread; i < end; i += kAddThreads) {
    add_element<T>(row.segment, table.shares, i);
  }
}

}  // namespace sluice
