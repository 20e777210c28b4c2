#include "base/all_of.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

namespace sluice {
namespace {

// Done when all are; the first error in the order given is the error.
class AllOf final : public TicketState {
 public:
  explicit AllOf(std::vector<Ticket> parts) : parts_(std::move(parts)) {}
  void wait() override {
    std::exception_ptr first;
    for (const Ticket& part : parts_) {
      try {
        part.wait();
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
  }
  bool done() override {
    return std::all_of(parts_.begin(), parts_.end(), [](const Ticket& t) { return t.done(); });
  }

 private:
  std::vector<Ticket> parts_;
};

}  // namespace

void wait_out(std::span<const Ticket> parts) noexcept {
  for (const Ticket& part : parts) {
    try {
      part.wait();
    } catch (...) {  // NOLINT(bugprone-empty-catch): only that it is over counts
    }
  }
}

Ticket all_of(std::vector<Ticket> parts) {
  if (parts.size() == 1) return parts.front();
  return Ticket(std::make_shared<AllOf>(std::move(parts)));
}

}  // namespace sluice
