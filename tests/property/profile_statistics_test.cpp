// SPDX-License-Identifier: Apache-2.0
// Laws that the statistics of a profile keep, on every architecture: windows, soft caps, grouped
// heads.
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <numeric>

#include "tests/property/profile_fixture.hpp"

namespace kvatlas::profile {
namespace {

using namespace testing_support;

constexpr std::int64_t kTokens = 96, kRows = 16;

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

class ProfileLaws : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string ids;
    for (const auto token : expected("tokens").integers())
      ids += (ids.empty() ? "" : ",") + std::to_string(token);
    const auto layers = expected("attention_last16").shape.front();
    std::string all_layers = "0";
    for (std::int64_t l = 1; l < layers; ++l) all_layers += "," + std::to_string(l);
    const Finished finished = run_kvatlas(command_.words(
        GetParam(), command_.write("p.jsonl", "{\"tokens\": [" + ids + "]}"), "p.h5",
        {"--capture", "all", "--map-type", "float32", "--keep", "qkv,scores", "--keep-layers",
         all_layers, "--recent", "8,32,4096", "--new", "4", "--ignore-eos"}));
    ASSERT_EQ(finished.status, 0) << finished.err;
    profile_ = std::make_unique<Reader>(command_.path("p.h5"));
    ASSERT_EQ(profile_->samples().size(), 1u);
  }

  static GoldenArray expected(const std::string& name) {
    const auto set = golden_checkpoint(GetParam()).parent_path();
    return read_golden(set / "expected.h5", std::string(GetParam()) + "/" + name);
  }
  static bool has_sinks() { return std::string(GetParam()) == "gpt_oss"; }
  const Header& header() const { return profile_->header(); }
  template <class T = float>
  std::vector<T> values(const std::string& name, const std::vector<std::int64_t>& at = {}) const {
    const Array part = profile_->array(0, name, at);
    const auto all = part.values<T>();
    return {all.begin(), all.end()};
  }
  template <class T = float>
  std::vector<T> statistic(const std::string& name) const {
    const Array part = profile_->statistic(name);
    const auto all = part.values<T>();
    return {all.begin(), all.end()};
  }
  std::vector<std::string> labels(const std::string& axis) const {
    for (const auto& table : header().axes)
      if (table.axis == axis) return table.labels;
    return {};
  }
  std::int64_t heads() const { return header().n_heads; }
  std::int64_t kv_heads() const { return header().n_kv_heads; }
  std::int64_t layers() const { return header().n_layers; }

 private:
  ProfileCommand command_;
  std::unique_ptr<Reader> profile_;
};

TEST_P(ProfileLaws, LastRowsAreTheModels) {
  const auto want = expected("attention_last16").floats();
  std::vector<float> rows;
  for (std::int64_t l = 0; l < layers(); ++l)
    for (const float log : values(name::kRows, {l})) rows.push_back(std::exp2(log));
  ASSERT_EQ(rows.size(), want.size());
  double squares = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    // As in golden_forward: the reference's own rounding is up to 8e-5 in Gemma 2.
    ASSERT_NEAR(rows[i], want[i], 2e-4);
    squares += std::pow(static_cast<double>(rows[i] - want[i]), 2);
  }
  EXPECT_LT(std::sqrt(squares / static_cast<double>(rows.size())), 5e-6);
  for (std::size_t row = 0; row < rows.size(); row += size(kTokens)) {
    const double sum =
        std::accumulate(rows.begin() + static_cast<std::ptrdiff_t>(row),
                        rows.begin() + static_cast<std::ptrdiff_t>(row) + kTokens, 0.0);
    if (has_sinks())
      EXPECT_LT(sum, 1);
    else
      EXPECT_NEAR(sum, 1, 1e-5);
  }
}

