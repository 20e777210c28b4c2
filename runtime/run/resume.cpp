#include "runtime/run/resume.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <system_error>

#include "base/error.hpp"
#include "base/log.hpp"
#include "offload/host_pool.hpp"
#include "parallel/comm/text_exchange.hpp"
#include "runtime/checkpoint/format/checkpoint_error.hpp"
#include "runtime/checkpoint/format/step_name.hpp"
#include "runtime/checkpoint/io/checkpoint_catalog.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "runtime/checkpoint/io/read_ahead.hpp"
#include "runtime/run/run_settings.hpp"
#include "runtime/run/state_io.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kPartBytes = std::int64_t{4} << 20;  // equal to a save's part
constexpr std::int64_t kSmallestPart = std::int64_t{64} << 10;

// While a rank reads, all ranks meet at this interval, so neither a collective nor a watchdog of a
// finished rank times out on the slowest rank.
constexpr std::chrono::seconds kBetweenMeetings{1};
constexpr bool kReads = true;

std::filesystem::path whole_path(const std::string& path) {
  std::error_code failed;
  std::filesystem::path whole = std::filesystem::weakly_canonical(path, failed);
  if (!whole.has_filename()) whole = whole.parent_path();  // "dir/"
  return failed ? std::filesystem::path(path) : whole;
}

bool lies_in(const std::string& from, const std::string& dir) {
  const std::filesystem::path inner = whole_path(from);
  const std::filesystem::path outer = whole_path(dir);
  return inner == outer || inner.parent_path() == outer;
}

bool is_folder(const ResumeRequest& request) {
  return request.from != "auto" && request.from != "never";
}

// Memory for restoring states.
class Restoring {
 public:
  // One third holds two parts, this one's and the engine's. The rest is for reading ahead.
  Restoring(const std::optional<std::int64_t>& room, std::int64_t block_bytes)
      : pool_(room.value_or(0)) {
    const std::int64_t full = read_ahead_bytes(std::min(block_bytes, kChecksumBlockBytes));
    const std::int64_t all = room.value_or(full + 2 * kPartBytes);
    const std::int64_t part =
        std::min(kPartBytes, std::max(kSmallestPart, all / 6 / kSmallestPart * kSmallestPart));
    part_ = pool_.allocate("checkpoint_staging", part);
    engines_ = pool_.reserve("checkpoint_staging", part);
    ahead_ = pool_.allocate("checkpoint_ahead", std::clamp<std::int64_t>(all - 2 * part, 0, full));
  }
  [[nodiscard]] ReadMemory memory() const {
    return {{reinterpret_cast<float*>(part_.data()),
             static_cast<std::size_t>(part_.bytes()) / sizeof(float)},
            {ahead_.data(), static_cast<std::size_t>(ahead_.bytes())}};
  }

 private:
  HostPool pool_;  // limited to the room
  HostBlock part_, engines_, ahead_;
};

// Throws ConfigError if the checkpoint cannot be restored to this run.
void check_restorable(const ResumeRequest& request, const ModelSpec& spec,
                      const Checkpoint& checkpoint) {
  const RunState& saved = checkpoint.manifest().run;
  check_same_model(spec, checkpoint);
  check_same_run(request, saved, checkpoint.path());
  if (has_moments(checkpoint)) check_same_optimizer(request, saved, checkpoint.path());
}

// The result of reading one checkpoint that rank 0 found complete. `error`: empty on success.
struct Attempt {
  std::string error;
  bool same_model = true;
  bool damaged = false;  // true: wrong contents; false: the system or the engine failed
  Resumed resumed;
};

