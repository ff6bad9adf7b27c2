// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.hpp"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <numeric>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/model_bytes.hpp"

namespace kvatlas::model {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_support::error_of;
using testing_support::TemporaryFolder;

constexpr std::size_t kPage = 4096;

std::string open_error(const fs::path& path) {
  return error_of([&] { MappedFile::open(path); });
}

int sum(std::span<const std::byte> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), 0,
                         [](int total, std::byte byte) { return total + static_cast<int>(byte); });
}

TEST(MappedFile, GivesTheBytes) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", "hello");
  MappedFile file = MappedFile::open(path);
  ASSERT_EQ(file.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(file.bytes()[4]), 'o');
  EXPECT_EQ(file.path(), path);
  file.will_need(file.bytes());
  file.release(file.bytes());
  EXPECT_EQ(static_cast<char>(file.bytes()[0]), 'h');
  const MappedFile moved = std::move(file);
  EXPECT_EQ(static_cast<char>(moved.bytes()[0]), 'h');
  moved.require_intact();
}

TEST(MappedFile, NamesWhatIsNoReadableFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(open_error(folder.path() / "absent"), HasSubstr("there is no file"));
  EXPECT_THAT(open_error(folder.path()), HasSubstr("is a folder, expected a file"));
  EXPECT_THAT(open_error(folder.write("empty", "")), HasSubstr("is empty"));
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(open_error(folder.path() / "pipe"), HasSubstr("is not a regular file"));
  fs::create_symlink("b", folder.path() / "a");
  fs::create_symlink("a", folder.path() / "b");
  EXPECT_THAT(open_error(folder.path() / "a"), HasSubstr("leads back to itself"));
}

TEST(MappedFile, NamesAFileWithoutPermission) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  const auto path = folder.write("secret", "text");
  fs::permissions(path, fs::perms::none);
  // Root may read everything; as another user it may not.
  const bool root = geteuid() == 0;
  ASSERT_EQ(root ? seteuid(65534) : 0, 0);
  const std::string error = open_error(path);
  ASSERT_EQ(root ? seteuid(0) : 0, 0);
  EXPECT_THAT(error, HasSubstr("no permission to read"));
}

TEST(MappedFile, AFileThatShrinksIsAnErrorAndNoSignal) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", std::string(16 * kPage, '\x01'));
  const auto other = folder.write("b", std::string(16 * kPage, '\x01'));
  const MappedFile file = MappedFile::open(path);
  const MappedFile untouched = MappedFile::open(other);
  fs::resize_file(path, 3 * kPage);
  EXPECT_EQ(sum(file.bytes()), 3 * static_cast<int>(kPage));  // the rest reads as zeros
  EXPECT_EQ(sum(untouched.bytes()), 16 * static_cast<int>(kPage));
  EXPECT_THAT(error_of([&] { file.require_intact(); }),
              HasSubstr("changed its size while it was read: it had 65536 bytes, now 12288"));
  untouched.require_intact();

  // Grown back to its size, it is still not what was read.
  fs::resize_file(path, 16 * kPage);
  EXPECT_THAT(error_of([&] { file.require_intact(); }), HasSubstr("could not be read"));
}

TEST(MappedFile, AFileThatChangesIsAnError) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", "hello");
  const MappedFile file = MappedFile::open(path);
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(3));
  EXPECT_THAT(error_of([&] { file.require_intact(); }), HasSubstr("was changed"));
}

TEST(MappedFile, ASlotIsUsedAgain) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", std::string(4 * kPage, '\x01'));
  for (int i = 0; i < 100; ++i) {
    fs::resize_file(path, 4 * kPage);
    const MappedFile file = MappedFile::open(path);
    fs::resize_file(path, kPage);
    sum(file.bytes());
    EXPECT_NE(error_of([&] { file.require_intact(); }), "");
  }
  const MappedFile file = MappedFile::open(path);
  file.require_intact();
}

using MappedFileDeathTest = testing::Test;

TEST(MappedFileDeathTest, AForeignBusErrorStillEndsTheProcess) {
  const TemporaryFolder folder;
  const MappedFile installed = MappedFile::open(folder.write("a", "hello"));
  const auto path = folder.write("b", std::string(kPage, '\x01'));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const auto* bytes =
      static_cast<const volatile char*>(mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE, fd, 0));
  fs::resize_file(path, 0);
  // By the signal, or by a sanitizer's handler that was there before ours.
  EXPECT_DEATH(std::exit(bytes[0]), "");
  close(fd);
}

}  // namespace
}  // namespace kvatlas::model
