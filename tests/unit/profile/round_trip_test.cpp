// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/profile/profile.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/places.hpp"
#include "tests/unit/profile/samples.hpp"

namespace kvatlas::profile {
namespace {

using namespace testing_samples;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing_support::error_of;

class RoundTrip : public testing::Test {
 protected:
  std::filesystem::path path() const { return folder_.path() / "p.h5"; }

 private:
  testing_support::TemporaryFolder folder_;
};

void expect_equal(const Array& a, const Array& b, const std::string& what) {
  EXPECT_EQ(a.type, b.type) << what;
  EXPECT_EQ(a.shape, b.shape) << what;
  EXPECT_TRUE(a.bytes == b.bytes) << what;
}

TEST_F(RoundTrip, Header) {
  const Header header = make_header(7);
  write_range(path(), header, 0, 2);
  const Reader profile(path());
  const Header& read = profile.header();
  EXPECT_EQ(read.tool_version, header.tool_version);
  EXPECT_EQ(read.model_name, header.model_name);
  EXPECT_EQ(read.architecture, header.architecture);
  EXPECT_EQ(read.model_fingerprint, header.model_fingerprint);
  EXPECT_EQ(read.tokenizer_fingerprint, header.tokenizer_fingerprint);
  EXPECT_EQ(read.n_layers, header.n_layers);
  EXPECT_EQ(read.n_heads, header.n_heads);
  EXPECT_EQ(read.n_kv_heads, header.n_kv_heads);
  EXPECT_EQ(read.head_dim, header.head_dim);
  EXPECT_EQ(read.vocab_size, header.vocab_size);
  EXPECT_EQ(read.context_length, header.context_length);
  EXPECT_EQ(read.window, header.window);
  EXPECT_EQ(read.backend, header.backend);
  EXPECT_EQ(read.capture, header.capture);
  EXPECT_EQ(read.prompts, header.prompts);
  EXPECT_EQ(read.planned_samples, 7);
  EXPECT_FALSE(profile.complete());
  ASSERT_THAT(read.axes, SizeIs(header.axes.size()));
  for (std::size_t i = 0; i < read.axes.size(); ++i) {
    EXPECT_EQ(read.axes[i].axis, header.axes[i].axis);
    EXPECT_EQ(read.axes[i].columns, header.axes[i].columns);
    EXPECT_EQ(read.axes[i].values, header.axes[i].values);
    EXPECT_EQ(read.axes[i].labels, header.axes[i].labels);
  }
  ASSERT_THAT(read.arrays, SizeIs(header.arrays.size()));
  for (std::size_t i = 0; i < read.arrays.size(); ++i) {
    EXPECT_EQ(read.arrays[i].name, header.arrays[i].name);
    EXPECT_EQ(read.arrays[i].axes, header.arrays[i].axes);
    EXPECT_EQ(read.arrays[i].unit, header.arrays[i].unit);
    EXPECT_EQ(read.arrays[i].meaning, header.arrays[i].meaning);
    EXPECT_EQ(read.arrays[i].type, header.arrays[i].type);
    EXPECT_EQ(read.arrays[i].sizes, header.arrays[i].sizes);
    EXPECT_EQ(read.arrays[i].single_axes, header.arrays[i].single_axes);
  }
}

TEST_F(RoundTrip, SamplesAndTheirArrays) {
  constexpr std::int64_t kSamples = 5;
  write_range(path(), make_header(kSamples), 0, kSamples);
  const Reader profile(path());
  EXPECT_TRUE(profile.complete());
  ASSERT_THAT(profile.samples(), SizeIs(kSamples));
  for (std::size_t i = 0; i < kSamples; ++i) {
    const Sample written = make_sample(static_cast<std::int64_t>(i));
    const Sample& read = profile.samples()[i];
    EXPECT_EQ(read.index, written.index);
    EXPECT_EQ(read.id, written.id);
    EXPECT_EQ(read.task, written.task);
    EXPECT_EQ(read.length, written.length);
    EXPECT_EQ(read.depth, written.depth);
    EXPECT_EQ(read.seed, written.seed);
    EXPECT_EQ(read.answers, written.answers);
    EXPECT_TRUE(read.has_scoring);
    EXPECT_EQ(read.group, written.group);
    EXPECT_EQ(read.metric, written.metric);
    EXPECT_EQ(read.all_classes, written.all_classes);
    EXPECT_EQ(read.language, written.language);
    EXPECT_EQ(read.cut_tokens, written.cut_tokens);
    EXPECT_EQ(read.max_new_tokens, written.max_new_tokens);
    EXPECT_EQ(read.n_tokens, static_cast<std::int64_t>(written.tokens.size()));
    EXPECT_EQ(profile.tokens(i), written.tokens);
    for (const Description& array : profile.header().arrays) {
      const bool there = written.arrays.count(array.name) > 0;
      EXPECT_EQ(profile.has(i, array.name), there) << array.name << ' ' << i;
      if (there)
        expect_equal(profile.array(i, array.name), written.arrays.at(array.name), array.name);
    }
  }
}

TEST_F(RoundTrip, StatisticsHaveARowForEachSample) {
  write_range(path(), make_header(4), 0, 4);
  const Reader profile(path());
  EXPECT_THAT(profile.statistic("js/divergence").shape, ElementsAre(4, 4, 3, 3));
  const Array mass = profile.statistic("mass");
  ASSERT_THAT(mass.shape, ElementsAre(4, 2, 3));
  for (std::int64_t i = 0; i < 4; ++i) {
    const Sample written = make_sample(i);
    const auto row = mass.values<float>().subspan(static_cast<std::size_t>(i) * 6, 6);
    const auto expected = written.arrays.at("mass").values<float>();
    EXPECT_TRUE(std::equal(row.begin(), row.end(), expected.begin()));
  }
  // A sample without it is a row of NaN.
  const Array sometimes = profile.statistic("sometimes");
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_EQ(std::isnan(sometimes.values<float>()[i]), i / 3 % 2 == 0) << i;
  EXPECT_TRUE(profile.has("sometimes"));
  EXPECT_FALSE(profile.has("never"));
  EXPECT_TRUE(profile.has("keys"));
  EXPECT_FALSE(profile.has("never_here"));
  EXPECT_FALSE(profile.has("unheard of"));
  EXPECT_THAT(error_of([&] { profile.statistic("never"); }), HasSubstr("'statistics/never'"));
  EXPECT_THAT(error_of([&] { profile.statistic("unheard of"); }), HasSubstr("'unheard of'"));
}

TEST_F(RoundTrip, StatisticsThatASampleLacksAreMarked) {
  {
    Writer writer(path(), make_header(2), {});
    writer.add(make_sample(0));
    Sample bare = make_sample(1);
    for (const char* name : {"mass", "js/divergence", "counts/top", "counts/wide", "flags"})
      bare.arrays.erase(name);
    writer.add(bare);
    writer.finish();
  }
  const Reader profile(path());
  const auto last_of = [&](const char* name) {
    EXPECT_TRUE(profile.has(0, name));
    EXPECT_FALSE(profile.has(1, name)) << name;
    return profile.statistic(name);
  };
  EXPECT_TRUE(std::isnan(last_of("mass").values<float>().back()));
  EXPECT_TRUE(std::isnan(f16_to_float(last_of("js/divergence").values<std::uint16_t>().back())));
  EXPECT_EQ(last_of("counts/top").values<std::int32_t>().back(), -1);
  EXPECT_EQ(last_of("counts/wide").values<std::int64_t>().back(), -1);
  EXPECT_EQ(last_of("flags").values<std::uint8_t>().back(), 255);
}

TEST_F(RoundTrip, PartsOfAnArrayByLeadingIndices) {
  write_range(path(), make_header(3), 0, 3);
  const Reader profile(path());
  const Array whole = profile.array(2, "map/mean/0");
  ASSERT_THAT(whole.shape, ElementsAre(3, 4, 310, 310));
  const auto values = whole.values<std::uint16_t>();
  for (std::int64_t layer = 0; layer < 3; ++layer)
    for (std::int64_t head = 0; head < 4; ++head) {
      const Array map = profile.array(2, "map/mean/0", {layer, head});
      ASSERT_THAT(map.shape, ElementsAre(310, 310));
      const auto begin = static_cast<std::size_t>((layer * 4 + head) * 310 * 310);
      EXPECT_TRUE(std::equal(map.values<std::uint16_t>().begin(), map.values<std::uint16_t>().end(),
                             values.begin() + static_cast<std::ptrdiff_t>(begin)));
    }
  EXPECT_THAT(profile.array(2, "map/mean/0", {1}).shape, ElementsAre(4, 310, 310));
  const Array row = profile.array(2, "map/mean/0", {1, 2, 300});
  EXPECT_EQ(row.values<std::uint16_t>()[309], values[((1 * 4 + 2) * 310 + 300) * 310 + 309]);
  EXPECT_THAT(profile.array(1, "counts/top", {2}).shape, ElementsAre(5));  // of a statistic too
  EXPECT_THAT(error_of([&] { profile.array(2, "map/mean/0", {3}); }), HasSubstr("index 3"));
  EXPECT_THAT(error_of([&] {
                profile.array(2, "map/mean/0", {0, 0, 0, 0, 0});
              }),
              HasSubstr("4 axes"));
}

TEST_F(RoundTrip, BlocksOfAnArray) {
  write_range(path(), make_header(3), 0, 3);
  const Reader profile(path());
  EXPECT_THAT(profile.shape(2, "map/mean/0"), ElementsAre(3, 4, 310, 310));
  const Array whole = profile.array(2, "map/mean/0", {1, 2});
  const auto values = whole.values<std::uint16_t>();
  const auto block = [&](std::vector<std::int64_t> start, std::vector<std::int64_t> extent) {
    return profile.block(2, "map/mean/0", start, extent);
  };
  // One stored tile, the last ones at the edge, and a part across four of them.
  for (const auto& [row, column, rows, columns] : std::vector<std::array<std::int64_t, 4>>{
           {0, 0, 256, 256}, {256, 256, 54, 54}, {250, 200, 20, 110}, {310, 310, 0, 0}}) {
    const Array part = block({1, 2, row, column}, {1, 1, rows, columns});
    ASSERT_THAT(part.shape, ElementsAre(1, 1, rows, columns));
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        ASSERT_EQ(part.values<std::uint16_t>()[r * columns + c],
                  values[(row + r) * 310 + column + c])
            << row + r << ", " << column + c;
  }
  EXPECT_THAT(error_of([&] { block({0, 0, 300, 0}, {1, 1, 11, 1}); }), HasSubstr("[1, 1, 11, 1]"));
  EXPECT_THAT(error_of([&] { block({0, 0, -1, 0}, {1, 1, 1, 1}); }), HasSubstr("asked for"));
  EXPECT_THAT(error_of([&] { block({0, 0, 0}, {1, 1, 1}); }), HasSubstr("asked for"));
  EXPECT_THAT(error_of([&] {
                block({0, 0, INT64_MAX, 0}, {1, 1, INT64_MAX, 1});
              }),
              HasSubstr("asked for"));
  EXPECT_THAT(error_of([&] { profile.shape(1, "mass"); }), HasSubstr("statistic"));
}

std::filesystem::path file_of_version(const std::string& version) {
  return kvatlas::testing_support::source_folder() / "tests/unit/profile/data" /
         ("v" + version + ".h5");
}

TEST_F(RoundTrip, FilesOfPastVersions) {
  for (const std::string version : {"1.0", "1.1", "1.2"}) {
    const Reader profile(file_of_version(version));
    ASSERT_THAT(profile.samples(), SizeIs(3));
    for (std::size_t i = 0; i < 3; ++i) {
      const Sample written = make_sample(static_cast<std::int64_t>(i) + 3);
      const Sample& read = profile.samples()[i];
      EXPECT_EQ(read.id, written.id);
      EXPECT_EQ(read.answers, written.answers);
      EXPECT_EQ(read.has_scoring, version != "1.0");
      EXPECT_EQ(read.group,
                version == "1.0" ? read.task + "/" + std::to_string(read.seed) : written.group);
      EXPECT_EQ(read.metric, version == "1.0" ? "" : written.metric);
      EXPECT_EQ(profile.tokens(i), written.tokens);
      for (const auto& [name, array] : written.arrays)
        expect_equal(profile.array(i, name), array, name);
    }
    EXPECT_EQ(profile.header().capture, make_header(8).capture);
    EXPECT_EQ(profile.header().axes.at(0).labels, make_header(8).axes.at(0).labels);
  }
}

TEST_F(RoundTrip, WhatASampleOfAnOlderFileLacksItLacksInACopy) {
  const std::filesystem::path inputs[] = {file_of_version("1.0"), file_of_version("1.1")};
  merge(inputs, path(), false);
  const Reader profile(path());
  ASSERT_THAT(profile.samples(), SizeIs(3));  // of one plan: the first of each stays
  for (const Sample& sample : profile.samples()) EXPECT_FALSE(sample.has_scoring);
}

TEST_F(RoundTrip, OtherToolsReadIt) {
  if (std::system("h5dump --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "h5dump (Debian's hdf5-tools) is not installed";
  write_range(path(), make_header(3), 0, 3);
  const auto text = path().string() + ".txt";
  ASSERT_EQ(std::system(("h5dump " + path().string() + " > " + text).c_str()), 0);
  EXPECT_THAT(file_bytes(text), HasSubstr("Mass on near keys."));
}

TEST_F(RoundTrip, CodesAreExplainedBesideThem) {
  if (std::system("h5dump --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "h5dump (Debian's hdf5-tools) is not installed";
  Header header = make_header(3);
  for (Description& array : header.arrays)
    if (array.name == "bytes") array.unit = kLog2OfAShare;
  write_range(path(), header, 0, 3);
  const auto text = path().string() + ".txt";
  ASSERT_EQ(std::system(("h5dump -A " + path().string() + " > " + text).c_str()), 0);
  const std::string dumped = file_bytes(text);
  EXPECT_THAT(dumped, HasSubstr("scale_factor"));
  EXPECT_THAT(dumped, HasSubstr("0.125"));
  EXPECT_THAT(dumped, HasSubstr("add_offset"));
  EXPECT_THAT(dumped, HasSubstr("-31.75"));
}

TEST_F(RoundTrip, NoSamples) {
  {
    Writer writer(path(), make_header(2), {});
    writer.finish();
  }
  const Reader profile(path());
  EXPECT_THAT(profile.samples(), IsEmpty());
  EXPECT_FALSE(profile.complete());
  EXPECT_FALSE(profile.has("mass"));
}

TEST_F(RoundTrip, SamplesThatAreNotAsDescribed) {
  Writer writer(path(), make_header(4), {});
  const auto error_with = [&](const auto& change) {
    Sample sample = make_sample(1);
    change(sample);
    return error_of([&] { writer.add(sample); });
  };
  EXPECT_THAT(error_with([](Sample& s) { s.index = 4; }), HasSubstr("sample 4"));
  EXPECT_THAT(error_with([](Sample& s) {
                s.arrays["mass"] = Array(Type::f32, {3, 2});
              }),
              HasSubstr("'mass' is float32 [3, 2]"));
  EXPECT_THAT(error_with([](Sample& s) {
                s.arrays["mass"] = Array(Type::f16, {2, 3});
              }),
              HasSubstr("'mass' is float16"));
  EXPECT_THAT(error_with([](Sample& s) { s.arrays["keys"] = Array(Type::f32, {3}); }),
              HasSubstr("'keys'"));
  EXPECT_THAT(error_with([](Sample& s) { s.arrays["keys"].bytes.pop_back(); }),
              HasSubstr("'keys'"));
  EXPECT_THAT(error_with([](Sample& s) { s.arrays["other"] = Array(Type::f32, {3}); }),
              HasSubstr("'other' is not described"));
  EXPECT_THAT(error_with([](Sample& s) { s.answers = {std::string("a\0b", 3)}; }),
              HasSubstr("zero byte"));
  EXPECT_THAT(writer.finished(), IsEmpty());
}

TEST_F(RoundTrip, HeadersThatCannotBe) {
  const auto error_with = [&](const auto& change) {
    Header header = make_header(4);
    change(header);
    return error_of([&] { Writer(path(), header, {}); });
  };
  EXPECT_THAT(error_with([](Header& h) { h.arrays.push_back(h.arrays[0]); }), HasSubstr("twice"));
  EXPECT_THAT(error_with([](Header& h) { h.arrays[0].name = "a/../b"; }), HasSubstr("a/../b"));
  EXPECT_THAT(error_with([](Header& h) { h.arrays[0].name = "js"; }), HasSubstr("within"));
  EXPECT_THAT(error_with([](Header& h) { h.arrays[8].name = "tokens"; }), HasSubstr("tokens"));
  EXPECT_THAT(error_with([](Header& h) { h.arrays[0].sizes = {1}; }), HasSubstr("1 sizes"));
  EXPECT_THAT(error_with([](Header& h) { h.axes[0].values.pop_back(); }), HasSubstr("3 values"));
  EXPECT_THAT(error_with([](Header& h) { h.window = {1}; }), HasSubstr("window"));
  EXPECT_THAT(error_with([](Header& h) { h.capture = "{"; }), HasSubstr("JSON"));
  EXPECT_THAT(error_with([](Header& h) { h.capture = "[]"; }), HasSubstr("JSON"));
  EXPECT_THAT(error_with([](Header& h) { h.arrays[0].axes.clear(); }), HasSubstr("0 axes"));
  EXPECT_THAT(error_with([](Header& h) { h.arrays[0].sizes[0] = 0; }), HasSubstr("[0, 3]"));
  EXPECT_THAT(error_with([](Header& h) { h.arrays[7].single_axes = 5; }),
              HasSubstr("5 of its 4 axes"));
  EXPECT_THAT(error_with([](Header& h) { h.axes[0].axis = "a/b"; }), HasSubstr("axis 'a/b'"));
  EXPECT_THAT(error_with([](Header& h) { h.axes[0].axis = "nothing"; }), HasSubstr("there twice"));
  EXPECT_THAT(error_with([](Header& h) { h.planned_samples = -1; }), HasSubstr("negative"));
}

}  // namespace
}  // namespace kvatlas::profile