TEST_P(ProfileLaws, MassesAreSumsOfTheRows) {
  const auto mass = statistic(name::kMass), near = statistic(name::kProximalLse),
             far = statistic(name::kDistantLse);
  const auto grid = labels("proximity");
  ASSERT_EQ(grid.size(), 6u);  // initial 4 and 16, recent 8, 32 and 4096
  const struct {
    std::int64_t initial, recent;
  } settings[] = {{4, 8}, {4, 32}, {4, 4096}, {16, 8}, {16, 32}, {16, 4096}};
  for (std::size_t p = 0; p < grid.size(); ++p)
    for (std::int64_t l = 0; l < layers(); ++l) {
      const auto rows = values(name::kRows, {l});
      for (std::int64_t h = 0; h < heads(); ++h)
        for (std::int64_t r = 0; r < kRows; ++r) {
          const std::int64_t i = kTokens - kRows + r;
          double sum = 0, all = 0;
          for (std::int64_t j = 0; j <= i; ++j) {
            const double share =
                std::exp2(static_cast<double>(rows[size((h * kRows + r) * kTokens + j)]));
            all += share;
            if (j < settings[p].initial || j > i - settings[p].recent) sum += share;
          }
          if (has_sinks()) sum += 1 - all;  // the sink's share counts as near
          const std::size_t at =
              size(((static_cast<std::int64_t>(p) * layers() + l) * heads() + h) * 32 + 16 + r);
          ASSERT_NEAR(mass[at], sum, 2e-6) << grid[p];
          ASSERT_NEAR(1 / (1 + std::exp(static_cast<double>(far[at] - near[at]))), sum, 1e-5);
        }
    }
}

TEST_P(ProfileLaws, StridedRowsAndGeneratedTokensAgreeWithTheirNeighbours) {
  const auto mass = statistic(name::kMass);
  const auto positions = values<std::int32_t>(name::kRowPositions);
  ASSERT_EQ(positions.size(), size(kTokens));  // fewer than 512, so every row
  const auto rows = values(name::kRowMass);
  const auto decode = statistic(name::kDecodeMass), generated = statistic(name::kGeneratedMass);
  for (std::int64_t p = 0; p < 6; ++p)
    for (std::int64_t l = 0; l < layers(); ++l) {
      double last = 0, first_step = 0;
      for (std::int64_t h = 0; h < heads(); ++h) {
        last += static_cast<double>(mass[size(((p * layers() + l) * heads() + h) * 32 + 31)]);
        first_step += static_cast<double>(decode[size((p * layers() + l) * heads() + h)]);
      }
      const auto n = static_cast<double>(heads());
      EXPECT_NEAR(rows[size((p * layers() + l) * kTokens + kTokens - 1)], last / n, 1e-6);
      EXPECT_EQ(rows[size((p * layers() + l) * kTokens)], 1);
      EXPECT_NEAR(generated[size((p * layers() + l) * 4)], first_step / n, 1e-6);
      EXPECT_LE(generated[size((p * layers() + l) * 4 + 3)], 1);
    }
  for (const auto token : statistic<std::int32_t>(name::kGeneratedTokens)) EXPECT_GE(token, 0);
  EXPECT_EQ(statistic<std::int32_t>(name::kGeneratedTokens)[0],
            statistic<std::int32_t>(name::kTopIds)[0]);
  EXPECT_EQ(values<std::int32_t>(name::kArgmax).back(), statistic<std::int32_t>(name::kTopIds)[0]);
}

TEST_P(ProfileLaws, MapsAndColumnsHoldAllAttention) {
  for (std::int64_t l = 0; l < layers(); ++l) {
    const auto columns = values(name::kColumnSums, {l});
    const auto finest = values(map_name(false, 0), {l}), top = values(map_name(true, 0), {l});
    const auto rows = values(name::kRows, {l});
    std::vector<double> of_heads(size(heads()));
    std::vector<float> most(size(heads()));
    ASSERT_EQ(finest.size(), size(heads() * kTokens * kTokens));  // blocks of one token
    for (std::int64_t h = 0; h < heads(); ++h) {
      double all = 0;
      for (std::int64_t j = 0; j < kTokens; ++j)
        all += static_cast<double>(columns[size(h * kTokens + j)]);
      double shown = 0;
      for (std::int64_t cell = 0; cell < kTokens * kTokens; ++cell)
        shown += std::exp2(static_cast<double>(finest[size(h * kTokens * kTokens + cell)]));
      EXPECT_NEAR(all, shown, 1e-3);
      of_heads[size(h)] = shown;
      most[size(h)] = *std::max_element(finest.begin() + h * kTokens * kTokens,
                                        finest.begin() + (h + 1) * kTokens * kTokens);
      if (has_sinks())
        EXPECT_LT(all, kTokens);
      else
        EXPECT_NEAR(all, kTokens, 1e-3);
      for (std::int64_t r = 0; r < kRows; ++r)
        for (std::int64_t j = 0; j < kTokens; ++j) {
          const std::size_t cell = size((h * kTokens + kTokens - kRows + r) * kTokens + j);
          ASSERT_EQ(finest[cell], top[cell]);
          // Two ways to the same weight; a soft cap of 50 leaves 1.5e-5 of a score uncertain.
          ASSERT_NEAR(std::exp2(finest[cell]), std::exp2(rows[size((h * kRows + r) * kTokens + j)]),
                      2e-5);
        }
    }
    // The coarsest level is one block: all attention over all cells, and the greatest weight.
    const auto means = values(map_name(false, 7), {l}), greatest = values(map_name(true, 7), {l});
    for (std::size_t h = 0; h < size(heads()); ++h) {
      EXPECT_NEAR(std::exp2(means[h]), of_heads[h] / (kTokens * kTokens), 1e-6);
      EXPECT_NEAR(greatest[h], most[h], 3e-5);
      if (!has_sinks()) {
        EXPECT_NEAR(greatest[h], 0, 3e-5);  // row 0's own weight of 1
      }
    }
  }
  EXPECT_EQ(values<std::int32_t>(name::kMapBlocks).size(), 8u);  // 1, 2, 4, … 128
}

