#include "runtime/checkpoint/io/convert.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/io/page_memory.hpp"
#include "runtime/checkpoint/io/read_ahead.hpp"
#include "runtime/checkpoint/io/tokenizer_files.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kPartBytes = 4 << 20;

// The ranges of the new checkpoint: whole parameters, ordered by kind.
std::vector<StateRange> wanted_ranges(const Checkpoint& from, const ConvertOptions& options) {
  // One stored range of each parameter and kind.
  std::map<std::pair<StateKind, std::string>, const StateRange*> stored;
  for (const FileRecord& file : from.manifest().files) {
    for (const RangeRecord& record : file.ranges) {
      stored.try_emplace({record.range.kind, record.range.param}, &record.range);
    }
  }
  std::vector<StateRange> ranges;
  for (const auto& [what, part] : stored) {
    const auto& [kind, param] = what;
    const bool moment = kind != StateKind::kMaster;
    if (moment && options.weights_only) continue;
    const TensorDType dtype = moment && options.moments ? *options.moments : part->dtype;
    ranges.push_back(whole_range(param, kind, dtype, part->shape));
  }
  return ranges;
}

// The parts of the ranges that contain elements [begin, end) of all ranges laid end to end.
std::vector<StateRange> share_of(const std::vector<StateRange>& ranges, std::int64_t begin,
                                 std::int64_t end) {
  std::vector<StateRange> share;
  std::int64_t first = 0;  // first element of the range
  for (const StateRange& range : ranges) {
    StateRange part = range;
    part.begin = std::max(begin - first, std::int64_t{0});
    part.end = std::min(end - first, range.elems());
    if (part.begin < part.end) share.push_back(std::move(part));
    first += range.elems();
  }
  return share;
}

class Converter {
 public:
  Converter(FileSystem& files, Checkpoint& from)
      : files_(files),
        from_(from),
        part_(kPartBytes),
        ahead_(read_ahead_bytes(from.manifest().block_bytes)) {}

  // Writes file number `rank` and returns its record.
  std::string write(const SaveTarget& target, int rank, const std::vector<StateRange>& ranges) {
    RankWriter writer(files_, target, rank, ranges);
    from_.read_in_parts(ranges, part_.all(), ahead_.all(), [&](const StatePart& part) {
      const auto bytes = static_cast<std::size_t>(part.elems * size_of(ranges[part.wanted].dtype));
      writer.write(part.wanted, part.bytes.first(bytes));
    });
    return writer.seal();
  }

 private:
  FileSystem& files_;
  Checkpoint& from_;
  const PageMemory part_, ahead_;
};

}  // namespace

std::string convert(FileSystem& files, Checkpoint& from, const std::string& dir,
                    const ConvertOptions& options) {
  const std::vector<StateRange> ranges = wanted_ranges(from, options);
  std::int64_t elems = 0;
  for (const StateRange& range : ranges) elems += range.elems();
  if (options.files < 1 || options.files > elems) {
    throw Error(
        format_text("a checkpoint of {} elements cannot be of {} files", elems, options.files));
  }
  const SaveTarget target = begin_save(files, dir, from.manifest().step);
  try {
    Converter converter(files, from);
    std::vector<std::string> records;
    std::int64_t begin = 0;
    for (int i = 0; i < options.files; ++i) {
      const std::int64_t left = options.files - i;
      const std::int64_t end = begin + (elems - begin + left - 1) / left;
      records.push_back(converter.write(target, i, share_of(ranges, begin, end)));
      begin = end;
    }
    RunState run = from.manifest().run;
    read_tokenizer_files(files, from.path(), run.tokenizer);
    commit(files, target, records, run);
  } catch (...) {
    abandon_save(files, target);
    throw;
  }
  return target.path();
}

}  // namespace sluice
