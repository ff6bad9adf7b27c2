// SPDX-License-Identifier: Apache-2.0
#include "export/query_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "analyzer/profile/statistics.hpp"
#include "base/embedded_file.hpp"
#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/text_count.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {

KVATLAS_EMBEDDED_FILE(triattention_script, "write_triattention_stats.py")

namespace {

using nlohmann::json;
namespace name = profile::name;

/// The first tokens of each prompt that the profile left out.
std::int64_t skipped(const profile::Reader& profile) {
  const json capture = json::parse(profile.header().capture, nullptr, false);
  const json found = capture.is_object() ? capture.value("skip_queries", json()) : json();
  if (!found.is_number_integer())
    fail(ErrorCode::usage,
         "the profile has no statistics of queries: 'kvatlas profile --capture queries' takes "
         "them, and 'queries,covariance' what expected-attention needs");
  return found.get<std::int64_t>();
}

/// Of each sample, how many queries its statistics are the mean of.
std::vector<double> queries_of(const profile::Reader& profile) {
  const std::int64_t skip = skipped(profile);
  std::vector<double> counts;
  for (const auto& sample : profile.samples())
    counts.push_back(static_cast<double>(std::max<std::int64_t>(0, sample.n_tokens - skip)));
  if (std::all_of(counts.begin(), counts.end(), [](double count) { return count == 0; }))
    fail(ErrorCode::usage, "no prompt of the profile is longer than the ", skip,
         " first tokens that its statistics of queries leave out");
  return counts;
}

/// The mean over all queries of all samples.
Tensor mean_over_queries(const profile::Reader& profile, const char* statistic) {
  if (!profile.has(statistic))
    fail(ErrorCode::usage, "the profile lacks ", statistic,
         ": take it with 'kvatlas profile --capture ",
         statistic == std::string_view(name::kQueryProducts) ? "queries,covariance" : "queries",
         "'");
  const auto counts = queries_of(profile);
  const profile::Array all = profile.statistic(statistic);
  Tensor mean;
  mean.shape.assign(all.shape.begin() + 1, all.shape.end());
  const auto values = all.values<float>();
  const std::size_t size = values.size() / counts.size();
  mean.values.assign(size, 0);
  double total = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    total += counts[i];
    for (std::size_t j = 0; j < size; ++j)
      mean.values[j] += counts[i] * static_cast<double>(values[i * size + j]);
  }
  for (double& value : mean.values) {
    value /= total;
    if (!std::isfinite(value))
      fail(ErrorCode::unreadable, statistic, " holds what is no number: profile again");
  }
  return mean;
}

/// The covariance of the channels, of a sample as large as all queries.
Tensor covariance(const profile::Reader& profile, const Tensor& mean) {
  Tensor products = mean_over_queries(profile, name::kQueryProducts);
  double total = 0;
  for (const double count : queries_of(profile)) total += count;
  if (total < 2) fail(ErrorCode::usage, "the covariance of one query does not exist");
  const auto d = static_cast<std::size_t>(mean.shape.back());
  for (std::size_t i = 0; i < products.values.size(); ++i) {
    const std::size_t head = i / (d * d), row = i / d % d, column = i % d;
    products.values[i] -= mean.values[head * d + row] * mean.values[head * d + column];
    products.values[i] *= total / (total - 1);
  }
  return products;
}

/// What the statistics are of, for a README.
std::string origin(const profile::Reader& profile) {
  double total = 0;
  for (const double count : queries_of(profile)) total += count;
  return str("Statistics of the queries of ", printable(profile.header().model_name, 200), ", ",
             static_cast<std::int64_t>(total), " queries a head of ",
             count_of(std::ssize(profile.samples()), "prompt", "prompts"),
             ", without each prompt's first ", skipped(profile), " tokens.\n");
}

std::vector<ExportFile> for_triattention(const profile::Reader& profile) {
  const Tensor mean = mean_over_queries(profile, name::kQueryMean),
               magnitude = mean_over_queries(profile, name::kQueryMagnitude);
  const json metadata = {{"prompts", str(profile.samples().size())}};
  return {{"query_statistics.safetensors",
           safetensors({{"query_magnitude", magnitude}, {"query_mean", mean}}, metadata)},
          {"write_triattention_stats.py", std::string(triattention_script())},
          {"README.txt",
           origin(profile) +
               "\nTriAttention (and TensorRT-LLM, whose TriAttention reads the same file) takes a "
               "file of torch:\n\n"
               "    python write_triattention_stats.py query_statistics.safetensors "
               "path/to/model/config.json stats.pt\n\n"
               "It needs torch and safetensors. config.json names the kind of RoPE. Channels i and "
               "i + half are a pair,\nas in Hugging Face's models (rope_style half).\n"}};
}

