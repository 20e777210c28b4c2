#include "runtime/launch/supervision.hpp"

#include <unistd.h>

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kOrphansLimit{2000};
constexpr std::chrono::milliseconds kDrainLimit{1000};
constexpr int kFlushLimitMs = 1000;

}  // namespace

Supervision::Supervision(const SupervisorOptions& options)
    : out_(STDOUT_FILENO), err_(STDERR_FILENO), supervisor_(options, signals_, out_, err_) {}

SuperviseResult Supervision::see_through() {
  SuperviseResult result = supervisor_.run();
  if (result.not_gone.empty()) (void)orphans_.end(kOrphansLimit);
  supervisor_.drain(kDrainLimit, result);
  out_.flush_within(kFlushLimitMs);
  return result;
}

void Supervision::say(const std::string& text) {
  err_.write(text);
  err_.flush_within(kFlushLimitMs);
}

}  // namespace sluice
