// SPDX-License-Identifier: Apache-2.0
// Interruptions, crashes, full disks, several processes: what was finished stays, and the file ends
// up as if nothing had happened, byte for byte.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <random>
#include <set>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/profile/profile.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/unit/profile/samples.hpp"

namespace kvatlas::profile {
namespace {

namespace fs = std::filesystem;
using namespace testing_samples;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing_support::error_of;

constexpr WriterOptions kResume = {.resume = true};
constexpr WriterOptions kForce = {.force = true};

/// Runs `work` in a process of its own, which ends with what it returns; 99 where it throws.
pid_t start(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    set_thread_count(1);  // the pool's threads stayed behind
    int status = 99;
    try {
      status = work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(status);
  }
  return child;
}

int status_of(pid_t child) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class Durability : public testing::Test {
 protected:
  fs::path path(const std::string& name = "p.h5") const { return folder_.path() / name; }
  fs::path parts() const { return path("p.h5.parts"); }
  /// What an uninterrupted run writes.
  std::string whole(std::int64_t samples) const {
    write_range(path("whole.h5"), make_header(samples), 0, samples);
    std::string bytes = file_bytes(path("whole.h5"));
    fs::remove(path("whole.h5"));
    return bytes;
  }
  static void add_all(Writer& writer, std::int64_t samples) {
    const auto done = writer.finished();
    for (std::int64_t index = 0; index < samples; ++index)
      if (done.count(index) == 0) writer.add(make_sample(index));
  }
  /// Ends the run in the middle as a kill would, with the samples that were added as parts or in
  /// p.h5, as it happens.
  void killed_after(const std::vector<std::int64_t>& indices, const Header& header,
                    const WriterOptions& options = {}) const {
    const pid_t child = start([&] {
      auto* writer = new Writer(path(), header, options);
      for (const auto index : indices) writer->add(make_sample(index));
      ::raise(SIGKILL);
      return 0;
    });
    ASSERT_EQ(status_of(child), 128 + SIGKILL);
  }

 private:
  testing_support::TemporaryFolder folder_;
};

TEST_F(Durability, SameBytesWhateverTheHistory) {
  const std::string expected = whole(6);
  const std::vector<std::vector<std::vector<std::int64_t>>> histories = {
      {{5, 4, 3, 2, 1, 0}}, {{3}, {0, 5}, {1, 2, 4}}, {{1}, {}, {2}, {}, {5, 3}, {0, 4}}};
  for (const auto& runs : histories) {
    for (const auto& run : runs) {
      Writer writer(path(), make_header(6), kResume);
      for (const auto index : run) writer.add(make_sample(index));
      if (&run == &runs.back()) writer.finish();
    }
    EXPECT_TRUE(file_bytes(path()) == expected);
    EXPECT_FALSE(fs::exists(parts()));
    fs::remove(path());
  }
}

TEST_F(Durability, NothingIsLeftBeside) {
  {
    Writer writer(path(), make_header(3), {});
    EXPECT_TRUE(fs::exists(parts()));
  }
  EXPECT_FALSE(fs::exists(path()));
  EXPECT_FALSE(fs::exists(parts()));
  {
    Writer writer(path(), make_header(3), {});
    writer.add(make_sample(1));
  }  // interrupted: what is done is in the file
  EXPECT_FALSE(fs::exists(parts()));
  const Reader profile(path());
  EXPECT_FALSE(profile.complete());
  ASSERT_THAT(profile.samples(), SizeIs(1));
  EXPECT_EQ(profile.samples()[0].index, 1);
}

/// Every sample that p.h5 and the parts hold, each of which must be as it was written.
std::set<std::int64_t> whole_samples(const fs::path& profile, const fs::path& parts) {
  std::set<std::int64_t> found;
  const auto read = [&](const fs::path& path) {
    const Reader reader(path);
    for (std::size_t i = 0; i < reader.samples().size(); ++i) {
      const Sample expected = make_sample(reader.samples()[i].index);
      EXPECT_EQ(reader.tokens(i), expected.tokens);
      for (const auto& [name, array] : expected.arrays)
        EXPECT_TRUE(reader.array(i, name).bytes == array.bytes) << path << ' ' << name;
      found.insert(expected.index);
    }
  };
  if (fs::exists(profile)) read(profile);
  if (fs::exists(parts))
    for (const auto& entry : fs::directory_iterator(parts))
      if (entry.path().extension() == ".h5") read(entry.path());
  return found;
}

TEST_F(Durability, KilledAtAnyMoment) {
  constexpr std::int64_t kSamples = 40;
  constexpr int kKills = 30;
  const std::string expected = whole(kSamples);
  std::mt19937 random(7);
  int kills = 0, runs = 0;
  while (kills < kKills && ++runs < 300) {
    int told[2];
    ASSERT_EQ(::pipe(told), 0);
    const pid_t child = start([&] {
      Writer writer(path(), make_header(kSamples), kResume);
      const auto done = writer.finished();
      for (std::int64_t index = 0; index < kSamples; ++index) {
        if (done.count(index) > 0) continue;
        writer.add(make_sample(index));
        const auto byte = static_cast<char>(index);
        if (::write(told[1], &byte, 1) != 1) return 1;
      }
      writer.finish();
      return 0;
    });
    ::usleep(std::uniform_int_distribution<useconds_t>(500, 60'000)(random));
    ::kill(child, SIGKILL);
    kills += status_of(child) == 128 + SIGKILL;
    ::close(told[1]);
    std::set<std::int64_t> finished;
    for (char byte = 0; ::read(told[0], &byte, 1) == 1;) finished.insert(byte);
    ::close(told[0]);
    const auto there = whole_samples(path(), parts());
    for (const auto index : finished) EXPECT_EQ(there.count(index), 1) << index;
    if (there.size() == kSamples) {  // go on from the start
      Writer(path(), make_header(kSamples), kResume).finish();
      EXPECT_TRUE(file_bytes(path()) == expected);
      fs::remove(path());
    }
  }
  EXPECT_EQ(kills, kKills);
  Writer writer(path(), make_header(kSamples), kResume);
  EXPECT_THAT(writer.warnings(), IsEmpty());
  add_all(writer, kSamples);
  writer.finish();
  EXPECT_TRUE(file_bytes(path()) == expected);
}

TEST_F(Durability, DiskFull) {
  constexpr std::int64_t kSamples = 40;
  const auto text_at_limit = path("said");
  const pid_t child = start([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {50'000, 50'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0 || !std::freopen(text_at_limit.c_str(), "w", stderr))
      return 1;
    Writer writer(path(), make_header(kSamples), {});
    const auto code_of = [](const auto& run) {
      try {
        run();
      } catch (const Error& error) {
        return std::string(error.what()).find("File too large") != std::string::npos
                   ? error.code()
                   : ErrorCode::internal;
      }
      return ErrorCode::numeric;  // none
    };
    writer.add(make_sample(4));
    if (code_of([&] { writer.add(make_sample(0)); }) != ErrorCode::resource) return 2;
    if (writer.finished() != std::set<std::int64_t>{4}) return 3;
    for (std::int64_t index = 3; index < kSamples; ++index) writer.add(make_sample(index));
    if (code_of([&] { writer.finish(); }) != ErrorCode::resource) return 4;
    if (writer.finished().size() != kSamples - 3) return 5;
    return 0;
  });
  ASSERT_EQ(status_of(child), 0);
  EXPECT_EQ(file_bytes(text_at_limit), "");
  fs::remove(text_at_limit);
  for (const auto& entry : fs::directory_iterator(parts()))
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
  EXPECT_THAT(whole_samples(path(), parts()), SizeIs(kSamples - 3));
  Writer writer(path(), make_header(kSamples), kResume);
  add_all(writer, kSamples);
  writer.finish();
  EXPECT_TRUE(file_bytes(path()) == whole(kSamples));
}

TEST_F(Durability, NoSuchFolder) {
  EXPECT_THAT(error_of([&] { Writer(path("none/p.h5"), make_header(1), {}); }),
              AllOf(HasSubstr("none/p.h5"), HasSubstr("No such file or directory")));
}

/// In a folder that others can write to.
TEST_F(Durability, LinksThatWereLaidAreNotFollowed) {
  const fs::path other = path("other"), part = parts() / "000000.h5.tmp";
  std::ofstream(other) << "somebody's";
  fs::create_directory(parts());
  fs::create_symlink(other, part);
  fs::create_symlink(other, parts() / "assembled.tmp");
  {
    Writer writer(path(), make_header(1), {});
    if (!fs::is_symlink(part)) fs::create_symlink(other, part);
    writer.add(make_sample(0));
    writer.finish();
  }
  EXPECT_EQ(file_bytes(other), "somebody's");
  EXPECT_TRUE(file_bytes(path()) == whole(1));

  fs::create_directory(parts());
  fs::create_symlink(other, parts() / "lock");
  EXPECT_THAT(error_of([&] { Writer(path(), make_header(1), kResume); }), HasSubstr("lock"));
  EXPECT_EQ(file_bytes(other), "somebody's");
}

TEST_F(Durability, SecondWriterIsRefused) {
  const auto refused = [&] {
    return error_of([&] {
             Writer(path(), make_header(3), kResume);
           }).find("is being written by another process") != std::string::npos;
  };
  {
    Writer writer(path(), make_header(3), {});
    EXPECT_TRUE(refused());
    EXPECT_EQ(status_of(start([&] { return refused() ? 0 : 1; })), 0);
    writer.add(make_sample(0));
  }
  EXPECT_FALSE(refused());
}

TEST_F(Durability, ProcessesJoin) {
  constexpr std::int64_t kSamples = 12, kProcesses = 4;
  EXPECT_THAT(error_of([&] { Writer::join(path(), make_header(kSamples)); }),
              HasSubstr("is not being written"));
  Writer writer(path(), make_header(kSamples), {});
  std::vector<pid_t> children;
  for (std::int64_t rank = 1; rank < kProcesses; ++rank)
    children.push_back(start([&, rank] {
      const auto joined = Writer::join(path(), make_header(kSamples));
      for (std::int64_t i = rank; i < kSamples; i += kProcesses) joined->add(make_sample(i));
      joined->finish();
      return 0;
    }));
  for (std::int64_t i = 0; i < kSamples; i += kProcesses) writer.add(make_sample(i));
  for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
  EXPECT_THAT(writer.finished(), SizeIs(kSamples));
  writer.finish();
  EXPECT_TRUE(file_bytes(path()) == whole(kSamples));
}

TEST_F(Durability, ThreadsAddAndReadAtOnce) {
  constexpr std::int64_t kSamples = 12, kThreads = 4;
  write_range(path("other.h5"), make_header(3), 0, 3);
  const Reader read_in_tasks(path("other.h5")), read_here(path("other.h5"));
  Writer writer(path(), make_header(kSamples), {});
  std::vector<std::thread> threads;
  for (std::int64_t thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (std::int64_t i = thread; i < kSamples; i += kThreads) writer.add(make_sample(i));
    });
  // Tasks of the pool that wait for HDF5, and readers that wait for the pool.
  threads.emplace_back([&] {
    for (int round = 0; round < 10; ++round) {
      std::mutex one_reader;
      parallel_for(4, [&](std::int64_t, int) {
        const std::lock_guard lock(one_reader);
        EXPECT_EQ(read_in_tasks.array(1, "map/mean/0").shape[0], 3);
      });
    }
  });
  for (int round = 0; round < 10; ++round) EXPECT_EQ(read_here.array(2, "map/mean/0").shape[0], 3);
  for (auto& thread : threads) thread.join();
  writer.finish();
  EXPECT_TRUE(file_bytes(path()) == whole(kSamples));
}

TEST_F(Durability, WhatIsThereIsNotOverwritten) {
  write_range(path(), make_header(4), 0, 2);
  EXPECT_THAT(error_of([&] { Writer(path(), make_header(4), {}); }),
              AllOf(HasSubstr("2 of 4"), HasSubstr("--resume"), HasSubstr("--force")));
  killed_after({2}, make_header(4), kResume);
  EXPECT_THAT(error_of([&] { Writer(path(), make_header(4), {}); }), HasSubstr("3 of 4"));
  {
    Writer writer(path(), make_header(4), kResume);
    add_all(writer, 4);
    writer.finish();
  }
  const std::string bytes = file_bytes(path());
  EXPECT_THAT(error_of([&] { Writer(path(), make_header(4), {}); }),
              AllOf(HasSubstr("complete"), HasSubstr("--force")));
  {
    Writer writer(path(), make_header(4), kResume);  // nothing is left to do
    EXPECT_THAT(writer.finished(), SizeIs(4));
    writer.finish();
  }
  EXPECT_TRUE(file_bytes(path()) == bytes);
  EXPECT_FALSE(fs::exists(parts()));

  std::ofstream(path("text")) << "no profile";
  EXPECT_THAT(error_of([&] { Writer(path("text"), make_header(4), {}); }),
              AllOf(HasSubstr("not a profile"), HasSubstr("--force")));
  EXPECT_THAT(error_of([&] { Writer(path("text"), make_header(4), kResume); }),
              AllOf(HasSubstr("not a profile"), HasSubstr("--force")));
  EXPECT_EQ(file_bytes(path("text")), "no profile");
}

TEST_F(Durability, OtherSettingsAreNamed) {
  write_range(path(), make_header(4), 0, 2);
  const auto error_with = [&](const auto& change) {
    Header header = make_header(4);
    change(header);
    return error_of([&] { Writer(path(), header, kResume); });
  };
  EXPECT_THAT(error_with([](Header& h) {
                h.capture = R"({"maps":{"block":32,"samples":4},"rows":64,"new":true})";
              }),
              AllOf(HasSubstr("capture.maps.block is 64 there and 32 here"),
                    HasSubstr("capture.new is absent there and true here")));
  EXPECT_THAT(error_with([](Header& h) { h.prompts = R"({"lengths":[512],"seed":1,"tasks":[]})"; }),
              AllOf(HasSubstr("prompts.lengths is [512,1024] there and [512] here"),
                    HasSubstr("prompts.tasks")));
  EXPECT_THAT(error_with([](Header& h) { h.model_fingerprint = "ffff"; }),
              HasSubstr("fingerprint is '0123abcd' there and 'ffff' here"));
  EXPECT_THAT(error_with([](Header& h) { h.tokenizer_fingerprint = "ffff"; }),
              HasSubstr("tokenizer"));
  EXPECT_THAT(error_with([](Header& h) { h.tool_version = "1.0.0"; }), HasSubstr("version"));
  EXPECT_THAT(error_with([](Header& h) { h.planned_samples = 9; }), HasSubstr("'4' there"));
  EXPECT_THAT(error_with([](Header& h) { h.arrays[0].unit = "x"; }), HasSubstr("arrays"));
  EXPECT_EQ(error_with([](Header& h) { h.backend = "cuda"; }), "");
  EXPECT_EQ(Reader(path()).header().backend, make_header(4).backend);  // as it began
}

TEST_F(Durability, ForceKeepsTheOldFileUntilThereIsANewOne) {
  write_range(path(), make_header(2), 0, 2);
  const std::string old = file_bytes(path());
  Header other = make_header(3);
  other.capture = "{}";
  killed_after({}, other, kForce);
  EXPECT_TRUE(file_bytes(path()) == old);
  EXPECT_THAT(error_of([&] { Writer(path(), other, {}); }), HasSubstr("0 of 3"));
  {
    Writer writer(path(), other, kResume);  // of the new run, not of the old file
    EXPECT_THAT(writer.finished(), IsEmpty());
    for (std::int64_t index = 0; index < 3; ++index) writer.add(make_sample(index));
    writer.finish();
  }
  EXPECT_EQ(Reader(path()).header().capture, "{}");
  EXPECT_TRUE(Reader(path()).complete());

  // Parts of the old run are gone at once.
  write_range(path("q.h5"), make_header(2), 0, 1);
  fs::create_directory(path("q.h5.parts"));
  fs::copy(path("q.h5"), path("q.h5.parts/000000.h5"));
  Writer writer(path("q.h5"), make_header(2), kForce);
  EXPECT_THAT(writer.finished(), IsEmpty());
}

TEST_F(Durability, DamagedPartsAreComputedAgain) {
  const std::string expected = whole(5);
  write_range(path("part.h5"), make_header(5), 1, 2);
  const std::string part = file_bytes(path("part.h5"));
  fs::create_directory(parts());
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(parts() / name, std::ios::binary) << bytes;
  };
  std::string damaged = part;
  damaged[part.size() / 2] ^= 1;  // within a map's chunk
  write("000000.h5", part);       // of another sample
  write("000001.h5", part);
  write("000002.h5", part.substr(0, part.size() / 2));
  write("000003.h5", "");
  write("000004.h5", damaged);
  write("000004.h5.tmp", "half");
  write("assembled.tmp", "half");
  Writer writer(path(), make_header(5), kResume);
  EXPECT_THAT(writer.finished(), ElementsAre(1));
  EXPECT_THAT(writer.warnings(),
              ElementsAre(HasSubstr("sample 0"), HasSubstr("sample 2"), HasSubstr("sample 3"),
                          AllOf(HasSubstr("sample 4"), HasSubstr("is damaged"))));
  EXPECT_FALSE(fs::exists(parts() / "000004.h5.tmp"));
  EXPECT_FALSE(fs::exists(parts() / "assembled.tmp"));
  add_all(writer, 5);
  writer.finish();
  EXPECT_TRUE(file_bytes(path()) == expected);
}

TEST_F(Durability, PartsDamagedBeforeTheEndAreNamedAndTheOthersStay) {
  {
    Writer writer(path(), make_header(3), {});
    const auto joined = Writer::join(path(), make_header(3));
    for (const std::int64_t index : {0, 1, 2}) joined->add(make_sample(index));
    fs::resize_file(parts() / "000001.h5", 1000);
    writer.finish();
    EXPECT_THAT(writer.warnings(), ElementsAre(HasSubstr("sample 1 is lost: ")));
  }
  EXPECT_THAT(Reader(path()).samples(), SizeIs(2));
  EXPECT_FALSE(Reader(path()).complete());
  Writer again(path(), make_header(3), kResume);
  add_all(again, 3);
  again.finish();
  EXPECT_TRUE(file_bytes(path()) == whole(3));
}

TEST_F(Durability, ReaderNamesTheUnfinishedRun) {
  write_range(path("part.h5"), make_header(5), 1, 2);
  fs::create_directory(parts());
  fs::rename(path("part.h5"), parts() / "000001.h5");
  EXPECT_THAT(error_of([&] { Reader{path()}; }),
              AllOf(HasSubstr("unfinished"), HasSubstr("p.h5.parts"), HasSubstr("--resume")));
}

TEST_F(Durability, ManyParts) {
  constexpr std::int64_t kSamples = 450;  // more than twice as many as are open at once
  Writer writer(path(), make_header(kSamples), {});
  const auto joined = Writer::join(path(), make_header(kSamples));
  for (std::int64_t index = 3; index < kSamples; ++index) joined->add(make_sample(index, 4));
  writer.finish();
  for (const auto& entry : fs::directory_iterator(parts()))
    EXPECT_EQ(entry.path().filename(), "lock");
  {
    const Reader profile(path());
    ASSERT_THAT(profile.samples(), SizeIs(kSamples - 3));
    for (std::size_t i = 0; i < profile.samples().size(); ++i)
      EXPECT_EQ(profile.samples()[i].index, static_cast<std::int64_t>(i) + 3);
    EXPECT_THAT(profile.statistic("mass").shape, ElementsAre(kSamples - 3, 2, 3));
  }
  for (const std::int64_t index : {2, 0, 1}) joined->add(make_sample(index, 4));
  writer.finish();
  Writer other(path("other.h5"), make_header(kSamples), {});
  for (std::int64_t index = 0; index < kSamples; ++index) other.add(make_sample(index, 4));
  other.finish();
  EXPECT_TRUE(file_bytes(path()) == file_bytes(path("other.h5")));
}

}  // namespace
}  // namespace kvatlas::profile
