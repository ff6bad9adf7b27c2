// SPDX-License-Identifier: Apache-2.0
// The one reader of a profile's evidence: which samples it takes, and what it says of those
// settings that were not captured. The numbers themselves are held by the tests of methods and
// screens.
#include "calibrate/rules/read_evidence.hpp"

#include <functional>
#include <limits>
#include <string>

#include <gmock/gmock.h>

#include "analyzer/profile/checked_arrays.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/small_profile.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::refusal;

class ReadEvidence : public testing::Test {
 protected:
  profile::Reader opened(const testing_profile::Shape& shape) {
    const auto path = folder_.path() / "p.h5";
    testing_profile::write_profile(path, shape);
    return profile::Reader(path);
  }

 private:
  testing_support::TemporaryFolder folder_;
};

SimLayerKv lazy_at(Proximity keep) {
  SimLayerKv policy;
  policy.keep = keep;
  return policy;
}

TEST_F(ReadEvidence, TakesTheSamplesAskedFor) {
  const auto profile = opened({.samples = 3, .short_samples = 2});
  const std::vector<std::size_t> all = {0, 1, 2, 3, 4}, two = {0, 2};
  EXPECT_EQ(longer_than(profile, all, 68), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_THAT(longer_than(profile, all, testing_profile::kTokens), IsEmpty());
  const auto masses = read_masses(profile, two, lazy_at({4, 64}));
  EXPECT_EQ(masses.positions, two);
  ASSERT_EQ(masses.layers.size(), 2u);
  EXPECT_NEAR(masses.layers[1][1], 0.902, 1e-6);
  EXPECT_EQ(read_steps(profile, two, {4, 64}).at(0).size(), 2u);
  EXPECT_EQ(read_similarity(profile, two).positions, two);
  const auto sums = read_gate_sums(profile, 2, {4, 64});
  EXPECT_EQ(sums.proximal.rows(), sums.layers * sums.heads);
  EXPECT_EQ(sums.distant.cols(), sums.view().rows);
  const auto counts = read_counts(profile, two, {.budget = 64});
  EXPECT_EQ(counts.positions, two);
  EXPECT_EQ(counts.before.front(), testing_profile::kTokens - 16);
}

/// One prompt of 10 tokens in 2 layers of 2 heads, whose first selection keeps tokens 1 and 9 in
/// layer 1, and whose `rows` last rows attend with shares of 1/2, in the last head 1/4.
void write_rows(const std::filesystem::path& path, std::int64_t rows, std::int64_t keys) {
  profile::CaptureSettings settings = testing_profile::settings_of({.lazy = false, .js = false});
  settings.maps = true;
  settings.map_type = profile::Type::f16;
  profile::Writer writer(path, testing_support::header_of({2, 2, 1}, settings, 1), {});
  profile::Sample sample;
  sample.id = sample.task = "needle";
  sample.tokens.assign(10, 1);
  profile::Array mask(profile::Type::u8, {std::ssize(settings.selections()), 2, 1, 2});
  mask.values<std::uint8_t>()[2] = mask.values<std::uint8_t>()[3] = 2;
  sample.arrays[profile::name::kKeptMask] = mask;
  profile::Array stored(profile::Type::f16, {2, 2, rows, keys});
  const auto halves = stored.values<std::uint16_t>();
  for (std::size_t i = 0; i < halves.size(); ++i)  // -1 and -2, the logarithms
    halves[i] = 4 * i < 3 * halves.size() ? 0xbc00 : 0xc000;
  sample.arrays[profile::name::kRows] = stored;
  writer.add(sample);
  writer.finish();
}

TEST_F(ReadEvidence, ReadsKeptTokensAndRowsOfAttention) {
  const testing_support::TemporaryFolder folder;
  write_rows(folder.path() / "p.h5", 3, 10);
  const profile::Reader reader(folder.path() / "p.h5");
  const auto& selections = profile::axis_of(reader.header(), "selection").labels;
  std::vector<bool> kept(10);
  EXPECT_EQ(read_kept_tokens(reader, 0, selections[0], 0, 0), kept);
  kept[1] = kept[9] = true;
  EXPECT_EQ(read_kept_tokens(reader, 0, selections[0], 1, 0), kept);
  EXPECT_THAT(read_kept_tokens(reader, 0, "another", 1, 0), IsEmpty());
  EXPECT_THAT(read_kept_tokens(opened({.samples = 1}), 0, selections[0], 1, 0), IsEmpty());
  for (const std::int64_t head : {0, 1}) {
    const auto rows = read_attention(reader, 0, 1, head);
    ASSERT_EQ(rows.rows(), 3);
    ASSERT_EQ(rows.cols(), 10);
    EXPECT_FLOAT_EQ(rows(2, 9), head == 0 ? 0.5f : 0.25f);
  }
  // As many rows as tokens are all of them; more, none, or keys of another prompt contradict it.
  for (const auto& [rows, keys, whole] :
       {std::tuple{10, 10, true}, {1, 10, true}, {11, 10, false}, {0, 10, false}, {3, 9, false}}) {
    const testing_support::TemporaryFolder other;
    write_rows(other.path() / "p.h5", rows, keys);
    const profile::Reader odd(other.path() / "p.h5");
    const std::string error = testing_support::error_of([&] { read_attention(odd, 0, 0, 0); });
    EXPECT_EQ(error.empty(), whole) << rows << " rows of " << keys << " keys: " << error;
  }
}

/// A profile of two samples, which `change` may alter before it is written.
using Change = std::function<void(profile::Header&, std::vector<profile::Sample>&)>;
profile::Reader changed(const std::filesystem::path& path, const Change& change) {
  using namespace testing_profile;
  const auto settings = settings_of({});
  auto header = testing_support::header_of({kLayers, kHeads, kKvHeads}, settings, 2);
  std::vector<profile::Sample> samples(2);
  for (std::int64_t i = 0; i < 2; ++i) {
    profile::Sample& sample = samples[i];
    sample.index = i;
    sample.id = sample.task = "needle";
    sample.tokens.assign(kTokens, 1);
    add_masses(sample, settings, {});
    add_divergences(sample, false);
    add_counts(sample, settings, kTokens, false);
    add_kept(sample, settings, kKvHeads);
  }
  change(header, samples);
  profile::Writer writer(path, header, {});
  for (const auto& sample : samples) writer.add(sample);
  writer.finish();
  return profile::Reader(path);
}

/// The sizes of an array, in the header and in all samples.
void resize(profile::Header& header, std::vector<profile::Sample>& samples, const char* name,
            const std::function<void(std::vector<std::int64_t>&)>& change) {
  for (auto& array : header.arrays)
    if (array.name == name) change(array.sizes);
  for (auto& sample : samples) {
    auto sizes = sample.arrays.at(name).shape;
    change(sizes);
    sample.arrays[name] = testing_profile::filled(sizes, 0);
  }
}

TEST_F(ReadEvidence, SamplesWithoutANumberArePassedOver) {
  const testing_support::TemporaryFolder folder;
  const auto profile = changed(folder.path() / "p.h5", [](auto&, auto& samples) {
    profile::Sample& sample = samples[1];
    const float none = std::numeric_limits<float>::quiet_NaN();
    for (const char* name :
         {profile::name::kKeptMass, profile::name::kDivergence, profile::name::kDecodeMass})
      sample.arrays.at(name).values<float>().back() = none;
    sample.arrays.erase(profile::name::kCounts);
  });
  const std::vector<std::size_t> both = {0, 1}, first = {0};
  const auto last_selection =
      std::ssize(profile::axis_of(profile.header(), "selection").labels) - 1;
  EXPECT_EQ(read_kept_masses(profile, 0, last_selection).size(), 4u);
  EXPECT_THAT(read_kept_masses(profile, 1, last_selection), IsEmpty());
  EXPECT_EQ(read_kept_masses(profile, 1, 0).size(), 4u);
  EXPECT_EQ(read_similarity(profile, both).positions, first);
  SimLayerKv at_decode = lazy_at({16, 112});
  at_decode.identify = SimLayerKv::Identify::decode;
  EXPECT_EQ(read_masses(profile, both, at_decode).positions, first);
  EXPECT_EQ(read_counts(profile, both, {.budget = 64}).positions, first);
}

TEST_F(ReadEvidence, ArraysOfOtherSizesAreRefused) {
  const testing_support::TemporaryFolder folder;
  int files = 0;
  const auto refused = [&](const char* name, const auto& change, const auto& read) {
    const auto profile =
        changed(folder.path() / std::to_string(++files),
                [&](auto& header, auto& samples) { resize(header, samples, name, change); });
    return testing_support::error_of([&] { read(profile); });
  };
  const auto kept = [](const profile::Reader& profile) { read_kept_masses(profile, 1, 0); };
  EXPECT_THAT(refused(
                  profile::name::kKeptMass, [](auto& sizes) { sizes.back() = 3; }, kept),
              HasSubstr("expected 4 layers x 2 KV heads"));
  EXPECT_THAT(refused(
                  profile::name::kDistantLse, [](auto& sizes) { sizes.back() = 7; },
                  [](const auto& profile) {
                    read_gate_sums(profile, 1, {4, 64});
                  }),
              HasSubstr("128 proximal and 112 distant"));
}

TEST_F(ReadEvidence, ListsTheSettingsThatThereAre) {
  const auto profile = opened({.samples = 2});
  EXPECT_THAT(refusal([&] {
                read_masses(profile, {}, lazy_at({4, 65}));
              }),
              AllOf(HasSubstr("no masses for initial=4,recent=65, but for "), HasSubstr("112"),
                    HasSubstr("'kvatlas profile --initial 4 --recent 65'")));
  EXPECT_THAT(refusal([&] { read_counts(profile, {}, {.window = 8, .budget = 64}); }),
              HasSubstr("--windows 8 --kernels 7 --poolings avg'"));
  EXPECT_THAT(
      refusal([&] { read_counts(profile, {}, {.budget = 65}); }),
      HasSubstr("no counts for a budget of 65, but for budget=64; budget=32 (the nearest first)"));
}

TEST_F(ReadEvidence, SaysHowWhatIsMissingIsTaken) {
  const auto profile = opened({.samples = 2, .lazy = false, .js = false, .scores = false});
  EXPECT_THAT(refusal([&] { read_masses(profile, {}, {}); }), HasSubstr("--capture lazy"));
  EXPECT_THAT(refusal([&] { read_gate_sums(profile, 0, {4, 64}); }), HasSubstr("--capture lazy"));
  EXPECT_THAT(refusal([&] { read_similarity(profile, {}); }), HasSubstr("--capture js"));
  EXPECT_THAT(refusal([&] { read_counts(profile, {}, {}); }), HasSubstr("--capture scores"));
  EXPECT_THAT(read_steps(profile, {0}, {4, 64}), IsEmpty());
}

}  // namespace
}  // namespace kvatlas::calibrate
