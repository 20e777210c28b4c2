#include "runtime/engine/image_choice.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "parallel/comm/text_exchange.hpp"
#include "runtime/engine/tiers/tier_store.hpp"

namespace sluice {
namespace {

// Text for the other ranks: id, steps and commits, problem, one per line.
std::string describe(const FoundImage& found) {
  std::string text = found.id + (found.begun ? "\n1 " : "\n0 ");
  for (const ImageVersion& version : found.versions) {
    text += std::to_string(version.step) + " " + std::to_string(version.commits) + " ";
  }
  return text + "\n" + found.problem;
}

FoundImage read_description(const std::string& text) {
  FoundImage found;
  std::istringstream lines(text);
  std::string steps;
  std::getline(lines, found.id);
  std::getline(lines, steps);
  std::getline(lines, found.problem, '\0');
  std::istringstream numbers(steps);
  numbers >> found.begun;
  for (ImageVersion version; numbers >> version.step >> version.commits;) {
    found.versions.push_back(version);
  }
  return found;
}

bool has(const FoundImage& found, std::int64_t step) {
  return std::any_of(found.versions.begin(), found.versions.end(),
                     [step](const ImageVersion& version) { return version.step == step; });
}

std::string name_of(std::size_t rank) { return "rank " + std::to_string(rank); }

// Why the ranks' findings are not parts of one image; empty: they are. A rank makes its second
// commit only after the first commit of all ranks, so no rank is two commits ahead of another.
std::string find_odd_rank(const std::vector<FoundImage>& by_rank) {
  std::optional<std::size_t> begun, further;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const FoundImage& found = by_rank[rank];
    if (!found.problem.empty()) return name_of(rank) + ": " + found.problem;
    if (found.begun && !begun) begun = rank;
    if (!found.versions.empty() && found.versions.front().commits > 1) further = rank;
  }
  if (begun && further) {
    return name_of(*begun) + ": nothing is committed in its swap files, and " + name_of(*further) +
           " has step " + std::to_string(by_rank[*further].versions.front().step);
  }
  for (std::size_t rank = 0; rank < by_rank.size() && !begun; ++rank) {
    const FoundImage& found = by_rank[rank];
    if (found.id.empty()) return name_of(rank) + ": its swap files are gone";
    if (found.id != by_rank.front().id) {
      return name_of(rank) + ": its swap files are of run '" + found.id +
             "', those of rank 0 of '" + by_rank.front().id + "'";
    }
  }
  return "";
}

// The ranks compare the same findings, so all of them throw.
void check_own_image(const std::vector<FoundImage>& by_rank, const std::string& run_id) {
  for (const FoundImage& found : by_rank) {
    if (found.id.empty() || found.begun || run_of(found.id) == run_of(run_id)) continue;
    throw IoError("--resume auto: the image in offload.nvme_path is of another run: '" + found.id +
                      "', and this run's output.dir is " + run_of(run_id) +
                      "; set output.dir to that run's to go on with it, or give this run another "
                      "offload.nvme_path",
                  "");
  }
}

void open_instead(TierStore& tiers, Communicator& comm) {
  tiers.remove_found_image();
  (void)on_all_ranks(comm, true);  // all have, before one looks for room
  tiers.open_anew();
}

}  // namespace

ImageChoice choose_image(const std::vector<FoundImage>& by_rank, std::int64_t checkpoint) {
  const auto none = [](std::string why) {
    ImageChoice choice;
    choice.why_not = std::move(why);
    return choice;
  };
  const auto empty = [](const FoundImage& found) {
    return found.id.empty() && found.problem.empty() && !found.begun;
  };
  if (std::all_of(by_rank.begin(), by_rank.end(), empty)) return {};
  const std::string odd = find_odd_rank(by_rank);
  if (!odd.empty()) return none(odd);
  if (std::any_of(by_rank.begin(), by_rank.end(), [](const auto& found) { return found.begun; })) {
    ImageChoice choice = none("no step was committed yet");
    choice.had_begun = true;
    return choice;
  }
  for (const ImageVersion& version : by_rank.front().versions) {
    const bool everywhere =
        std::all_of(by_rank.begin(), by_rank.end(),
                    [&](const FoundImage& found) { return has(found, version.step); });
    if (!everywhere) continue;
    ImageChoice choice;
    choice.is_older = version.step < checkpoint;
    if (!choice.is_older) choice.step = version.step;
    if (choice.is_older) {
      choice.why_not = "it is of step " + std::to_string(version.step) +
                       ", older than the checkpoint of step " + std::to_string(checkpoint);
    }
    return choice;
  }
  return none("the ranks have no committed step in common");
}

std::optional<ImageVersion> open_image(TierStore& tiers, Communicator& comm,
                                       const ImageRequest& request, const std::string& run_id) {
  if (!request.look && !request.read_checkpoint) {
    tiers.open_anew();
    return std::nullopt;
  }
  const FoundImage mine = tiers.find_image();
  if (!request.look) {
    const bool is_something = !mine.begun && !(mine.id.empty() && mine.problem.empty());
    if (on_any_rank(comm, is_something)) (void)request.read_checkpoint();
    open_instead(tiers, comm);
    return std::nullopt;
  }
  std::vector<FoundImage> all;
  for (const std::string& text : exchange_text(comm, describe(mine))) {
    all.push_back(read_description(text));
  }
  check_own_image(all, run_id);
  std::int64_t checkpoint = request.checkpoint;
  ImageChoice choice = choose_image(all, checkpoint);
  const auto loses_image = [&] {
    return choice.step < 0 && !choice.why_not.empty() && !choice.had_begun;
  };
  if (loses_image() && checkpoint >= 0 && request.read_checkpoint) {
    checkpoint = request.read_checkpoint();
    choice = choose_image(all, checkpoint);
  }
  if (choice.step >= 0) {
    const auto version = std::find_if(mine.versions.begin(), mine.versions.end(),
                                      [&](const ImageVersion& v) { return v.step == choice.step; });
    check(version != mine.versions.end(), "an image that is chosen is there on every rank");
    tiers.adopt_image(mine, static_cast<std::size_t>(version - mine.versions.begin()));
    return *version;
  }
  const std::string line = "--resume auto: the image in offload.nvme_path ";
  const bool is_lost = loses_image() && !choice.is_older;
  if (is_lost && checkpoint < 0) {
    throw IoError(
        line + "cannot be used (" + choice.why_not +
            "), and no whole checkpoint exists. Repair the cause, or remove the *.swap files in "
            "offload.nvme_path to start from step 0",
        "");
  }
  if (comm.rank() == 0 && !choice.why_not.empty()) {
    if (!is_lost) {
      log_info(line + "is not used: " + choice.why_not);
    } else {
      log_warning(line + "IS NOT USED, and is removed: " + choice.why_not);
    }
  }
  open_instead(tiers, comm);
  return std::nullopt;
}

}  // namespace sluice
