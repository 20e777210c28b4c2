#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.hpp"
#include "base/index.hpp"
#include "base/log.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/cli/use_json.hpp"
#include "runtime/cli/use_rank.hpp"
#include "runtime/data/eval_data.hpp"
#include "runtime/generate/eval_windows.hpp"
#include "runtime/launch/stop_signal.hpp"

namespace sluice {
namespace {

// The windows that fill rows of the model; of packed rows only `first`, the row, has a meaning.
std::vector<EvalWindow> windows_of(const EvalStream& stream, std::int64_t seq,
                                   std::int64_t stride) {
  if (stream.rows == nullptr) return cut_windows(stream.source->size(), seq, stride);
  std::vector<EvalWindow> windows(static_cast<std::size_t>(stream.rows->samples()));
  for (std::size_t i = 0; i < windows.size(); ++i) {
    windows[i].first = static_cast<std::int64_t>(i);
  }
  return windows;
}

// Windows of one stream that a micro-batch holds; batches never hold windows of two.
struct Batch {
  std::size_t stream = 0;
  std::vector<EvalWindow> windows;
};

std::vector<Batch> make_batches(const std::vector<EvalStream>& streams, std::int64_t seq,
                                std::int64_t stride, std::int64_t rows) {
  std::vector<Batch> batches;
  for (std::size_t s = 0; s < streams.size(); ++s) {
    const auto fresh = static_cast<std::ptrdiff_t>(batches.size());
    for (const EvalWindow& window : windows_of(streams[s], seq, stride)) {
      const bool full = static_cast<std::ptrdiff_t>(batches.size()) == fresh ||
                        static_cast<std::int64_t>(batches.back().windows.size()) == rows;
      if (full) batches.push_back({s, {}});
      batches.back().windows.push_back(window);
    }
  }
  return batches;
}

// Rows that no stream has windows for would be computed and not counted.
void fit_micro_batch(RunConfig& run, const std::vector<EvalStream>& streams, std::int64_t stride) {
  std::size_t most = 1;
  for (const EvalStream& stream : streams) {
    most = std::max(most, windows_of(stream, run.model.seq, stride).size());
  }
  run.train.micro_batch = std::min(run.train.micro_batch, static_cast<std::int64_t>(most));
}

bool is_finite(double value) { return std::isfinite(value); }

class Evaluation {
 public:
  Evaluation(const std::vector<EvalStream>& streams, const RunConfig& run, std::int64_t stride)
      : streams_(streams),
        seq_(run.model.seq),
        vocab_(run.model.vocab),
        batches_(make_batches(streams, seq_, stride, run.train.micro_batch)) {}

  // The sum of the losses of each stream; empty if rank 0 was asked to stop. Sums have one order
  // for every division over ranks. Ends, on all ranks, behind a sum that is not finite.
  [[nodiscard]] std::vector<double> run(Engine& engine, UseRank& use) const {
    const std::int64_t at_once = std::int64_t{8} * use.comm().size();  // between signs of life
    std::vector<double> sums(streams_.size(), 0.0);
    const auto count = static_cast<std::int64_t>(batches_.size());
    for (std::int64_t first = 0; first < count; first += at_once) {
      const RowSource rows = [&](std::int64_t i, std::int64_t /*first_row*/, std::int64_t wanted,
                                 SampleRows& out) { fill(batch(first + i), wanted, out); };
      const std::vector<double> losses = engine.losses(rows, std::min(at_once, count - first));
      for (std::size_t i = 0; i < losses.size(); ++i) {
        sums[batch(first + static_cast<std::int64_t>(i)).stream] += losses[i];
      }
      use.watchdog().pulse();
      if (!std::all_of(sums.begin(), sums.end(), is_finite)) return sums;
      const double asked = stop_requested() ? 1.0 : 0.0;
      if (use.comm().all_gather_values({&asked, 1}).front() > 0) return {};
    }
    return sums;
  }

 private:
  [[nodiscard]] const Batch& batch(std::int64_t i) const { return nth(batches_, i); }

  void fill(const Batch& batch, std::int64_t rows, SampleRows& out) const {
    out.tokens.clear();
    out.targets.clear();
    out.cu_seqlens.clear();
    const EvalStream& stream = streams_[batch.stream];
    for (const EvalWindow& window : batch.windows) {
      if (stream.rows == nullptr) {
        std::vector<std::int32_t>* ends =
            stream.document_mask ? &out.cu_seqlens.emplace_back() : nullptr;
        append_window(stream.name, *stream.source, window, seq_, vocab_, out.tokens, out.targets,
                      ends);
        continue;
      }
      out.cu_seqlens.push_back(append_packed_row(stream.name, *stream.rows, window.first, seq_,
                                                 vocab_, out.tokens, out.targets));
    }
    if (!out.cu_seqlens.empty()) {
      out.cu_seqlens.resize(static_cast<std::size_t>(rows), {0, static_cast<std::int32_t>(seq_)});
    }
    out.tokens.resize(static_cast<std::size_t>(rows * seq_), 0);
    out.targets.resize(out.tokens.size(), kIgnoreTarget);
  }

