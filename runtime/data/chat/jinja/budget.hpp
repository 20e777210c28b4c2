// Limits of one rendering, so that no template runs for ever. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "runtime/data/chat/jinja/value.hpp"

namespace sluice::jinja {

class Budget {
 public:
  explicit Budget(std::int64_t steps) : left_(steps) {}
  // A step for each operation and for each 32 bytes or elements that it reads or writes.
  void charge(std::int64_t size = 0) {
    left_ -= 1 + size / 32;
    if (left_ < 0) throw RenderError("the template takes too many steps");
  }
  // One level of the interpreter's recursion.
  class Level {
   public:
    explicit Level(Budget& budget) : budget_(budget) {
      if (budget.depth_ >= kDeepest) throw RenderError("the template calls itself too deeply");
      ++budget.depth_;
    }
    ~Level() { --budget_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Budget& budget_;
  };

 private:
  static constexpr int kDeepest = 600;
  std::int64_t left_;
  int depth_ = 0;
};

}  // namespace sluice::jinja
