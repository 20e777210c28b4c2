// An empty folder for each test of a fixture, gone with it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace sluice::testing {

class TestFolder : public ::testing::Test {
 public:
  ~TestFolder() override { std::filesystem::remove_all(root_); }

 protected:
  // `kind` tells fixtures apart that have tests of one name.
  explicit TestFolder(const std::string& kind) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::temp_directory_path() /
            ("sluice-" + kind + "-" + test->name() + "-" + std::to_string(::getpid()));
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (root_ / name).string(); }

  std::filesystem::path root_;
};

}  // namespace sluice::testing