Attempt try_reading(const std::string& path, const ResumeRequest& request, std::int64_t last_step,
                    Engine& engine, FileSystem& files, Communicator& comm,
                    const std::function<void()>& alive) {
  Attempt attempt;
  auto met = std::chrono::steady_clock::now();
  try {
    Checkpoint checkpoint = open_checkpoint(files, path, OpenCheck::kManifest);
    attempt.resumed.path = checkpoint.path();
    attempt.resumed.run = checkpoint.manifest().run;
    check_restorable(request, engine.spec(), checkpoint);
    if (attempt.resumed.run->step >= last_step) return attempt;
    engine.frozen_rounding().forget();
    const Restoring restoring(request.room_bytes, checkpoint.manifest().block_bytes);
    read_states(engine, engine.owned_pieces(), checkpoint, restoring.memory(), [&](std::int64_t) {
      alive();
      if (std::chrono::steady_clock::now() - met < kBetweenMeetings) return;
      (void)on_any_rank(comm, kReads);
      met = std::chrono::steady_clock::now();
    });
    attempt.resumed.moments = trained_moments(engine.spec(), checkpoint);
  } catch (const ConfigError& error) {
    attempt.error = error.what();
    attempt.same_model = false;
  } catch (const CheckpointError& error) {
    attempt.error = error_chain(error);
    attempt.damaged = true;
  } catch (const std::exception& error) {
    attempt.error = error_chain(error);
  }
  return attempt;
}

// Logs the checkpoints passed over. Returns the damage of the newest committed one if no complete
// checkpoint remains, else an empty text. An unfinished save is no damage.
std::string note_refusals(FileSystem& files, const std::string& dir, const NewestComplete& newest) {
  std::string damage;
  for (const Refusal& refusal : newest.refused) {
    const std::string path = join_path(dir, refusal.name);
    if (!files.stat(join_path(path, kManifestName))) {
      log_warning("--resume auto: " + path + " was never completed and is not used");
      continue;
    }
    log_warning("--resume auto: " + path +
                " IS NOT USED, going back to the one before: " + refusal.reason);
    if (damage.empty()) damage = path + ": " + refusal.reason;
  }
  return newest.path ? "" : damage;
}

// `recurs`: damage stays, a failure of the system may pass.
class NoneReadable : public IoError {
 public:
  NoneReadable(const std::string& dir, const std::string& problem, bool recurs)
      : IoError("--resume auto: no checkpoint in " + dir + " can be read" + problem +
                    "; repair or remove it, or start anew with --resume never and another "
                    "checkpoint.dir",
                dir),
        recurs_(recurs) {}
  [[nodiscard]] bool recurs() const override { return recurs_; }

 private:
  bool recurs_;
};

// The result of find() on rank 0, equal on every rank. `error`: of an exception; else empty.
struct Found {
  std::string text, error;
};

template <class Find>
Found find_on_rank_0(Communicator& comm, const Find& find) {
  Found found;
  if (comm.rank() == 0) {
    try {
      found.text = find();
    } catch (const std::exception& failure) {
      found.error = error_chain(failure);
    }
  }
  return {exchange_text(comm, found.text).front(), exchange_text(comm, found.error).front()};
}

// The newest checkpoint that rank 0 sees, equal on every rank; nullopt: none was ever complete.
// `all_damaged`: some are refused, and each for damage.
std::optional<std::string> find_newest(const std::string& dir, FileSystem& files,
                                       Communicator& comm, const std::vector<std::string>& refused,
                                       bool all_damaged) {
  const Found found = find_on_rank_0(comm, [&] {
    NewestComplete newest = newest_complete(files, dir, Trust::kManifest, refused);
    std::erase_if(newest.refused, [&](const Refusal& refusal) {  // logged before
      return std::find(refused.begin(), refused.end(), refusal.name) != refused.end();
    });
    const std::string damage = note_refusals(files, dir, newest);
    if (!damage.empty()) throw Error(damage);
    return newest.path.value_or("");
  });
  if (!found.text.empty()) return found.text;
  if (found.error.empty() && refused.empty()) return std::nullopt;
  throw NoneReadable(dir, found.error.empty() ? " (see above)" : ": " + found.error, all_damaged);
}

// The checkpoint directory that `from` names, equal on every rank. Rank 0 checks its files.
std::string find_named(const std::string& from, FileSystem& files, Communicator& comm) {
  const Found found = find_on_rank_0(comm, [&] { return open_checkpoint(files, from).path(); });
  if (found.error.empty()) return found.text;
  throw IoError("--resume " + from + ": " + found.error, from);
}

