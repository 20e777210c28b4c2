#include "base/error.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/host_faults.hpp"

namespace sluice {
namespace {

// Calls visit(exception) for the error and for each one nested in it, outermost first.
template <typename Visit>
void visit_chain(const std::exception& error, Visit&& visit) {
  visit(error);
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& inner) {
    visit_chain(inner, visit);
  } catch (...) {  // NOLINT(bugprone-empty-catch): it is no std::exception, so it has no words
  }
}

template <typename Holds>
bool any_of_chain(const std::exception& error, Holds&& holds) {
  bool any = false;
  visit_chain(error, [&](const std::exception& e) {
    const auto* ours = dynamic_cast<const Error*>(&e);
    any = any || (ours != nullptr && holds(*ours));
  });
  return any;
}

}  // namespace

Error::Error(const std::string& message) : std::runtime_error(message), time_ns_(unix_time_ns()) {}

std::string error_chain(const std::exception& error) {
  std::string text;
  visit_chain(error, [&](const std::exception& e) {
    if (!text.empty()) text += ": ";
    text += e.what();
  });
  return with_remedy(std::move(text));
}

int exit_code_of(const std::exception& error) {
  int code = 5;
  visit_chain(error, [&](const std::exception& e) {
    if (const auto* ours = dynamic_cast<const Error*>(&e)) code = ours->exit_code();
  });
  return code;
}

bool is_secondary(const std::exception& error) {
  return any_of_chain(error, [](const Error& e) { return e.is_secondary(); });
}

bool recurs(const std::exception& error) {
  return any_of_chain(error, [](const Error& e) { return e.recurs(); });
}

std::int64_t time_ns_of(const std::exception& error) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  visit_chain(error, [&](const std::exception& e) {
    if (const auto* ours = dynamic_cast<const Error*>(&e)) first = std::min(first, ours->time_ns());
  });
  return std::min(first, unix_time_ns());
}

std::int64_t unix_time_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace sluice