TEST_P(ProfileLaws, CountsAndKeptTokensAddUp) {
  const auto counts = statistic<std::int64_t>(name::kCounts);
  for (std::int64_t row = 0; row < 4; ++row) {  // two poolings, two budgets
    const std::int64_t budget = row % 2 == 0 ? 24 : 40;
    EXPECT_EQ(std::accumulate(counts.begin() + row * layers(),
                              counts.begin() + (row + 1) * layers(), std::int64_t{0}),
              (budget - 16) * heads() * layers());
  }
  const auto selections = labels("selection");
  const auto mass = statistic(name::kKeptMass);
  const auto tokens = statistic<std::int32_t>(name::kKeptTokens);
  std::vector<float> all_kept(size(layers() * kv_heads()), -1);  // by what keeps every token
  for (std::size_t s = 0; s < selections.size(); ++s)
    for (std::int64_t l = 0; l < layers(); ++l) {
      const std::size_t place = s * size(layers()) + size(l);
      const auto mask = values<std::uint8_t>(name::kKeptMask, {static_cast<std::int64_t>(s), l});
      for (std::int64_t g = 0; g < kv_heads(); ++g) {
        int bits = 0;
        for (std::int64_t b = 0; b < kTokens / 8; ++b)
          bits += std::popcount(mask[size(g * kTokens / 8 + b)]);
        EXPECT_EQ(bits, tokens[place]) << selections[s];
        const float kept = mass[place * size(kv_heads()) + size(g)];
        EXPECT_GE(kept, 0) << selections[s];
        EXPECT_LE(kept, 1.00001f) << selections[s];
        if (tokens[place] == kTokens) {
          float& all = all_kept[size(l * kv_heads() + g)];
          if (all < 0) all = kept;
          EXPECT_NEAR(kept, has_sinks() ? all : 1, 1e-5) << selections[s];
        }
      }
    }
  const auto kept_by = [&](const std::string& label) {
    const auto at = std::find(selections.begin(), selections.end(), label) - selections.begin();
    return tokens[size(at) * size(layers()) + layers() - 1];
  };
  EXPECT_EQ(kept_by("streaming:initial=4,recent=8"), 12);
  EXPECT_EQ(kept_by("snapkv:window=16,budget=24,kernel=7,pooling=avg"), 24);
  EXPECT_EQ(kept_by("h2o:budget=40"), 40);
  EXPECT_EQ(kept_by("lagkv:sink=16,lag=16,ratio=1/4,variant=lag"), 16 + 4 * 4 + 16);
  // It leaves the first two layers as they are.
  EXPECT_EQ(kept_by("lagkv:sink=16,lag=32,ratio=1/2,variant=l2"),
            layers() > 2 ? 16 + 16 + 32 + 16 : kTokens);
}

