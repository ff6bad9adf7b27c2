// SPDX-License-Identifier: Apache-2.0
// Files of a profile's statistics, against means and covariances that were worked out by hand.
#include "export/query_statistics.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analyzer/profile/statistics.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/profile_header.hpp"

namespace kvatlas::exporting {
namespace {

using namespace testing_support;
using nlohmann::json;
using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;
using testing::Pointwise;
namespace name = profile::name;

/// One layer, one head of two channels; the first token of each prompt is left out.
class QueryStatistics : public testing::Test {
 protected:
  QueryStatistics() {
    settings_ = {};
    for (bool* group : {&settings_.lazy, &settings_.js, &settings_.scores, &settings_.kept,
                        &settings_.norms, &settings_.next, &settings_.columns, &settings_.maps})
      *group = false;
    settings_.queries = settings_.covariance = settings_.heads = true;
    settings_.skip_queries = 1;
  }

  /// A prompt of three queries and a prompt of one. The first ones' mean is (2, 0), the other is
  /// (6, 4).
  profile::Reader profile(const std::vector<std::int64_t>& tokens = {4, 2}) const {
    const std::vector<std::vector<float>> means = {{2, 0}, {6, 4}};
    const std::vector<std::vector<float>> products = {{5, 1, 1, 2}, {36, 24, 24, 16}};
    const auto path = folder_.path() / "p.h5";
    profile::Writer writer(
        path, header_of({.head_dim = 2, .name = "two channels"}, settings_, std::ssize(tokens)),
        {.force = true});
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      profile::Sample sample;
      sample.index = static_cast<std::int64_t>(i);
      sample.id = "p" + std::to_string(i);
      sample.tokens.assign(static_cast<std::size_t>(tokens[i]), 7);
      const auto add = [&](const char* statistic, std::vector<std::int64_t> sizes,
                           const std::vector<float>& values) {
        profile::Array array(profile::Type::f32, std::move(sizes));
        std::copy(values.begin(), values.end(), array.values<float>().begin());
        sample.arrays[statistic] = array;
      };
      if (settings_.queries) add(name::kQueryMagnitude, {1, 1, 1}, {i == 0 ? 3.0f : 7.0f});
      if (settings_.queries) add(name::kQueryMean, {1, 1, 2}, means[i]);
      if (settings_.covariance) add(name::kQueryProducts, {1, 1, 2, 2}, products[i]);
      if (settings_.heads) add(name::kHeadReach, {1, 1}, {i == 0 ? reach_ : 0.5f});
      writer.add(sample);
    }
    writer.finish();
    return profile::Reader(path);
  }

  std::map<std::string, std::string> files(const std::string& reader) const {
    std::map<std::string, std::string> out;
    for (const auto& file : export_query_statistics(profile(), reader))
      out[file.path] = file.content;
    return out;
  }

  /// The numbers of a tensor, by the header of the file.
  static std::vector<float> tensor(const std::string& file, const std::string& key,
                                   const std::vector<std::int64_t>& shape) {
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    const json header = json::parse(file.substr(sizeof length, length));
    const json& entry = header.at(key);
    EXPECT_EQ(entry.at("dtype"), "F32");
    EXPECT_EQ(entry.at("shape").get<std::vector<std::int64_t>>(), shape);
    const auto begin = entry.at("data_offsets").at(0).get<std::size_t>(),
               end = entry.at("data_offsets").at(1).get<std::size_t>();
    std::vector<float> out((end - begin) / sizeof(float));
    std::memcpy(out.data(), file.data() + sizeof length + length + begin, end - begin);
    return out;
  }

  profile::CaptureSettings settings_;
  float reach_ = 0.25f;
  TemporaryFolder folder_;
};

TEST_F(QueryStatistics, OfTriAttentionAreMeansOverAllQueries) {
  const auto out = files("triattention");
  const std::string& file = out.at("query_statistics.safetensors");
  // Three queries of the first prompt and one of the other.
  EXPECT_THAT(tensor(file, "query_mean", {1, 1, 2}), ElementsAre(3, 1));
  EXPECT_THAT(tensor(file, "query_magnitude", {1, 1, 1}), ElementsAre(4));
  EXPECT_THAT(out.at("README.txt"),
              HasSubstr("of two channels, 4 queries a head of 2 prompts, without each prompt's "
                        "first 1 tokens"));
  EXPECT_THAT(out.at("write_triattention_stats.py"), HasSubstr("torch"));
}

TEST_F(QueryStatistics, OfExpectedAttentionHaveTheCovarianceOfASample) {
  const auto out = files("expected-attention");
  const std::string& file = out.at("model.safetensors");
  EXPECT_THAT(tensor(file, "query_mean", {1, 1, 2}), ElementsAre(3, 1));
  // Mean products (12.75, 6.75, 6.75, 5.5), less those of the means, by 4 / 3.
  EXPECT_THAT(tensor(file, "query_cov", {1, 1, 2, 2}),
              Pointwise(FloatEq(), std::vector<float>{5, 5, 5, 6}));
  const json config = json::parse(out.at("config.json"));
  EXPECT_EQ(config.at("num_layers"), 1);
  EXPECT_EQ(config.at("num_heads"), 1);
  EXPECT_EQ(config.at("head_dim"), 2);
  EXPECT_EQ(config.at("num_samples"), 2);
  EXPECT_EQ(config.at("sample_seq_len"), 4);
  EXPECT_EQ(config.at("n_sink"), 1);
}

TEST_F(QueryStatistics, OfDuoAttentionAreMeansOverPrompts) {
  const auto out = files("duo-attention");
  EXPECT_EQ(out.at("full_attention_heads.tsv"), "0.375\n");
  EXPECT_EQ(json::parse(out.at("config.json")), (json{{"recent_size", 256}, {"sink_size", 128}}));
  reach_ = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(error_of([&] { export_query_statistics(profile(), "duo-attention"); }),
              HasSubstr("layer 0 has no keys of its own"));
}

TEST_F(QueryStatistics, SayWhichCaptureIsMissing) {
  const auto said = [&](const std::string& reader, const std::vector<std::int64_t>& tokens) {
    return error_of([&] { export_query_statistics(profile(tokens), reader); });
  };
  EXPECT_THAT(said("triattention", {1, 1}), HasSubstr("no prompt of the profile is longer than"));
  EXPECT_THAT(said("expected-attention", {2, 1}), HasSubstr("covariance of one query"));
  settings_.covariance = settings_.heads = false;
  EXPECT_THAT(said("expected-attention", {4, 2}), HasSubstr("--capture queries,covariance"));
  EXPECT_THAT(said("duo-attention", {4, 2}), HasSubstr("--capture heads"));
  EXPECT_FALSE(reads_statistics("kvpress"));
  EXPECT_TRUE(reads_statistics("triattention"));
}

}  // namespace
}  // namespace kvatlas::exporting
