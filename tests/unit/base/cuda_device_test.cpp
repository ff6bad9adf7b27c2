// SPDX-License-Identifier: Apache-2.0
#include "base/cuda_device.hpp"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using kvatlas::cuda_devices;
using testing::HasSubstr;

bool driver_device_exists() { return std::filesystem::exists("/dev/nvidiactl"); }

TEST(CudaDevice, AbsenceHasAReasonAndPresenceHasNone) {
  const auto found = cuda_devices();
  EXPECT_EQ(found.devices.empty(), !found.why_none.empty());
}

TEST(CudaDevice, NamesWhatIsMissingWithoutAGpu) {
  if (driver_device_exists()) GTEST_SKIP() << "this machine has an NVIDIA driver";
  const auto found = cuda_devices();
  EXPECT_TRUE(found.devices.empty());
#if KVATLAS_HAS_CUDA
  EXPECT_THAT(found.why_none,
              testing::AnyOf(HasSubstr("no NVIDIA driver"), HasSubstr("no NVIDIA GPU")));
#else
  EXPECT_THAT(found.why_none, HasSubstr("built without CUDA"));
#endif
}

TEST(CudaDevice, DescribesEachGpu) {
  const auto found = cuda_devices();
  if (found.devices.empty()) GTEST_SKIP() << found.why_none;
  for (const auto& device : found.devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GE(device.major, 7);
    EXPECT_GT(device.total_bytes, std::int64_t{1} << 30);
    EXPECT_LE(device.free_bytes, device.total_bytes);
    EXPECT_GT(device.free_bytes, 0);
  }
}

TEST(CudaDevice, AskingTwiceGivesTheSameGpus) {
  const auto first = cuda_devices();
  const auto second = cuda_devices();
  ASSERT_EQ(first.devices.size(), second.devices.size());
  for (std::size_t i = 0; i < first.devices.size(); ++i)
    EXPECT_EQ(first.devices[i].name, second.devices[i].name);
  EXPECT_EQ(first.why_none, second.why_none);
}

}  // namespace
