// A row that one warp reads more than once: lane l has the packs l, l + 32, ... A warp holds a row
// of at most kPacks packs a lane in registers, and all loads of the row are in flight together.
// kPacks = 0 is for larger rows, and for rows that are not whole packs on multiples of 16 bytes:
// the warp reads memory each time.
#pragma once

#include <type_traits>

#include "kernels/cuda/warp.hpp"

namespace sluice::cuda {

// Largest kPacks of kernels that hold one row, and of kernels that hold several rows.
inline constexpr int kMostPacks = 16;
inline constexpr int kMostPacksOfRows = 8;

// Packs of a lane in a row of whole packs; 0 without whole packs.
inline std::int64_t lane_packs(std::int64_t columns, DType dtype, bool aligned) {
  constexpr std::int64_t kLanes = kWarp * 16;  // bytes that 32 lanes load at once
  return aligned ? (columns * size_of(dtype) + kLanes - 1) / kLanes : 0;
}

// Calls f(std::integral_constant<int, kPacks>) with the smallest kPacks of 8 and kMost that holds
// lane_packs packs; with 0 if lane_packs is 0 or above kMost.
template <int kMost, class Fn>
void with_held_packs(std::int64_t lane_packs, Fn f) {
  constexpr int kFew = 8;
  if (lane_packs == 0 || lane_packs > kMost) return f(std::integral_constant<int, 0>{});
  if (lane_packs > kFew) return f(std::integral_constant<int, kMost>{});
  f(std::integral_constant<int, kFew>{});
}

// The lane's k-th pack: the first element, and the elements of the row from there on.
struct PackPlace {
  int lane, k;
  std::int64_t i, n;
};

// f(place) for each pack of the lane in a row of n elements.
template <class T, int kPacks, class Fn>
SLUICE_BODY void for_lane_packs(int lane, std::int64_t n, Fn f) {
  constexpr int kSize = Pack<T>::kSize;
  if constexpr (kPacks == 0) {
    for_packs<T>(n, {lane, kWarp}, [&](std::int64_t i, std::int64_t rest) {
      f(PackPlace{lane, 0, i, rest});
    });
  } else {
    SLUICE_UNROLL
    for (int k = 0; k < kPacks; ++k) {
      const int i = (lane + k * kWarp) * kSize;
      if (i < n) f(PackPlace{lane, k, i, kSize});
    }
  }
}

// A row of a warp. load() reads the row into registers; with kPacks = 0, pack() reads memory.
template <class T, int kPacks>
class WarpRow {
 public:
  // Of n elements.
  SLUICE_BODY void load(const Warp& warp, const T* from, std::int64_t n, bool) {
    warp.each([&](int lane) {
      for_lane_packs<T, kPacks>(
          lane, n, [&](const PackPlace& at) { load_raw(from + at.i, &held_.of(lane).of[at.k]); });
    });
  }
  [[nodiscard]] SLUICE_BODY Pack<T> pack(const PackPlace& at) const {
    return widen(held_.of(at.lane).of[at.k]);
  }
  // Called between two uses of the row. Otherwise nvcc keeps the 16-bit elements of the first use
  // in fp32, in twice as many registers.
  SLUICE_BODY void narrow_again() {
#ifdef __CUDACC__
    SLUICE_UNROLL
    for (int k = 0; k < kPacks; ++k) {
      std::uint32_t words[4];
      memcpy(words, &held_.own.of[k], sizeof words);
      asm volatile("" : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3]));
      memcpy(&held_.own.of[k], words, sizeof words);
    }
#endif
  }
  // Replaces a pack by what a store of it leaves in memory.
  SLUICE_BODY void round(const PackPlace& at, const Pack<T>& pack) {
    for (int j = 0; j < Pack<T>::kSize; ++j) narrow(pack.v[j], &held_.of(at.lane).of[at.k].v[j]);
  }

 private:
  struct Packs {
    RawPack<T> of[std::size_t{kPacks}];
  };
  OfLanes<Packs> held_;
};

template <class T>
class WarpRow<T, 0> {
 public:
  SLUICE_BODY void load(const Warp&, const T* from, std::int64_t, bool aligned) {
    from_ = from;
    aligned_ = aligned;
  }
  [[nodiscard]] SLUICE_BODY Pack<T> pack(const PackPlace& at) const {
    return load_pack(from_ + at.i, at.n, aligned_);
  }
  SLUICE_BODY void narrow_again() {}

 private:
  const T* from_ = nullptr;
  bool aligned_ = false;
};

}  // namespace sluice::cuda
