// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/profile/profile.hpp"
#include "analyzer/profile/statistics.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/unit/profile/samples.hpp"

namespace kvatlas::profile {
namespace {

namespace fs = std::filesystem;
using namespace testing_samples;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;
using testing_support::error_of;

class Merge : public testing::Test {
 protected:
  fs::path path(const std::string& name) const { return folder_.path() / name; }
  std::string merged(const std::vector<std::string>& inputs, const std::string& output) const {
    std::vector<fs::path> paths;
    for (const auto& input : inputs) paths.push_back(path(input));
    merge(paths, path(output), false);
    return file_bytes(path(output));
  }
  void write(const std::string& name, std::int64_t first, std::int64_t last,
             const std::string& prompts = "{}", std::int64_t planned = 6) const {
    Header header = make_header(planned);
    header.prompts = prompts;
    write_range(path(name), header, first, last);
  }

 private:
  testing_support::TemporaryFolder folder_;
};

TEST_F(Merge, ShardsMakeTheWhole) {
  write("whole.h5", 0, 6);
  write("a.h5", 0, 2);
  write("b.h5", 2, 5);
  write("c.h5", 5, 6);
  const std::string whole = file_bytes(path("whole.h5"));
  EXPECT_TRUE(merged({"a.h5", "b.h5", "c.h5"}, "abc.h5") == whole);
  EXPECT_TRUE(merged({"c.h5", "a.h5", "b.h5"}, "cab.h5") == whole);  // by index, not by order
  merged({"a.h5", "b.h5"}, "ab.h5");
  EXPECT_TRUE(merged({"ab.h5", "c.h5"}, "ab_c.h5") == whole);
  EXPECT_TRUE(merged({"whole.h5"}, "itself.h5") == whole);
  EXPECT_TRUE(merged({"whole.h5", "b.h5", "whole.h5"}, "twice.h5") == whole);
  EXPECT_FALSE(Reader(path("ab.h5")).complete());
  EXPECT_TRUE(Reader(path("abc.h5")).complete());
}

TEST_F(Merge, OtherPlansAreRenumbered) {
  write("a.h5", 0, 2, R"({"seed":1})");
  write("b.h5", 1, 4, R"({"seed":2})", 4);
  merged({"a.h5", "b.h5"}, "ab.h5");
  const Reader profile(path("ab.h5"));
  EXPECT_EQ(profile.header().prompts, R"({"merged":[{"seed":1},{"seed":2}]})");
  EXPECT_EQ(profile.header().planned_samples, 10);
  EXPECT_FALSE(profile.complete());
  const std::vector<std::int64_t> expected = {0, 1, 1, 2, 3};
  ASSERT_THAT(profile.samples(), SizeIs(expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Sample sample = make_sample(expected[i]);
    EXPECT_EQ(profile.samples()[i].index, static_cast<std::int64_t>(i));
    EXPECT_EQ(profile.samples()[i].id, sample.id);
    EXPECT_EQ(profile.tokens(i), sample.tokens);
    for (const auto& [name, array] : sample.arrays)
      EXPECT_TRUE(profile.array(i, name).bytes == array.bytes) << name;
  }
  // Merging in steps is merging at once.
  write("c.h5", 0, 1, R"({"seed":3})", 1);
  EXPECT_TRUE(merged({"ab.h5", "c.h5"}, "ab_c.h5") == merged({"a.h5", "b.h5", "c.h5"}, "abc.h5"));
}

TEST_F(Merge, OtherModelsAndSettingsAreRefused) {
  write("a.h5", 0, 1);
  const auto error_with = [&](const auto& change) {
    Header header = make_header(6);
    header.prompts = "{}";
    change(header);
    fs::remove(path("b.h5"));
    write_range(path("b.h5"), header, 1, 2);
    return error_of([&] { merged({"a.h5", "b.h5"}, "ab.h5"); });
  };
  EXPECT_THAT(error_with([](Header& h) { h.model_fingerprint = "ffff"; }),
              AllOf(HasSubstr("a.h5"), HasSubstr("b.h5"), HasSubstr("'ffff'")));
  EXPECT_THAT(error_with([](Header& h) { h.capture = "{}"; }), HasSubstr("capture.rows is 64"));
  EXPECT_FALSE(fs::exists(path("ab.h5")));
  EXPECT_FALSE(fs::exists(path("ab.h5.parts")));
  EXPECT_EQ(error_with([](Header& h) { h.backend = "cuda"; }), "");
  EXPECT_EQ(Reader(path("ab.h5")).header().backend, "cpu, float32; cuda");
}

/// The tokens' texts came later: profiles without them go with profiles that have them.
TEST_F(Merge, TokenTextsAreAddedToOlderProfiles) {
  const auto sample_with_text = [](std::int64_t index) {
    Sample sample = make_sample(index);
    sample.arrays[name::kTextBytes] = filled<std::uint8_t>(Type::u8, {2}, [] { return 'a'; });
    const auto n = static_cast<std::int64_t>(sample.tokens.size());
    sample.arrays[name::kTextEnds] = filled<std::int32_t>(Type::i32, {n}, [] { return 2; });
    return sample;
  };
  Header older = make_header(3);
  older.prompts = "{}";
  Header newer = older;
  for (const auto& text : text_descriptions()) newer.arrays.push_back(text);
  write_range(path("older.h5"), older, 0, 1);
  {
    Writer writer(path("newer.h5"), newer, {});
    writer.add(sample_with_text(1));
    writer.finish();
  }
  for (const auto& inputs : {std::vector<std::string>{"older.h5", "newer.h5"},
                             std::vector<std::string>{"newer.h5", "older.h5"}}) {
    merged(inputs, inputs[0] + "-first");
    const Reader profile(path(inputs[0] + "-first"));
    EXPECT_FALSE(profile.has(0, name::kTextBytes));
    EXPECT_EQ(profile.array(1, name::kTextBytes).shape, std::vector<std::int64_t>{2});
  }
  {
    Writer writer(path("older.h5"), newer, {.resume = true});
    writer.add(sample_with_text(2));
    writer.finish();
  }
  const Reader resumed(path("older.h5"));
  EXPECT_FALSE(resumed.has(0, name::kTextEnds));
  EXPECT_TRUE(resumed.has(1, name::kTextEnds));
}

TEST_F(Merge, DoesNotOverwrite) {
  write("a.h5", 0, 1);
  write("b.h5", 1, 2);
  const std::string before = file_bytes(path("a.h5"));
  const std::vector<fs::path> inputs = {path("a.h5"), path("b.h5")};
  EXPECT_THAT(error_of([&] { merge(inputs, path("a.h5"), false); }), HasSubstr("--force"));
  EXPECT_TRUE(file_bytes(path("a.h5")) == before);
  merge(inputs, path("a.h5"), true);  // onto one of the inputs
  EXPECT_THAT(Reader(path("a.h5")).samples(), SizeIs(2));
  Writer writer(path("c.h5"), make_header(1), {});
  EXPECT_THAT(error_of([&] { merge(inputs, path("c.h5"), true); }),
              HasSubstr("is being written by another process"));
  EXPECT_THAT(error_of([&] { merge({}, path("d.h5"), false); }), HasSubstr("nothing"));
  EXPECT_THAT(error_of([&] { merged({"none.h5"}, "d.h5"); }), HasSubstr("none.h5"));
}

}  // namespace
}  // namespace kvatlas::profile
