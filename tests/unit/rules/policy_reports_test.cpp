// SPDX-License-Identifier: Apache-2.0
// What a document says of the profile that it was calibrated from.
#include "calibrate/rules/policy_reports.hpp"

#include <cmath>
#include <functional>
#include <set>

#include <gmock/gmock.h>

#include "calibrate/rules/calibrated.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/profile_header.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// The fingerprint of a profile of two prompts after `change` to its header and its second prompt.
std::string fingerprint_after(
    const std::function<void(profile::Header&, profile::Sample&)>& change) {
  const testing_support::TemporaryFolder folder;
  profile::CaptureSettings settings;
  settings.lazy = settings.js = settings.scores = settings.kept = settings.norms = settings.next =
      settings.columns = settings.maps = false;
  auto header = testing_support::header_of({2, 2, 1}, settings, 2);
  std::vector<profile::Sample> samples(2);
  for (std::int64_t i = 0; i < 2; ++i) {
    samples[i].index = i;
    samples[i].id = "ab";
    samples[i].task = "c";
    samples[i].tokens = {1, 2, 3};
  }
  change(header, samples[1]);
  const auto path = folder.path() / "p.h5";
  profile::Writer writer(path, header, {});
  for (const auto& sample : samples) writer.add(sample);
  writer.finish();
  return profile_fingerprint(profile::Reader(path));
}

TEST(Provenance, NamesTheSeedsAndTheOwnPromptsThatCalibrated) {
  const testing_support::TemporaryFolder folder;
  profile::CaptureSettings settings;
  settings.lazy = settings.js = settings.scores = settings.kept = settings.norms = settings.next =
      settings.columns = settings.maps = false;
  const auto path = folder.path() / "p.h5";
  profile::Writer writer(path, testing_support::header_of({2, 2, 1}, settings, 5), {});
  std::int64_t index = 0;
  const auto add = [&](const std::string& task, std::int64_t seed,
                       std::vector<std::int32_t> tokens) {
    profile::Sample sample;
    sample.index = index++;
    sample.id = sample.task = task;
    sample.seed = seed;
    sample.tokens = std::move(tokens);
    writer.add(sample);
  };
  add("needle", 7, {1, 2});
  add("needle", 4, {1, 3});
  add("needle:keys=4", 9, {1, 4});
  add("mine", 2, {1, 5});  // no task of ours: its seed says nothing
  add("", -1, {1, 6});
  writer.finish();
  const Provenance from = provenance_of(profile::Reader(path), {0, 1, 2, 3, 4});
  EXPECT_THAT(from.seeds, ElementsAre(testing::Pair("needle", ElementsAre(4, 7)),
                                      testing::Pair("needle:keys=4", ElementsAre(9, 9))));
  EXPECT_THAT(from.prompts,
              testing::UnorderedElementsAre(prompt_hash(std::vector<std::int64_t>{1, 5}),
                                            prompt_hash(std::vector<std::int64_t>{1, 6})));
  Document document;
  document.model = {"M", "llama", "", 2, 2, 1, 4, {}};
  document.provenance = from;
  write_document(document, folder.path() / "d.json", false);
  const Provenance read = read_document(folder.path() / "d.json").provenance;
  EXPECT_EQ(read.seeds, from.seeds);
  EXPECT_EQ(read.prompts, from.prompts);
}

TEST(DivergenceJson, ReadsWhatItWritesAndTheMeanOfOlderDocuments) {
  std::vector<double> values;
  for (int i = 0; i < 8; ++i) values.push_back(0.02 * i * i);
  const std::vector<std::string> none(values.size());
  const Divergence written = divergence_over(values, none, none);
  const Divergence read = divergence_from(divergence_json(written));
  EXPECT_EQ(read.mean, written.mean);
  EXPECT_EQ(read.median.value, written.median.value);
  EXPECT_EQ(read.median.high, written.median.high);
  EXPECT_TRUE(std::isinf(read.p90.high));
  EXPECT_EQ(read.above[0].low, written.above[0].low);
  EXPECT_EQ(read.capped.high, written.capped.high);
  EXPECT_THAT(
      divergence_text(read),
      testing::MatchesRegex(
          "median [0-9.]+ \\[[0-9.]+, [0-9.]+\\], 90th percentile [0-9.]+ \\[at least [0-9.]+\\], "
          "mean [0-9.]+"));
  const Divergence older = divergence_from({{"mean", 1.308}, {"low", 0.776}, {"high", 1.308}});
  EXPECT_EQ(older.mean, 1.308);
  EXPECT_EQ(divergence_text(older), "mean 1.308");
  EXPECT_EQ(divergence_text(divergence_from(nullptr)), "");
  EXPECT_EQ(divergence_text(divergence_from({{"mean", nullptr}, {"median", 3}})), "");
}

TEST(ProfileFingerprint, TellsApartWhateverTrialsDependOn) {
  using Header = profile::Header;
  using Sample = profile::Sample;
  const std::vector<std::function<void(Header&, Sample&)>> changes = {
      [](Header&, Sample&) {},
      [](Header& header, Sample&) { header.model_fingerprint = "another"; },
      [](Header&, Sample& sample) { sample.id = "other"; },
      [](Header&, Sample& sample) { sample.task = "d"; },
      [](Header&, Sample& sample) { sample.id = "a", sample.task = "bc"; },
      [](Header&, Sample& sample) { sample.metric = "f1"; },
      [](Header&, Sample& sample) { sample.metric = "f2"; },
      [](Header&, Sample& sample) { sample.language = "f1"; },
      [](Header&, Sample& sample) { sample.language = "f2"; },
      [](Header&, Sample& sample) { sample.all_classes = {"f1"}; },
      [](Header&, Sample& sample) { sample.max_new_tokens = 1; },
      [](Header&, Sample& sample) { sample.max_new_tokens = 2; },
      [](Header&, Sample& sample) {
        sample.tokens = {1, 2, 4};
      },
      [](Header&, Sample& sample) {
        sample.tokens = {1, 2};
      },
  };
  std::set<std::string> different;
  for (const auto& change : changes) different.insert(fingerprint_after(change));
  EXPECT_EQ(different.size(), changes.size());
  EXPECT_EQ(fingerprint_after(changes[0]), fingerprint_after(changes[0]));
}

TEST(OwnWindows, AreNoneIfNoLayerHasOne) {
  EXPECT_THAT(own_windows({0, 0}), IsEmpty());
  EXPECT_THAT(own_windows({0, 1}), ElementsAre(0, 1));
}

}  // namespace
}  // namespace kvatlas::calibrate
