// What only groups of threads can tell: which call of which rank differs.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/parallel/backends.hpp"

namespace sluice {
namespace {

// Both ranks fail; the text of whichever found it out.
std::string difference_of(const std::function<void(Communicator&)>& body) {
  const auto errors = run_ranks(make_local_communicators(2, kPatience), body);
  EXPECT_NE(errors[0], "");
  EXPECT_NE(errors[1], "");
  return errors[0];
}

TEST(LocalCommunicator, NamesTheCallsThatDiffer) {
  const std::string calls = difference_of([](Communicator& communicator) {
    if (communicator.rank() == 0) return communicator.barrier();
    (void)communicator.all_gather_bytes({});
  });
  EXPECT_NE(calls.find("barrier"), std::string::npos) << calls;
  EXPECT_NE(calls.find("all_gather_bytes"), std::string::npos) << calls;

  const std::string sizes = difference_of([](Communicator& communicator) {
    float in[2] = {};
    float out[4] = {};
    communicator.all_gather({{in, out, 1 + communicator.rank(), 2}}, DType::kFloat32).wait();
  });
  EXPECT_NE(sizes.find("sizes of piece 0 differ"), std::string::npos) << sizes;
}

TEST(LocalCommunicator, AWaitingRankDoesTheWorkOfOneThatDoesNot) {
  // One thread alone finishes an operation that all have posted, whoever of them waits.
  auto group = make_local_communicators(3, kPatience);
  std::vector<float> in{1, 2, 3};
  std::vector<float> out(9);
  std::vector<Ticket> tickets;
  for (std::size_t r = 0; r < 3; ++r) {
    tickets.push_back(group[r]->all_gather({{&in[r], &out[3 * r], 1, 1}}, DType::kFloat32));
    EXPECT_EQ(tickets[0].done(), r == 2);
  }
  tickets[1].wait();
  EXPECT_EQ(out, (std::vector<float>{1, 2, 3, 1, 2, 3, 1, 2, 3}));
}

}  // namespace
}  // namespace sluice
