// The bodies of the kernels, compiled for the host.
#include <algorithm>
#include <functional>
#include <span>

#include "kernels/cuda/attention_body.hpp"
#include "kernels/cuda/branch_norm_body.hpp"
#include "kernels/cuda/column_body.hpp"
#include "kernels/cuda/embedding_body.hpp"
#include "kernels/cuda/fp8_body.hpp"
#include "kernels/cuda/rope_body.hpp"
#include "tests/kernels/cuda_runs.hpp"

namespace sluice::testing {
namespace {

using cuda::Warp;
using cuda::Worker;

// f(null pointer of the element type).
template <class Fn>
void with_type(DType dtype, Fn f) {
  if (dtype == DType::kFloat32) f(static_cast<float*>(nullptr));
  if (dtype == DType::kBFloat16) f(static_cast<cuda::Bf16*>(nullptr));
  if (dtype == DType::kFloat16) f(static_cast<cuda::Half*>(nullptr));
}

// f(null pointer of the element type, std::true_type for a LayerNorm).
template <class Fn>
void with_norm(const cuda::NormRows& rows, Fn f) {
  with_type(rows.at.dtype, [&](auto* tag) {
    if (rows.centered) {
      f(tag, std::true_type{});
    } else {
      f(tag, std::false_type{});
    }
  });
}

// As with_norm, and the packs that a lane holds, as the launchers choose them: at most kMost.
template <int kMost, class Fn>
void with_held_norm(const cuda::NormRows& rows, std::int64_t lane_packs, Fn f) {
  cuda::with_held_packs<kMost>(lane_packs, [&](auto packs) {
    with_norm(rows, [&](auto* tag, auto centered) { f(tag, centered, packs); });
  });
}

// The test's buffers lie on multiples of 16 bytes.
bool whole_packs(std::int64_t elems, DType dtype) { return elems * size_of(dtype) % 16 == 0; }
bool whole_packs(const LayerNormArgs& a) { return whole_packs(a.hidden, a.dtype); }

// Runs every thread of a row's grid; any number of threads must give the same result.
void on_threads(const std::function<void(const Worker&)>& body) {
  constexpr std::int64_t kThreads = 7;
  for (std::int64_t thread = 0; thread < kThreads; ++thread) body({thread, kThreads});
}

void on_rows(std::int64_t rows, const std::function<void(std::int64_t, const Worker&)>& body) {
  for (std::int64_t row = 0; row < rows; ++row) {
    on_threads([&](const Worker& worker) { body(row, worker); });
  }
}

// Leaves the largest magnitude of each row: body(row, worker, stored) calls stored(pack).
template <class Fn>
void on_measured_rows(std::int64_t rows, std::uint32_t* row_maxima, Fn body) {
  for (std::int64_t row = 0; row < rows; ++row) {
    cuda::Largest<cuda::Bf16> most;
    on_threads([&](const Worker& worker) {
      body(row, worker, [&](const cuda::Pack<cuda::Bf16>& pack) { most.add(pack); });
    });
    row_maxima[row] = most.stored();
  }
}

constexpr std::int64_t kFp8Blocks = 5, kFp8Threads = 9;

template <class Format>
void quantise(const cuda::Fp8Operand& a, std::uint32_t amax) {
  const float scale = fp8::scale_of<Format>(amax);
  *a.inverse = fp8::inverse_scale_of<Format>(amax);
  if (a.turned == nullptr) {
    for (std::int64_t i = 0; i < kFp8Blocks * kFp8Threads; ++i) {
      cuda::fp8_rows_body<Format>(a, scale, {i % kFp8Blocks, kFp8Blocks},
                                  {i / kFp8Blocks, kFp8Threads});
    }
    return;
  }
  cuda::Fp8Tile tile{};
  for (std::int64_t i = 0; i < cuda::Fp8TilePlace::count(a); ++i) {
    const cuda::Fp8TilePlace at(a, i);
    for (int thread = 0; thread < cuda::Fp8Tile::kThreads; ++thread) {
      cuda::fp8_tile_load<Format>(a, scale, at, thread, &tile);
    }
    for (int thread = 0; thread < cuda::Fp8Tile::kThreads; ++thread) {
      cuda::fp8_tile_store(a, at, thread, &tile);
    }
  }
}

}  // namespace

void run_gelu(const cuda::GeluArgs& a) {
  if (a.row_maxima != nullptr) {
    return on_measured_rows(a.rows, a.row_maxima,
                            [&](std::int64_t row, const Worker& worker, auto stored) {
                              cuda::gelu_body<cuda::Bf16>(a, row, worker, true, stored);
                            });
  }
  with_type(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    on_rows(a.rows, [&](std::int64_t row, const Worker& worker) {
      cuda::gelu_body<T>(a, row, worker, a.rows == 1 || whole_packs(a.width, a.dtype));
    });
  });
}

