#include "base/thread_rank.hpp"

#include <cstdlib>
#include <utility>

namespace sluice {
namespace {

constexpr int kNotSaid = -1;
thread_local int said = kNotSaid;

}  // namespace

int thread_rank() {
  if (said != kNotSaid) return said;
  const char* rank = std::getenv("RANK");
  return rank != nullptr ? std::atoi(rank) : 0;
}

int thread_rank_or(int process_rank) { return said != kNotSaid ? said : process_rank; }

ThreadRank::ThreadRank(int rank) : before_(std::exchange(said, rank)) {}
ThreadRank::~ThreadRank() { said = before_; }

}  // namespace sluice