// What is wrong with the contents of a checkpoint, equal on every rank; empty: they are as they
// were saved. The ranks share the files, and meet while one of them reads. Collective.
std::string find_damage(const std::string& path, FileSystem& files, Communicator& comm,
                        const std::function<void()>& alive) {
  auto reading =
      std::async(std::launch::async, [&] { return verify(files, path, comm.rank(), comm.size()); });
  const auto is_reading = [&] {
    return reading.wait_for(kBetweenMeetings) != std::future_status::ready;
  };
  while (on_any_rank(comm, is_reading())) alive();
  std::string mine;
  try {
    const VerifyReport report = reading.get();
    if (!report.sound()) mine = report.defects.front().what;
  } catch (const std::exception& error) {
    mine = error_chain(error);
  }
  return first_errors(exchange_text(comm, mine));
}

}  // namespace

void check_resume_source(FileSystem& files, const ResumeRequest& request) {
  if (is_folder(request)) (void)open_checkpoint(files, request.from);
}

std::optional<std::string> earlier_checkpoint(FileSystem& files, const ResumeRequest& request) {
  if (request.from == "auto" || request.dir.empty()) return std::nullopt;
  const bool goes_on =
      is_folder(request) && lies_in(checkpoints_in(files, request.from), request.dir);
  if (goes_on) return std::nullopt;
  // Damaged and newer-version checkpoints count too: they may be repaired or read elsewhere.
  const std::vector<CatalogEntry> entries = catalog(files, request.dir);
  const auto taken = std::find_if(entries.begin(), entries.end(),
                                  [](const CatalogEntry& entry) { return entry.has_manifest; });
  return taken == entries.end() ? std::nullopt : std::optional(taken->name);
}

void check_resume(FileSystem& files, const ResumeRequest& request) {
  check_resume_source(files, request);
  const std::optional<std::string> earlier = earlier_checkpoint(files, request);
  if (!earlier) return;
  throw IoError("checkpoint.dir " + request.dir + " holds " + *earlier +
                    " of an earlier run, which this one would replace; go on from it with "
                    "--resume auto, or set checkpoint.dir (or output.dir) to another folder",
                request.dir);
}

std::int64_t newest_step(const std::string& dir, FileSystem& files, Communicator& comm) {
  const Found step = find_on_rank_0(comm, [&] {
    const NewestComplete newest = newest_complete(files, dir, Trust::kManifest);
    if (!newest.path) return std::string("-1");
    return std::to_string(
        open_checkpoint(files, *newest.path, OpenCheck::kManifest).manifest().step);
  });
  if (step.error.empty()) return std::stoll(step.text);
  throw IoError("--resume auto: cannot look for checkpoints in " + dir + ": " + step.error, dir);
}

std::int64_t newest_whole_step(const std::string& dir, FileSystem& files, Communicator& comm,
                               const std::function<void()>& alive) {
  std::vector<std::string> refused;
  for (;;) {
    const Found found = find_on_rank_0(comm, [&] {
      return newest_complete(files, dir, Trust::kManifest, refused).path.value_or("");
    });
    if (!found.error.empty()) throw IoError("--resume auto: " + dir + ": " + found.error, dir);
    if (found.text.empty()) return -1;
    const std::string damage = find_damage(found.text, files, comm, alive);
    if (damage.empty()) {
      const Found step = find_on_rank_0(comm, [&] {
        return std::to_string(
            open_checkpoint(files, found.text, OpenCheck::kManifest).manifest().step);
      });
      return step.error.empty() ? std::stoll(step.text) : -1;
    }
    if (comm.rank() == 0) {
      log_warning("--resume auto: " + found.text + " IS DAMAGED: " + damage);
    }
    refused.push_back(std::filesystem::path(found.text).filename().string());
  }
}

void check_whole(const std::string& from, FileSystem& files, Communicator& comm,
                 const std::function<void()>& alive) {
  const std::string damage = find_damage(find_named(from, files, comm), files, comm, alive);
  if (!damage.empty()) throw IoError("--resume " + from + ": " + damage, from);
}