void run_gelu_gradient(const cuda::GeluGradient& a) {
  if (a.row_maxima != nullptr) {
    return on_measured_rows(a.rows, a.row_maxima,
                            [&](std::int64_t row, const Worker& worker, auto stored) {
                              cuda::gelu_gradient_body<cuda::Bf16>(a, row, worker, true, stored);
                            });
  }
  with_type(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const bool aligned = a.rows == 1 || whole_packs(a.width, a.dtype);
    on_rows(a.parts == nullptr ? a.rows : cuda::sum_blocks(a.rows),
            [&](std::int64_t row, const Worker& worker) {
              if (a.parts == nullptr) {
                cuda::gelu_gradient_body<T>(a, row, worker, aligned);
              } else {
                cuda::gelu_gradient_parts_body<T>(a, row, worker, aligned);
              }
            });
  });
}

void run_swiglu(const cuda::SwigluArgs& a) {
  if (a.row_maxima != nullptr) {
    return on_measured_rows(a.rows, a.row_maxima,
                            [&](std::int64_t row, const Worker& worker, auto stored) {
                              cuda::swiglu_body<cuda::Bf16>(a, row, worker, true, stored);
                            });
  }
  with_type(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    on_rows(a.rows, [&](std::int64_t row, const Worker& worker) {
      cuda::swiglu_body<T>(a, row, worker, whole_packs(a.width, a.dtype));
    });
  });
}

void run_swiglu_gradient(const cuda::SwigluGradient& a) {
  if (a.row_maxima != nullptr) {
    return on_measured_rows(a.rows, a.row_maxima,
                            [&](std::int64_t row, const Worker& worker, auto stored) {
                              cuda::swiglu_gradient_body<cuda::Bf16>(a, row, worker, true, stored);
                            });
  }
  with_type(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    on_rows(a.rows, [&](std::int64_t row, const Worker& worker) {
      cuda::swiglu_gradient_body<T>(a, row, worker, whole_packs(a.width, a.dtype));
    });
  });
}

void run_rope(const cuda::RopeTokens& a) {
  with_type(a.at.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const bool aligned =
        whole_packs(a.at.head_dim / 2, a.at.dtype) && whole_packs(a.at.stride, a.at.dtype);
    on_rows(a.at.rows, [&](std::int64_t row, const Worker& worker) {
      cuda::rope_body<T>(a, row, worker, aligned);
    });
  });
}

void run_branch(const cuda::BranchArgs& a) {
  with_type(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    on_rows(a.rows, [&](std::int64_t row, const Worker& worker) {
      cuda::branch_body<T>(a, row, worker, whole_packs(a.columns, a.dtype));
    });
  });
}

void run_norm_forward(const cuda::NormRows& a, void* y) {
  const bool aligned = whole_packs(a.at);
  const std::int64_t packs = cuda::lane_packs(a.at.hidden, a.at.dtype, aligned);
  with_held_norm<cuda::kMostPacks>(a, packs, [&](auto* tag, auto centered, auto held) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for (std::int64_t row = 0; row < a.at.rows; ++row) {
      cuda::norm_forward_body<T, decltype(centered)::value, decltype(held)::value>(a, y, row,
                                                                                   Warp{}, aligned);
    }
  });
}

void run_branch_norm(const cuda::BranchArgs& branch, const cuda::NormRows& a, void* y) {
  const bool aligned = whole_packs(a.at);
  const std::int64_t packs = cuda::branch_lane_packs(branch, aligned);
  with_held_norm<cuda::kMostPacksOfRows>(a, packs, [&](auto* tag, auto centered, auto held) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for (std::int64_t row = 0; row < a.at.rows; ++row) {
      cuda::branch_norm_body<T, decltype(centered)::value, decltype(held)::value>(branch, a, y, row,
                                                                                  Warp{}, aligned);
    }
  });
}

void run_norm_input_gradient(const cuda::NormRows& a, const cuda::NormInputGradient& to) {
  const bool aligned = whole_packs(a.at);
  const std::int64_t packs = cuda::lane_packs(a.at.hidden, a.at.dtype, aligned);
  with_held_norm<cuda::kMostPacksOfRows>(a, packs, [&](auto* tag, auto centered, auto held) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for (std::int64_t row = 0; row < a.at.rows; ++row) {
      cuda::norm_input_body<T, decltype(centered)::value, decltype(held)::value>(a.at, to, row,
                                                                                 Warp{}, aligned);
    }
  });
}

