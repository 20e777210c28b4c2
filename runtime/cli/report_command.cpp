// `sluice report`: a page of one run or several, once or as long as they go on.
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/posix/atomic_file.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/launch/stop_signal_fd.hpp"
#include "runtime/report/report_json.hpp"
#include "runtime/report/server/page_server.hpp"

namespace sluice {
namespace {

constexpr std::size_t kMostPrinted = 20;  // damaged lines of a run

using Page = std::shared_ptr<const HttpAnswer>;

std::vector<const RunData*> data_of(const std::vector<RunReader>& runs) {
  std::vector<const RunData*> data;
  data.reserve(runs.size());
  for (const RunReader& run : runs) data.push_back(&run.data());
  return data;
}

void warn_of_damage(const std::vector<RunReader>& runs) {
  for (const RunReader& run : runs) {
    const RunData& data = run.data();
    for (std::size_t i = 0; i < data.damage.size() && i < kMostPrinted; ++i) {
      std::fprintf(stderr, "%s\n", data.damage[i].text().c_str());
    }
    const auto printed = static_cast<std::int64_t>(std::min(data.damage.size(), kMostPrinted));
    if (data.damaged() > printed) {
      std::fprintf(stderr, "%s: %lld more damaged lines\n", data.folder.c_str(),
                   static_cast<long long>(data.damaged() - printed));
    }
  }
}

// Whether the file begins as a page does.
bool is_page(const std::string& path) {
  constexpr std::string_view kBegin = "<!doctype html";
  std::string begin(kBegin.size(), '\0');
  std::ifstream(path, std::ios::binary).read(begin.data(), std::ssize(begin));
  return ::strncasecmp(begin.data(), kBegin.data(), kBegin.size()) == 0;
}

// Refuses to replace a file that is no page: a forgotten name or a glob puts a run's own file after
// -o. An empty file elsewhere holds nothing to lose.
void check_target(const std::string& path, const std::vector<RunReader>& runs) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || is_page(path)) return;
  const fs::path folder = fs::absolute(path).parent_path();
  const bool of_run = std::any_of(runs.begin(), runs.end(), [&](const RunReader& run) {
    return fs::equivalent(folder, run.data().folder, ignored);
  });
  if (!of_run && fs::is_empty(path, ignored)) return;
  throw ConfigError("cannot write the report to " + path +
                    ": the file is there and is no HTML page; give -o the name of a new file, or "
                    "remove this one");
}

// The page and its data as they are now. Made when a browser asks, and kept until a run has grown.
class LivePages {
 public:
  explicit LivePages(std::vector<RunReader>& runs) : runs_(runs) {}

  void refresh() {
    if (!read()) return;
    ++version_;
    page_.reset();
    json_.reset();
  }

  [[nodiscard]] Page at(const std::string& path) {
    if (path == "/" || path == "/index.html") {
      if (!page_) page_ = answer("text/html; charset=utf-8", runs_page(data_of(runs_), true));
      return page_;
    }
    if (path != "/data.json") return nullptr;
    if (!json_) json_ = answer("application/json", runs_json(data_of(runs_)));
    return json_;
  }

 private:
  // A file that cannot be read for a while (a network file system) does not end the server.
  bool read() {
    bool changed = false;
    try {
      for (RunReader& run : runs_) changed = run.refresh() || changed;
      problem_.clear();
    } catch (const IoError& error) {
      if (problem_ != error.what()) std::fprintf(stderr, "%s; the page waits\n", error.what());
      problem_ = error.what();
    }
    return changed;
  }

  [[nodiscard]] Page answer(const char* type, std::string body) const {
    return std::make_shared<const HttpAnswer>(HttpAnswer{
        .type = type,
        .etag = "\"" + std::to_string(::getpid()) + "-" + std::to_string(version_) + "\"",
        .body = std::make_shared<const std::string>(std::move(body))});
  }

  std::vector<RunReader>& runs_;
  int version_ = 0;
  std::string problem_;  // why the last reading failed
  Page page_, json_;
};

int watch(std::vector<RunReader>& runs, int port) {
  StopSignalFd signals;
  PageServer server(port);
  LivePages pages(runs);
  print("http://127.0.0.1:" + std::to_string(server.port()) + "/ follows " +
        (runs.size() == 1 ? "the run" : "the runs") + " (Ctrl-C ends it)\n");
  server.run({.page = [&pages](const std::string& path) { return pages.at(path); },
              .refresh = [&pages] { pages.refresh(); }},
             signals.fd());
  return kInterruptedExitCode;
}

}  // namespace

int run_report(const ReportCommand& command) {
  std::vector<RunReader> runs = open_runs(command.runs);
  warn_of_damage(runs);
  const std::vector<const RunData*> data = data_of(runs);
  if (command.watch) {
    print(runs_text(data));
    return watch(runs, command.port);
  }
  const std::string path =
      command.output.empty() ? data.front()->folder + "/report.html" : command.output;
  const bool piped = is_standard_output(path);
  if (!piped) check_target(path, runs);
  write_output_file(path, runs_page(data, false));
  print_beside(path, runs_text(data) + (piped ? "" : path + "\n"));
  return 0;
}

}  // namespace sluice
