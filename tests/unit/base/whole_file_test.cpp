// SPDX-License-Identifier: Apache-2.0
#include "base/whole_file.hpp"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/support/model_bytes.hpp"

namespace kvatlas {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::error_of;
using testing_support::TemporaryFolder;

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class WholeFiles : public testing::Test {
 protected:
  std::ptrdiff_t files_there() const {
    return std::distance(std::filesystem::directory_iterator(folder_), {});
  }
  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(WholeFiles, SeveralAreAllThereOrNone) {
  std::ofstream(folder_ / "a") << "earlier";
  const WholeFile files[] = {{folder_ / "a", "one"}, {folder_ / "no/b", "two"}};
  EXPECT_THAT(error_of([&] { write_whole_files(files, true); }), HasSubstr("No such file"));
  EXPECT_EQ(content_of(folder_ / "a"), "earlier");
  EXPECT_EQ(files_there(), 1) << "no strays";
  std::filesystem::create_directory(folder_ / "no");
  write_whole_files(files, true);
  EXPECT_EQ(content_of(folder_ / "a"), "one");
  EXPECT_EQ(content_of(folder_ / "no/b"), "two");
}

TEST_F(WholeFiles, OutputsAreCheckedBeforeWorkBegins) {
  check_output(folder_ / "new", false);
  EXPECT_THAT(error_of([&] { check_output(folder_ / "no/new", true); }),
              AllOf(HasSubstr("there is no folder"), HasSubstr("to write 'new' into")));
  std::ofstream(folder_ / "a") << "earlier";
  EXPECT_THAT(error_of([&] { check_output(folder_ / "a", false); }), HasSubstr("--force"));
  check_output(folder_ / "a", true);
  EXPECT_EQ(files_there(), 1) << "nothing is made";
}

TEST_F(WholeFiles, OneOfTwoThatWriteAtOnceHasTheName) {
  const std::string content(100000, 'x');
  for (int round = 0; round < 30; ++round) {
    int written = 0;
    const auto path = folder_ / str("both", round);
    const auto try_it = [&] {
      try {
        write_whole(content, path, false);
        ++written;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::usage) << error.what();
      }
    };
    // Another process, for a process has one temporary name.
    const pid_t other = fork();
    if (other == 0) {
      try_it();
      _exit(written);
    }
    try_it();
    int status = 0;
    ASSERT_EQ(waitpid(other, &status, 0), other);
    EXPECT_EQ(written + WEXITSTATUS(status), 1);
    EXPECT_EQ(content_of(path), content);
  }
}

TEST_F(WholeFiles, WhatNeverTakesItsNameLeavesNothing) {
  const auto path = folder_ / "a", temporary = folder_ / "a.tmp";
  std::ofstream(path) << "earlier";
  std::ofstream(temporary) << "left over";
  {
    UnfinishedFile file(path, temporary);
    file.write("new");
    file.finish();
    EXPECT_LE(files_there(), 2) << "its own file and, if it needs one, the temporary name";
    EXPECT_THAT(error_of([&] { file.take_name(false); }), HasSubstr("--force"));
  }
  EXPECT_EQ(content_of(path), "earlier");
  EXPECT_EQ(files_there(), 1);
}

TEST_F(WholeFiles, NothingButAnOutputIsReplaced) {
  const auto refused = [&](const std::filesystem::path& path) {
    std::string before = error_of([&] { check_output(path, true); });
    EXPECT_EQ(error_of([&] { write_whole("new", path, true); }), before);
    return before;
  };
  std::ofstream(folder_ / "p.h5") << "\x89HDF\r\n\x1a\n";
  std::ofstream(folder_ / "m.gguf") << "GGUF....";
  EXPECT_THAT(refused(folder_ / "p.h5"), HasSubstr("p.h5' is a profile, which is not replaced"));
  EXPECT_THAT(refused(folder_ / "m.gguf"), HasSubstr("m.gguf' is a model, which is not replaced"));
  EXPECT_THAT(refused(folder_), HasSubstr("is a folder"));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refused(folder_ / "pipe"), HasSubstr("is no plain file"));
  EXPECT_TRUE(std::filesystem::is_fifo(folder_ / "pipe"));
  // What a link leads to is written, and the link stays.
  std::ofstream(folder_ / "target") << "earlier";
  std::filesystem::create_symlink("target", folder_ / "link");
  write_whole("new", folder_ / "link", true);
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "link"));
  EXPECT_EQ(content_of(folder_ / "target"), "new");
}

TEST_F(WholeFiles, AKilledProcessLeavesNothingWhereFilesNeedNoName) {
  const int nameless = ::open(folder_.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
  if (nameless >= 0) ::close(nameless);
  const pid_t child = fork();
  if (child == 0) {
    UnfinishedFile file(folder_ / "a", folder_ / "a.tmp");
    file.write("half");
    file.finish();
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(files_there(), nameless >= 0 ? 0 : 1);
  UnfinishedFile file(folder_ / "a", folder_ / "a.tmp");
  file.write("whole");
  file.finish();
  file.take_name(true);
  EXPECT_EQ(content_of(folder_ / "a"), "whole");
  EXPECT_EQ(files_there(), 1);
}

}  // namespace
}  // namespace kvatlas