void run_norm_parts(const cuda::NormRows& a, const cuda::NormParts& to) {
  with_norm(a, [&](auto* tag, auto centered) {
    using T = std::remove_pointer_t<decltype(tag)>;
    on_rows(cuda::sum_blocks(a.at.rows), [&](std::int64_t block, const Worker& worker) {
      cuda::norm_parts_body<T, decltype(centered)::value>(a.at, to, block, worker,
                                                          whole_packs(a.at));
    });
  });
}

void run_column_parts(const cuda::ColumnParts& a) {
  with_type(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    on_rows(cuda::sum_blocks(a.rows), [&](std::int64_t block, const Worker& worker) {
      cuda::column_parts_body<T>(a, block, worker, whole_packs(a.columns, a.dtype));
    });
  });
}

void run_join_rows(const cuda::JoinedRows& a) {
  with_type(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    bool aligned = true;
    for (const std::int64_t columns : a.columns) aligned = aligned && whole_packs(columns, a.dtype);
    on_rows(cuda::sum_blocks(a.rows), [&](std::int64_t block, const Worker& worker) {
      cuda::join_rows_body<T>(a, block, worker, aligned);
    });
  });
}

void run_column_totals(const cuda::ColumnTotal* sums, int count) {
  for (int i = 0; i < count; ++i) {
    for (std::int64_t column = 0; column < sums[i].columns; ++column) {
      cuda::column_total_body(sums[i], column);
    }
  }
}

void run_embedding_gradient(const cuda::EmbeddingGradient& a) {
  for (std::int64_t first = 0; first < a.at.tokens; first += cuda::kPlaced) {
    cuda::token_order_body(a.at, first, Warp{}, a.order);
  }
  with_type(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for (std::int64_t first = 0; first < a.at.tokens; first += cuda::kRowPlaces) {
      for (std::int64_t run = 0; run * cuda::kRunColumns < a.hidden; ++run) {
        if (whole_packs(a.hidden, a.dtype)) {
          cuda::embedding_rows_body<T, true>(a, first, run, Warp{});
        } else {
          cuda::embedding_rows_body<T, false>(a, first, run, Warp{});
        }
      }
    }
  });
}

void run_token_lookup(const cuda::TokenLookup& a) {
  with_type(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    on_rows(a.count, [&](std::int64_t t, const Worker& worker) {
      cuda::token_lookup_body<T>(a, t, worker, whole_packs(a.hidden, a.dtype));
    });
  });
}

void run_entropy(const cuda::EntropyArgs& a) {
  with_type(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const cuda::Team team{cuda::entropy_threads(a.vocab)};
    for (std::int64_t row = 0; row < a.rows; ++row) cuda::entropy_body<T>(a, row, team);
  });
}

void run_entropy_parts(const cuda::EntropyArgs& a, cuda::EntropyPart* parts) {
  const cuda::Team team{cuda::entropy_threads(a.vocab)};
  for (std::int64_t row = 0; row < a.rows; ++row) cuda::entropy_part_body(a, row, team, parts);
}

void run_copy_heads(const cuda::HeadCopy& a, bool back) {
  with_type(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for (const cuda::HeadRows& of : std::span(a.of, static_cast<std::size_t>(a.count))) {
      for (std::int64_t i = 0; i < cuda::head_packs<T>(a, of); ++i) {
        cuda::copy_heads_body<T>(a, of, i, back, whole_packs(a.head_dim, a.dtype));
      }
    }
  });
}

void run_attention_scores(const cuda::AttentionScores& a) {
  with_type(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for (std::int64_t row = 0; row < a.chunk.heads * a.queries * a.group; ++row) {
      if (a.grad == nullptr) {
        cuda::score_weights_body<T>(a, row, Warp{});
      } else {
        cuda::score_gradients_body<T>(a, row, Warp{});
      }
    }
  });
}

void run_fp8_quantise(const cuda::Fp8Operands& operands) {
  for (const cuda::Fp8Operand& a :
       std::span(operands.of, static_cast<std::size_t>(operands.count))) {
    std::uint32_t amax = 0;
    std::fill(a.parts, a.parts + cuda::kFp8Parts, 0U);
    for (std::int64_t i = 0; i < kFp8Blocks * kFp8Threads; ++i) {
      amax = cuda::larger(amax, cuda::fp8_parts_body(a, {i % kFp8Blocks, kFp8Blocks},
                                                     {i / kFp8Blocks, kFp8Threads}));
    }
    a.parts[0] = amax;
    if (a.format == Fp8Format::kE4M3) {
      quantise<fp8::E4M3>(a, amax);
    } else {
      quantise<fp8::E5M2>(a, amax);
    }
  }
}

}  // namespace sluice::testing
