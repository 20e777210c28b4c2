#include "runtime/data/corpus/dedupe/band_edges.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "base/error.hpp"
#include "base/posix/io_error.hpp"
#include "runtime/data/corpus/unit_run.hpp"

namespace sluice {
namespace {

constexpr std::size_t kMostLeaders = 64;

struct Leader {
  std::uint64_t document;
  std::vector<std::uint32_t> signature;
};

}  // namespace

SignatureFiles::SignatureFiles(std::string folder, std::string output,
                               std::vector<std::uint64_t> first, std::size_t values)
    : folder_(std::move(folder)),
      output_(std::move(output)),
      first_(std::move(first)),
      values_(values),
      unit_(first_.size()) {}

std::vector<std::uint32_t> SignatureFiles::read(std::uint64_t document) {
  const auto after = std::upper_bound(first_.begin(), first_.end(), document);
  check(after != first_.begin() && after != first_.end(), "a document without a unit");
  const auto unit = static_cast<std::size_t>(after - first_.begin()) - 1;
  const std::string path = unit_file(folder_, output_, unit);
  if (unit != unit_) {
    file_ = open_descriptor(path, O_RDONLY);
    if (!file_) throw_io_error("read", path, errno);
    unit_ = unit;
  }
  std::vector<std::uint32_t> values(values_);
  const std::size_t bytes = values_ * sizeof(std::uint32_t);
  const auto offset = static_cast<off_t>((document - first_[unit]) * bytes);
  if (::pread(file_.get(), values.data(), bytes, offset) != static_cast<ssize_t>(bytes)) {
    throw IoError(path + " is damaged or cannot be read; remove the output folder and start again",
                  path);
  }
  return values;
}

void band_edges(RowSorter& rows, SignatureFiles* signatures, double threshold,
                const std::function<void(std::uint64_t x, std::uint64_t y)>& edge) {
  Row row, group;
  std::vector<Leader> leaders;
  for (bool any = false; rows.next(row); any = true) {
    if (!any || row.a != group.a || row.b != group.b) {
      group = row;
      leaders.clear();
      continue;
    }
    if (signatures == nullptr) {
      edge(group.c, row.c);
      continue;
    }
    if (leaders.empty()) leaders.push_back({group.c, signatures->read(group.c)});
    Leader here{row.c, signatures->read(row.c)};
    const auto near = std::find_if(leaders.begin(), leaders.end(), [&](const Leader& leader) {
      return estimated_similarity(leader.signature, here.signature) >= threshold;
    });
    if (near != leaders.end()) {
      edge(near->document, here.document);
    } else if (leaders.size() < kMostLeaders) {
      leaders.push_back(std::move(here));
    }
  }
}

}  // namespace sluice