void check_same_run(const ResumeRequest& request, const RunState& saved, const std::string& path) {
  const std::vector<std::string> changed = model_changes(saved, request.settings);
  if (!changed.empty()) {
    throw ConfigError(path + " is of another model: " + changed.front() +
                      "; say the same, or start anew with --resume never");
  }
  const std::string& theirs = saved.tokenizer.fingerprint;
  if (request.tokenizer.empty() || theirs.empty() || request.tokenizer == theirs) return;
  throw ConfigError("data.tokenizer is " + request.tokenizer + ", and the model in " + path +
                    " was trained with " + theirs +
                    "; give that one, whose files lie in the folder of each checkpoint");
}

void check_same_optimizer(const ResumeRequest& request, const RunState& saved,
                          const std::string& path) {
  const std::string ours = optimizer_of(request.settings);
  const std::string theirs = optimizer_of(saved.more);
  if (ours == theirs) return;
  throw ConfigError("optimizer.type is " + ours + ", and " + path + " holds the moments of " +
                    theirs + "; go on with " + theirs +
                    ", or from the weights alone: sluice checkpoint convert --weights-only");
}

std::optional<ResumePoint> find_resume_point(FileSystem& files, const ResumeRequest& request,
                                             const ModelSpec& spec, std::int64_t last_step) {
  if (request.from == "never") return std::nullopt;
  NewestComplete newest;
  if (is_folder(request)) {
    newest.path = request.from;
  } else {
    newest = newest_complete(files, request.dir, Trust::kManifest);
    if (!newest.path) {
      const std::string damage = note_refusals(files, request.dir, newest);
      if (!damage.empty()) throw NoneReadable(request.dir, ": " + damage, true);
      return std::nullopt;
    }
  }
  const Checkpoint checkpoint = is_folder(request)
                                    ? open_checkpoint(files, *newest.path)
                                    : open_checkpoint(files, *newest.path, OpenCheck::kManifest);
  check_restorable(request, spec, checkpoint);
  ResumePoint point{
      .path = checkpoint.path(), .run = checkpoint.manifest().run, .last_step = last_step};
  // A run that goes on logs what it passes over when it restores its states.
  if (point.finished()) (void)note_refusals(files, request.dir, newest);
  return point;
}

std::string finished_text(const std::string& path, std::int64_t step, std::int64_t last_step) {
  return path + " is of step " + std::to_string(step) + " and train.steps is " +
         std::to_string(last_step) + ": the run is finished, there is nothing to do";
}

Resumed resume_run(const ResumeRequest& request, std::int64_t last_step, Engine& engine,
                   Communicator& comm, FileSystem& files, const std::function<void()>& alive) {
  if (request.from == "never") return {};
  const bool is_auto = request.from == "auto";
  engine.settle();
  std::vector<std::string> refused;    // checkpoints not tried again
  std::vector<std::string> known_bad;  // refused ones that a purge may remove; none after EIO
  for (;;) {
    const bool all_damaged = !refused.empty() && known_bad.size() == refused.size();
    const auto found = is_auto ? find_newest(request.dir, files, comm, refused, all_damaged)
                               : find_named(request.from, files, comm);
    if (!found) return {};
    const std::string& path = *found;
    Attempt attempt = try_reading(path, request, last_step, engine, files, comm, alive);
    while (on_any_rank(comm, !kReads)) alive();
    const std::string problem = first_errors(exchange_text(comm, attempt.error));
    if (problem.empty()) {
      if (attempt.resumed.run && attempt.resumed.run->step < last_step) engine.weights_restored();
      attempt.resumed.known_bad = std::move(known_bad);
      return attempt.resumed;
    }
    if (on_any_rank(comm, !attempt.same_model)) {
      throw ConfigError(attempt.same_model ? problem : attempt.error);
    }
    if (!is_auto) throw IoError("--resume " + request.from + ": " + problem, request.from);
    const bool damaged = on_any_rank(comm, attempt.damaged);
    refused.push_back(std::filesystem::path(path).filename().string());
    if (damaged) known_bad.push_back(refused.back());
    if (comm.rank() == 0) {
      log_warning("--resume auto: " + path + (damaged ? " IS DAMAGED" : " CANNOT BE READ") +
                  ", going back to the one before: " + problem);
    }
  }
}

}  // namespace sluice