  const std::vector<EvalStream>& streams_;
  const std::int64_t seq_;
  const std::int64_t vocab_;
  const std::vector<Batch> batches_;
};

void print_row(const EvalRecord::Row& row, int width) {
  std::printf("%-*s %12lld %10.4f %12.2f\n", width, row.name.c_str(),
              static_cast<long long>(row.tokens), row.loss, std::exp(row.loss));
}

void print_table(const EvalRecord& record) {
  std::size_t width = 8;
  for (const EvalRecord::Row& row : record.files) width = std::max(width, row.name.size());
  const int columns = static_cast<int>(width);
  std::printf("%-*s %12s %10s %12s\n", columns, "", "tokens", "loss", "perplexity");
  for (const EvalRecord::Row& row : record.files) print_row(row, columns);
  if (record.files.size() > 1) print_row(record.all, columns);
}

// Throws TrainingError if a loss is not finite.
EvalRecord make_record(const std::vector<EvalStream>& streams, const std::vector<double>& sums) {
  const auto damaged = std::find_if_not(sums.begin(), sums.end(), is_finite);
  if (damaged != sums.end()) {
    throw TrainingError(streams[static_cast<std::size_t>(damaged - sums.begin())].name +
                        ": the model's loss is not finite; its weights are damaged, or too large "
                        "for train.dtype");
  }
  EvalRecord record;
  record.all.name = "all";
  double sum = 0;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const std::int64_t tokens = streams[i].counted();
    record.files.push_back({streams[i].name, tokens, sums[i] / static_cast<double>(tokens)});
    record.all.tokens += tokens;
    sum += sums[i];
  }
  record.all.loss = sum / static_cast<double>(record.all.tokens);
  return record;
}

std::int64_t stride_of(const EvalCommand& command, const RunConfig& run) {
  const std::int64_t seq = run.model.seq;
  const std::int64_t stride = command.stride == 0 ? seq : command.stride;
  if (command.stride != 0 && command.text.empty() && !run.data.sft.empty()) {
    throw ConfigError("--stride: rows of conversations have no windows; leave it out");
  }
  if (stride >= 1 && stride <= seq) return stride;
  throw ConfigError("--stride " + std::to_string(command.stride) +
                    ": windows begin every 1 to model.seq = " + std::to_string(seq) + " tokens");
}

WeightsRequest request_of(const EvalCommand& command, int world) {
  return {.config = command.config,
          .checkpoint = command.checkpoint,
          .overrides = command.overrides,
          .world = world};
}

int run_rank(const EvalCommand& command, const RankEnvironment& rank) {
  UsedWeights weights = use_weights(request_of(command, rank.world_size));
  const RunConfig& run = weights.config.run;
  const std::int64_t stride = stride_of(command, run);
  if (!command.text.empty()) check_tokenizer(weights);
  const std::vector<EvalStream> streams =
      open_eval_streams(run.data, command.text,
                        command.test ? EvalShare::kTest : EvalShare::kValidation, run.model.seq);
  fit_micro_batch(weights.config.run, streams, stride);
  UseRank use(weights, rank);
  if (use.is_rank_0() && !command.text.empty() && !run.data.sft.empty()) {
    log_warning(
        "the run was trained on conversations: --text counts all tokens of a text, without the "
        "chat template; leave it out to evaluate on the run's conversations");
  }
  const std::unique_ptr<Engine> engine = use.make_engine(use.options(EnginePurpose::kEvaluate));
  const std::vector<double> sums = Evaluation(streams, run, stride).run(*engine, use);
  if (sums.empty()) return kInterruptedExitCode;
  if (!use.is_rank_0()) return 0;
  EvalRecord record = make_record(streams, sums);
  record.seq = run.model.seq;
  record.stride = stride;
  record.checkpoint = weights.path;
  record.step = weights.step;
  if (command.json) {
    std::printf("%s\n", eval_json(record).c_str());
  } else {
    print_table(record);
  }
  std::fflush(stdout);
  return 0;
}

}  // namespace

int run_eval(const EvalCommand& command) {
  if (!starts_ranks(command.nproc)) return run_rank(command, own_rank());
  const UsedWeights weights = use_weights(request_of(command, command.nproc));
  (void)stride_of(command, weights.config.run);
  return launch_users(command.nproc, command.argv, weights.config.run.launch.threads);
}

}  // namespace sluice
