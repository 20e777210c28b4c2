// Several operations as one: what is waited for, and whose error it is.
#include "base/all_of.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace sluice {
namespace {

class Noted final : public TicketState {
 public:
  Noted(std::string& log, std::string name, bool fails = false)
      : log_(log), name_(std::move(name)), fails_(fails) {}
  void wait() override {
    log_ += name_;
    if (fails_) throw std::runtime_error(name_);
  }
  [[nodiscard]] bool done() override { return true; }

 private:
  std::string& log_;
  const std::string name_;
  const bool fails_;
};

Ticket noted(std::string& log, const std::string& name, bool fails = false) {
  return Ticket(std::make_shared<Noted>(log, name, fails));
}

template <class Body>
std::string what_of(const Body& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(AllOf, WaitsForAllAndThrowsTheFirstErrorInTheirOrder) {
  std::string log;
  const Ticket all = all_of({noted(log, "a"), noted(log, "b", true), noted(log, "c", true)});
  EXPECT_EQ(what_of([&] { all.wait(); }), "b");
  EXPECT_EQ(log, "abc");
  all_of({}).wait();
}

TEST(IssueAll, WaitsOutWhatWasIssuedBeforeOneThatCannotBe) {
  std::string log;
  const auto issue = [&](std::size_t i) {
    if (i == 2) throw std::runtime_error("refused");
    return noted(log, std::string(1, static_cast<char>('a' + i)), i == 0);
  };
  EXPECT_EQ(what_of([&] { (void)issue_all(4, issue); }), "refused");
  EXPECT_EQ(log, "ab");
  log.clear();
  const Ticket two = issue_all(2, issue);
  EXPECT_EQ(log, "");
  EXPECT_EQ(what_of([&] { two.wait(); }), "a");
  EXPECT_EQ(log, "ab");
}

}  // namespace
}  // namespace sluice
