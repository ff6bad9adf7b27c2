// SPDX-License-Identifier: Apache-2.0
#include "base/scratch_file.hpp"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"

namespace kvatlas {
namespace {

using testing::HasSubstr;
using testing_support::error_of;

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string read(const ScratchFile& file, std::int64_t place, std::size_t count) {
  std::string text(count, '?');
  file.read(place, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

TEST(ScratchFile, HoldsWhatIsAppendedAndHasNoName) {
  const testing_support::TemporaryFolder folder;
  ScratchFile file(folder.path() / "p.h5", 1 << 20);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  file.append(bytes("first "));
  file.append(bytes("second"));
  EXPECT_EQ(file.size(), 12);
  EXPECT_EQ(read(file, 0, 12), "first second");
  EXPECT_EQ(read(file, 6, 6), "second");
  file.cut(6);
  file.append(bytes("third"));
  EXPECT_EQ(read(file, 0, 11), "first third");
  EXPECT_THAT(error_of([&] { read(file, 6, 6); }), HasSubstr("ends too early"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ScratchFile, TakesNoMoreThanItMayAndThanIsFree) {
  const testing_support::TemporaryFolder folder;
  ScratchFile small(folder.path() / "p.h5", 10);
  EXPECT_TRUE(small.has_room(10));
  EXPECT_FALSE(small.has_room(11));
  small.append(bytes("1234"));
  EXPECT_FALSE(small.has_room(7));
  const ScratchFile large(folder.path() / "p.h5", std::int64_t{1} << 60);
  EXPECT_FALSE(
      large.has_room(static_cast<std::int64_t>(std::filesystem::space(folder.path()).capacity)));
}

TEST(ScratchFile, SaysWhereItCannotBe) {
  const testing_support::TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { ScratchFile(folder.path() / "absent" / "p.h5", 10); }),
              HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace kvatlas