std::vector<ExportFile> for_expected_attention(const profile::Reader& profile) {
  const Tensor mean = mean_over_queries(profile, name::kQueryMean);
  std::int64_t longest = 0;
  for (const auto& sample : profile.samples()) longest = std::max(longest, sample.n_tokens);
  const auto& header = profile.header();
  const json config = {{"num_layers", header.n_layers},
                       {"num_heads", header.n_heads},
                       {"head_dim", header.head_dim},
                       {"dataset_name", "kvatlas"},
                       {"model_name", printable(header.model_name, 200)},
                       {"num_samples", profile.samples().size()},
                       {"sample_seq_len", longest},
                       {"n_sink", skipped(profile)}};
  return {{"config.json", config.dump(2) + "\n"},
          {"model.safetensors",
           safetensors({{"query_cov", covariance(profile, mean)}, {"query_mean", mean}},
                       {{"format", "pt"}})},
          {"README.txt", origin(profile) +
                             "\nkvpress reads this folder:\n\n"
                             "    from kvpress import ExpectedAttentionStatsPress\n"
                             "    press = ExpectedAttentionStatsPress(compression_ratio=0.5, "
                             "stats_folder=\"this folder\")\n"}};
}

/// Numbers of heads as DuoAttention's own training leaves them: --sparsity makes a pattern of them.
std::vector<ExportFile> for_duo_attention(const profile::Reader& profile) {
  if (!profile.has(name::kHeadReach))
    fail(ErrorCode::usage,
         "the profile does not say how far back heads attend: take it with 'kvatlas profile "
         "--capture heads'");
  const profile::Array all = profile.statistic(name::kHeadReach);
  const auto values = all.values<float>();
  const auto samples = static_cast<std::size_t>(all.shape.at(0)),
             heads = static_cast<std::size_t>(all.shape.at(2)), size = values.size() / samples;
  std::string table;
  for (std::size_t i = 0; i < size; ++i) {
    double sum = 0;
    for (std::size_t s = 0; s < samples; ++s) sum += static_cast<double>(values[s * size + i]);
    if (!std::isfinite(sum))
      fail(ErrorCode::usage, "layer ", i / heads,
           " has no keys of its own, and DuoAttention's table has a number for each layer");
    table += json(sum / static_cast<double>(samples)).dump();
    table += (i + 1) % heads == 0 ? '\n' : '\t';
  }
  // The sizes that kvpress takes with such numbers.
  const json sizes = {{"recent_size", 256}, {"sink_size", 128}};
  return {
      {"full_attention_heads.tsv", table},
      {"config.json", sizes.dump(2) + "\n"},
      {"README.txt",
       str("How far back the KV heads of ", printable(profile.header().model_name, 200),
           " attend, a row a layer, as a mean over ",
           count_of(static_cast<std::int64_t>(samples), "prompt", "prompts"),
           ". The lowest become streaming heads.\n"
           "\nDuoAttention reads this folder (load_attn_pattern, then "
           "sparsify_attention_heads with a sparsity).\nAs a policy, to try it and to export it "
           "for other runtimes:\n\n"
           "    kvatlas import duo-attention THIS_FOLDER --sparsity 0.5 --config "
           "path/to/model/config.json -o heads.json\n"
           "    kvatlas evaluate --model path/to/model --policy heads.json\n")}};
}

}  // namespace

bool reads_statistics(std::string_view name) {
  return std::find(kStatisticReaders.begin(), kStatisticReaders.end(), name) !=
         kStatisticReaders.end();
}

std::vector<ExportFile> export_query_statistics(const profile::Reader& profile,
                                                std::string_view reader) {
  if (reader == kStatisticReaders[0]) return for_triattention(profile);
  return reader == kStatisticReaders[1] ? for_expected_attention(profile)
                                        : for_duo_attention(profile);
}

}  // namespace kvatlas::exporting