TEST_P(ProfileLaws, NormsAreThoseOfTheRawKeys) {
  const auto norms = statistic(name::kKeyNorm), range = statistic(name::kKeyRange);
  const std::int64_t d = header().head_dim, all = layers() * kv_heads() * d;
  for (std::int64_t l = 0; l < layers(); ++l) {
    const auto keys = values(raw_name("key", l));
    const auto of_token = values(name::kKeyNormOfToken, {l});
    for (std::int64_t g = 0; g < kv_heads(); ++g) {
      double least = 1e30, greatest = 0, sum = 0;
      std::vector<float> low(size(d), 1e30f), high(size(d), -1e30f);
      for (std::int64_t i = 0; i < kTokens; ++i) {
        double square = 0;
        for (std::int64_t c = 0; c < d; ++c) {
          const float value = keys[size((g * kTokens + i) * d + c)];
          square += static_cast<double>(value) * static_cast<double>(value);
          low[size(c)] = std::min(low[size(c)], value);
          high[size(c)] = std::max(high[size(c)], value);
        }
        const double norm = std::sqrt(square);
        EXPECT_NEAR(of_token[size(g * kTokens + i)], norm, 1e-5 * norm);
        least = std::min(least, norm);
        greatest = std::max(greatest, norm);
        sum += norm;
      }
      const float* stored = norms.data() + (l * kv_heads() + g) * 4;
      EXPECT_NEAR(stored[0], least, 1e-5 * least);
      EXPECT_NEAR(stored[1], sum / kTokens, 1e-5 * greatest);
      EXPECT_NEAR(stored[3], greatest, 1e-5 * greatest);
      for (std::int64_t c = 0; c < d; ++c) {
        EXPECT_EQ(range[size((l * kv_heads() + g) * d + c)], low[size(c)]);
        EXPECT_EQ(range[size(all + (l * kv_heads() + g) * d + c)], high[size(c)]);
      }
    }
  }
}

TEST_P(ProfileLaws, MagnitudesAreThoseOfTheRawTensors) {
  const auto largest = statistic(name::kLargest);
  const auto counts = statistic<std::int64_t>(name::kMagnitudes);
  const std::int64_t L = layers(), K = kv_heads();
  for (std::int64_t side = 0; side < 3; ++side)
    for (std::int64_t l = 0; l < L; ++l) {
      const char* what[] = {"key", "value", "query"};
      const auto raw = values(raw_name(what[side], l));
      const std::int64_t of_head = std::ssize(raw) / K;
      for (std::int64_t g = 0; g < K; ++g) {
        const std::int64_t at = (side * L + l) * K + g;
        float greatest = 0;
        std::vector<std::int64_t> expected(kMagnitudeBins, 0);
        for (std::int64_t i = g * of_head; i < (g + 1) * of_head; ++i) {
          const float x = std::abs(raw[size(i)]);
          greatest = std::max(greatest, x);
          std::int64_t bin = 0;
          while (bin + 1 < kMagnitudeBins && static_cast<double>(x) >= magnitude_of_bin(bin + 1))
            ++bin;
          ++expected[size(bin)];
        }
        EXPECT_EQ(largest[size(at)], greatest);
        const auto* from = counts.data() + at * kMagnitudeBins;
        EXPECT_EQ(std::vector<std::int64_t>(from, from + kMagnitudeBins), expected);
      }
    }
}

TEST_P(ProfileLaws, CosinesAreThoseOfTheRawValues) {
  const auto cosines = statistic(name::kValueCosine);
  const std::int64_t d = header().head_dim, L = layers();
  ASSERT_EQ(cosines.size(), size(kv_heads() * L * L));
  for (std::int64_t a = 0; a < L; ++a)
    for (std::int64_t b = 0; b < L; ++b) {
      const auto of_a = values(raw_name("value", a)), of_b = values(raw_name("value", b));
      for (std::int64_t g = 0; g < kv_heads(); ++g) {
        double sum = 0;
        for (std::int64_t i = 0; i < kTokens; ++i) {
          double product = 0, square_a = 0, square_b = 0;
          for (std::int64_t at = (g * kTokens + i) * d; at < (g * kTokens + i + 1) * d; ++at) {
            const auto x = static_cast<double>(of_a[size(at)]),
                       y = static_cast<double>(of_b[size(at)]);
            product += x * y;
            square_a += x * x;
            square_b += y * y;
          }
          sum += product / std::sqrt(square_a * square_b);
        }
        EXPECT_NEAR(cosines[size((g * L + a) * L + b)], sum / kTokens, 1e-5);
      }
    }
}

