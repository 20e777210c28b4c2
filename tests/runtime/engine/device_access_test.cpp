#include "runtime/engine/device_access.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.hpp"

namespace sluice {
namespace {

template <class Body>
std::string message_of(const Body& body) {
  try {
    body();
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(DeviceAccess, WithoutAModuleSaysSo) {
  setenv("SLUICE_CUDA_MODULE", "/nowhere/libsluice_cuda.so", 1);
  const at::Device gpu(c10::DeviceType::CUDA, 0);
  const auto missing =
      ::testing::HasSubstr("the CUDA module /nowhere/libsluice_cuda.so is not there");
  EXPECT_THAT(message_of([&] { (void)device_copies({}, gpu); }), missing);
  EXPECT_THAT(message_of([&] { (void)with_dma({}, gpu); }), missing);
  EXPECT_THAT(message_of([] { use_gpu(0); }), missing);
  for (const OptimizerRule& rule : optimizer_rules()) {
    EXPECT_THAT(message_of([&] { (void)device_update(rule, gpu); }), missing);
  }
  unsetenv("SLUICE_CUDA_MODULE");
}

TEST(DeviceAccess, TheHostNeedsNone) {
  const at::Device cpu(c10::DeviceType::CPU);
  EXPECT_TRUE(device_copies({}, cpu)->is_host());
  EXPECT_EQ(with_dma({}, cpu).dma_pages, nullptr);
}

TEST(DeviceAccess, WhatIsGivenIsTaken) {
  TierOptions options;
  const auto copies = make_host_copies();
  options.make_copies = [&] { return copies; };
  options.dma_pages = make_page_source();
  const at::Device gpu(c10::DeviceType::CUDA, 0);
  EXPECT_EQ(device_copies(options, gpu), copies);
  EXPECT_EQ(with_dma(options, gpu).dma_pages, options.dma_pages);
}

}  // namespace
}  // namespace sluice