/// Every layer with keys of its own has numbers, and a mean of sums of shares lies between 0 and 1.
TEST_P(ProfileLaws, HowFarBackHeadsAttendIsAShare) {
  const auto reach = statistic(name::kHeadReach);
  ASSERT_EQ(reach.size(), size(layers() * kv_heads()));
  bool differ = false;
  for (std::size_t i = 0; i < reach.size(); ++i) {
    if (std::isnan(reach[i])) continue;
    EXPECT_GT(reach[i], 0) << "at " << i;
    EXPECT_LE(reach[i], 1 + 1e-5) << "at " << i;
    differ |= reach[i] != reach.front();
  }
  EXPECT_TRUE(differ);
}

/// RoPE turns pairs of channels and leaves their magnitudes; LongRoPE and YaRN also multiply all of
/// them by one number.
TEST_P(ProfileLaws, QueriesBeforeRopeHaveTheMagnitudesOfTheRawOnes) {
  constexpr std::int64_t kSkip = 4;
  const auto mean = statistic(name::kQueryMean), magnitude = statistic(name::kQueryMagnitude),
             products = statistic(name::kQueryProducts);
  const std::int64_t d = header().head_dim;
  const std::int64_t pairs = static_cast<std::int64_t>(magnitude.size()) / (layers() * heads());
  const std::string_view model = GetParam();
  const bool scaled = model.starts_with("phi3") || model == "gpt_oss";
  double scale = scaled ? 0 : 1;  // 0: the first pair tells it, and all others must agree
  for (std::int64_t l = 0; l < layers(); ++l) {
    const auto raw = values(raw_name("query", l));
    for (std::int64_t h = 0; h < heads(); ++h) {
      const auto at = [&](std::int64_t token, std::int64_t channel) {
        return static_cast<double>(raw[size((h * kTokens + token) * d + channel)]);
      };
      const std::int64_t head = l * heads() + h;
      double squares = 0, trace = 0, of_mean = 0;
      for (std::int64_t pair = 0; pair < pairs; ++pair) {
        double sum = 0;
        for (std::int64_t t = kSkip; t < kTokens; ++t)
          sum += std::hypot(at(t, pair), at(t, pair + pairs));
        const double before = static_cast<double>(magnitude[size(head * pairs + pair)]);
        const double after = sum / (kTokens - kSkip);
        if (scale == 0) scale = after / before;
        EXPECT_NEAR(scale * before, after, 2e-4)
            << "layer " << l << ", head " << h << ", pair " << pair;
        const double real = mean[size(head * d + pair)],
                     imaginary = mean[size(head * d + pair + pairs)];
        EXPECT_LE(std::hypot(real, imaginary), before + 1e-5);
      }
      for (std::int64_t c = 0; c < d; ++c) {
        trace += static_cast<double>(products[size((head * d + c) * d + c)]);
        of_mean += std::pow(static_cast<double>(mean[size(head * d + c)]), 2);
        for (std::int64_t t = kSkip; t < kTokens; ++t)
          squares += std::pow(at(t, c), 2) / (kTokens - kSkip);
      }
      EXPECT_NEAR(scale * scale * trace, squares, 2e-4 * squares);
      EXPECT_LE(of_mean, trace * (1 + 1e-5));
    }
  }
  EXPECT_EQ(scaled, std::abs(scale - 1) > 0.01);
}

TEST_P(ProfileLaws, AgreementEndsAtOne) {
  const auto shares = statistic(name::kAgreement);  // 16, 32, 64 and 128 proximal tokens
  ASSERT_EQ(shares.size(), 4u);
  for (const float share : shares) {
    EXPECT_GE(share, 0);
    EXPECT_LE(share, 1);
  }
  EXPECT_EQ(shares.back(), 1);
  EXPECT_LT(shares.front(), 1);  // 16 of 96 random tokens do not decide
}

INSTANTIATE_TEST_SUITE_P(Tiny, ProfileLaws,
                         testing::Values("llama3_gqa_f32", "mistral_sliding_f32", "gemma2_f32",
                                         "gemma3_text_f32", "qwen3_qknorm_f32", "phi3_longrope_f32",
                                         "gpt_oss", "qwen3_next", "lfm2"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace kvatlas::profile
