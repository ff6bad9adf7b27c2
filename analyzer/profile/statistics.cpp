// SPDX-License-Identifier: Apache-2.0
#include "analyzer/profile/statistics.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "analyzer/profile/chunks_impl.hpp"
#include "base/error.hpp"

namespace kvatlas::profile {
namespace {

using kernels::LagVariant;

constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;

const char* variant_name(LagVariant variant) {
  return variant == LagVariant::lag ? "lag" : variant == LagVariant::local ? "local" : "l2";
}

const char* pooling_name(Pooling pooling) { return pooling == Pooling::average ? "avg" : "max"; }

std::string window_text(const WindowKind& kind, std::int64_t budget) {
  return str("window=", kind.window, ",budget=", budget, ",kernel=", kind.kernel,
             ",pooling=", pooling_name(kind.pooling));
}

std::string proximity_text(const kernels::Proximity& proximity) {
  return str("initial=", proximity.initial, ",recent=", proximity.recent);
}

template <class T, class Text>
AxisTable table(const char* axis, std::vector<std::string> columns, const std::vector<T>& items,
                Text&& text) {
  AxisTable out{axis, std::move(columns), {}, {}};
  for (const T& item : items) out.labels.push_back(text(item, out.values));
  return out;
}

void require_between(const char* option, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high)
    fail(ErrorCode::usage, option, " ", value, ": expected ", low, " to ", high);
}

}  // namespace

std::string map_name(bool maximum, int level) {
  return str("map/", maximum ? "max/" : "mean/", level);
}

std::string raw_name(const char* what, std::int64_t layer) { return str("raw/", what, "/", layer); }

std::string WindowKind::label() const {
  return str("window=", window, ",kernel=", kernel, ",pooling=", pooling_name(pooling));
}

CaptureSettings::CaptureSettings() {
  for (const std::int64_t initial : {4, 16})
    for (const std::int64_t recent : {64, 240, 256, 512, 1024, 4080})
      proximities.push_back({initial, recent});
}

std::int64_t CaptureSettings::held_rows() const {
  std::int64_t rows = js ? js_rows : 0;
  if (scores || kept || keep_scores)
    for (const auto& kind : window_kinds) rows = std::max(rows, kind.window);
  return maps && map_samples > 0 ? std::max<std::int64_t>(rows, js_rows) : rows;
}

std::int64_t CaptureSettings::last_rows() const {
  return std::max(held_rows(), lazy ? mass_rows : 0);
}

void CaptureSettings::check(const model::Config& config) const {
  require_between("--last-rows", mass_rows, 1, 4096);
  require_between("--js-rows", js_rows, 1, 4096);
  require_between("--map-samples", map_samples, 0, kMostTokens);
  require_between("--sink", sink, 0, kMostTokens);
  require_between("--skip-queries", skip_queries, 0, kMostTokens);
  require_between("--new", generated, 1, kMostTokens);
  if (proximities.empty()) fail(ErrorCode::usage, "--initial and --recent need one value at least");
  for (const auto& [initial, recent] : proximities) {
    require_between("--initial", initial, 0, kMostTokens);
    require_between("--recent", recent, 1, kMostTokens);
  }
  require_distinct("--budgets", budgets);
  require_distinct("--lags", lags);
  require_distinct("--ratios", ratios);
  std::int64_t widest = 1;
  for (const auto& kind : window_kinds) {
    require_between("--windows", kind.window, 1, 4096);
    require_between("--kernels", kind.kernel, 1, 4095);
    if (kind.kernel % 2 == 0) fail(ErrorCode::usage, "--kernels ", kind.kernel, ": must be odd");
    widest = std::max(widest, kind.window);
  }
  for (const auto budget : budgets) require_between("--budgets", budget, widest + 1, kMostTokens);
  for (const auto lag : lags) {
    require_between("--lags", lag, 2, kMostTokens);
    for (const auto& ratio : ratios) kernels::kept_of_partition(ratio, lag);
  }
  for (const auto layer : keep_layers)
    require_between("--keep-layers", layer, 0, config.n_layers - 1);
}

std::vector<KeepRule> CaptureSettings::selections() const {
  std::vector<KeepRule> all;
  const auto add = [&](KeepRule::Method method, std::string label) -> KeepRule& {
    all.emplace_back();
    all.back().method = method;
    all.back().label = std::move(label);
    return all.back();
  };
  for (const auto& proximity : proximities)
    add(KeepRule::Method::streaming, "streaming:" + proximity_text(proximity)).proximity =
        proximity;
  for (std::size_t kind = 0; kind < window_kinds.size(); ++kind)
    for (const auto method : {KeepRule::Method::snapkv, KeepRule::Method::dynamickv})
      for (const auto budget : budgets) {
        KeepRule& added =
            add(method, (method == KeepRule::Method::snapkv ? "snapkv:" : "dynamickv:") +
                            window_text(window_kinds[kind], budget));
        added.kind = kind;
        added.budget = budget;
      }
  if (columns)
    for (const auto budget : budgets)
      add(KeepRule::Method::h2o, str("h2o:budget=", budget)).budget = budget;
  for (const auto variant : {LagVariant::lag, LagVariant::local, LagVariant::l2})
    for (const auto lag : lags)
      for (const auto& ratio : ratios) {
        KeepRule& added =
            add(KeepRule::Method::lagkv, str("lagkv:sink=", sink, ",lag=", lag, ",ratio=", ratio,
                                             ",variant=", variant_name(variant)));
        added.lag = lag;
        added.keep = kernels::kept_of_partition(ratio, lag);
        added.variant = variant;
      }
  return all;
}

std::string CaptureSettings::json() const {
  using nlohmann::json;
  json captured = json::array();
  const std::pair<bool, const char*> parts[] = {
      {lazy, "lazy"},           {js, "js"},
      {scores, "scores"},       {kept, "kept"},
      {norms, "norms"},         {next, "next"},
      {columns, "columns"},     {maps, "maps"},
      {heatmap, "heatmap"},     {argmax, "argmax"},
      {agreement, "agreement"}, {heads, "heads"},
      {queries, "queries"},     {covariance, "covariance"},
      {values, "values"},       {ranges, "ranges"},
      {keep_qkv, "keep qkv"},   {keep_scores, "keep scores"}};
  for (const auto& [on, part] : parts)
    if (on) captured.push_back(part);
  json out = {{"capture", captured},
              {"last_rows", mass_rows},
              {"js_rows", js_rows},
              {"budgets", budgets},
              {"sink", sink},
              {"lags", lags},
              {"ratios", ratios},
              {"map_samples", map_samples},
              {"map_type", type_name(map_type)},
              {"generated", generated}};
  out["proximities"] = json::array();
  for (const auto& proximity : proximities) out["proximities"].push_back(proximity_text(proximity));
  out["window_kinds"] = json::array();
  for (const auto& kind : window_kinds) out["window_kinds"].push_back(kind.label());
  if (agreement) out["agreement_counts"] = agreement_counts;
  if (keep_qkv) out["keep_layers"] = keep_layers;
  if (queries || covariance) out["skip_queries"] = skip_queries;
  return out.dump();
}

std::vector<AxisTable> axis_tables(const CaptureSettings& s) {
  std::vector<AxisTable> tables;
  using Values = std::vector<std::int64_t>;
  tables.push_back(table("proximity", {"initial", "recent"}, s.proximities,
                         [](const kernels::Proximity& p, Values& values) {
                           values.insert(values.end(), {p.initial, p.recent});
                           return proximity_text(p);
                         }));
  tables.push_back(
      table("window_kind", {"window", "kernel", "maximum"}, s.window_kinds,
            [](const WindowKind& k, Values& values) {
              values.insert(values.end(), {k.window, k.kernel, k.pooling == Pooling::maximum});
              return k.label();
            }));
  tables.push_back(table("budget", {"tokens"}, s.budgets, [](std::int64_t budget, Values& values) {
    values.push_back(budget);
    return str("budget=", budget);
  }));
  if (s.kept)
    tables.push_back(table("selection", {}, s.selections(),
                           [](const KeepRule& item, Values&) { return item.label; }));
  if (s.agreement)
    tables.push_back(table("proximal_count", {"tokens"}, s.agreement_counts,
                           [](std::int64_t count, Values& values) {
                             values.push_back(count);
                             return str("proximal=", count);
                           }));
  return tables;
}

std::vector<Description> descriptions(const CaptureSettings& s, const model::Config& c) {
  const std::int64_t L = c.n_layers, H = c.n_heads, K = c.n_kv_heads, d = c.head_dim;
  const auto P = static_cast<std::int64_t>(s.proximities.size());
  const auto W = static_cast<std::int64_t>(s.window_kinds.size());
  const auto B = static_cast<std::int64_t>(s.budgets.size());
  std::vector<Description> all;
  const auto fixed = [&](const char* name, Type type, std::vector<std::string> axes,
                         std::vector<std::int64_t> sizes, const char* unit, const char* meaning) {
    all.push_back({name, std::move(axes), unit, meaning, type, std::move(sizes), 0});
  };
  const auto own = [&](const std::string& name, Type type, std::vector<std::string> axes,
                       int single_axes, const char* unit, const char* meaning) {
    all.push_back({name, std::move(axes), unit, meaning, type, {}, single_axes});
  };
  if (s.lazy) {
    const std::vector<std::string> rows = {"proximity", "layer", "head", "row"};
    const std::vector<std::int64_t> row_sizes = {P, L, H, s.mass_rows};
    fixed(name::kMass, Type::f32, rows, row_sizes, "share",
          "attention of the last prompt rows, ascending, on their proximal keys; NaN for rows "
          "before the prompt");
    fixed(name::kProximalLse, Type::f32, rows, row_sizes, "nat",
          "log-sum-exp of those rows' scores over the proximal keys");
    fixed(name::kDistantLse, Type::f32, rows, row_sizes, "nat",
          "log-sum-exp over the other keys, -inf where there are none");
    const std::vector<std::string> row = {"proximity", "layer", "head"};
    fixed(name::kDecodeMass, Type::f32, row, {P, L, H}, "share",
          "attention of the first generated token on its proximal keys");
    fixed(name::kDecodeProximalLse, Type::f32, row, {P, L, H}, "nat",
          "log-sum-exp of its scores over the proximal keys");
    fixed(name::kDecodeDistantLse, Type::f32, row, {P, L, H}, "nat",
          "log-sum-exp over the other keys, -inf where there are none");
    fixed(name::kGeneratedTokens, Type::i32, {"step"}, {s.generated}, "token id",
          "the greedy continuation; -1 after its end");
    fixed(name::kGeneratedMass, Type::f32, {"proximity", "layer", "step"}, {P, L, s.generated},
          "share", "layer mass (mean over heads) of each generated token");
  }
  if (s.heatmap) {
    own(name::kRowPositions, Type::i32, {"row"}, 0, "position", "the strided prompt rows");
    own(name::kRowMass, Type::f32, {"proximity", "layer", "row"}, 1, "share",
        "layer mass (mean over heads) of those rows");
  }
  if (s.js)
    fixed(name::kDivergence, Type::f32, {"head", "layer", "layer"}, {H, L, L}, "bit",
          "Jensen-Shannon divergence of two layers' attention, mean over the last rows; similarity "
          "is 1 minus it");
  if (s.scores) {
    fixed(name::kCounts, Type::i64, {"window_kind", "budget", "layer"}, {W, B, L}, "count",
          "how many of the (budget - window) * heads * layers largest window scores lie in the "
          "layer");
    fixed(name::kRetention, Type::i64, {"window_kind", "layer"}, {W, L}, "count",
          "how many of the 128 * layers largest scores averaged over heads lie in the layer");
  }
  if (s.keep_scores)
    own(name::kWindowScores, Type::f32, {"window_kind", "layer", "head", "key"}, 2, "share",
        "the pooled window scores");
  if (s.kept) {
    const auto S = static_cast<std::int64_t>(s.selections().size());
    fixed(name::kKeptMass, Type::f32, {"selection", "layer", "kv_head"}, {S, L, K}, "share",
          "attention of the first generated token, mean over the KV head's query heads, on what "
          "the selection keeps of the prompt and on the token itself");
    fixed(name::kKeptTokens, Type::i32, {"selection", "layer"}, {S, L}, "count",
          "prompt tokens that each KV head keeps");
    if (s.maps)
      own(name::kKeptMask, Type::u8, {"selection", "layer", "kv_head", "byte"}, 1, "bits",
          "bit j % 8 (lowest first) of byte j / 8: whether prompt token j is kept");
  }
  if (s.norms) {
    fixed(name::kKeyNorm, Type::f32, {"layer", "kv_head", "statistic"}, {L, K, 4}, "norm",
          "Euclidean norm of the prompt's keys after RoPE: least, mean, standard deviation, "
          "greatest");
    fixed(name::kValueNorm, Type::f32, {"layer", "kv_head", "statistic"}, {L, K, 4}, "norm",
          "the same of the values");
    fixed(name::kKeyRange, Type::f32, {"bound", "layer", "kv_head", "channel"}, {2, L, K, d},
          "value", "least and greatest value of each channel of the keys");
    fixed(name::kValueRange, Type::f32, {"bound", "layer", "kv_head", "channel"}, {2, L, K, d},
          "value", "the same of the values");
    if (s.maps) {
      own(name::kKeyNormOfToken, Type::f32, {"layer", "kv_head", "token"}, 1, "norm",
          "norm of every key");
      own(name::kValueNormOfToken, Type::f32, {"layer", "kv_head", "token"}, 1, "norm",
          "norm of every value");
    }
  }
  if (s.next) {
    const std::int64_t top = std::min<std::int64_t>(20, c.vocab_size);
    fixed(name::kTopIds, Type::i32, {"rank"}, {top}, "token id",
          "best next tokens after the prompt");
    fixed(name::kTopLogits, Type::f32, {"rank"}, {top}, "logit", "their logits");
    fixed(name::kLogitSum, Type::f32, {"one"}, {1}, "logit", "sum of all logits");
    fixed(name::kLogSumExp, Type::f32, {"one"}, {1}, "nat", "log-sum-exp of all logits");
  }
  if (s.heads)
    fixed(name::kHeadReach, Type::f32, {"layer", "kv_head"}, {L, K}, "share",
          "mean over positions of the attention to that position or an earlier one, by the mean "
          "query and the mean key");
  if (s.queries || s.covariance)
    fixed(name::kQueryMean, Type::f32, {"layer", "head", "channel"}, {L, H, d}, "value",
          "mean of the queries before RoPE, without those of the first tokens");
  if (s.queries)
    fixed(name::kQueryMagnitude, Type::f32, {"layer", "head", "pair"}, {L, H, c.rotary_dim / 2},
          "value",
          "mean magnitude of those queries' pairs of channels, i and i + rotary channels / 2, that "
          "RoPE turns together");
  if (s.covariance)
    fixed(name::kQueryProducts, Type::f32, {"layer", "head", "channel", "channel"}, {L, H, d, d},
          "value squared", "mean of the products of those queries' channels");
  if (s.values)
    fixed(name::kValueCosine, Type::f32, {"kv_head", "layer", "layer"}, {K, L, L}, "cosine",
          "how alike the values of two layers are, the mean over the prompt's tokens");
  if (s.ranges) {
    fixed(name::kLargest, Type::f32, {"side", "layer", "kv_head"}, {3, L, K}, "value",
          "largest magnitude of the prompt's keys after RoPE, of its values, and of the KV head's "
          "queries after RoPE");
    fixed(name::kMagnitudes, Type::i64, {"side", "layer", "kv_head", "bin"},
          {3, L, K, kMagnitudeBins}, "count",
          "how many of their numbers have each magnitude: eight bins an octave from 2^-18 to 2^14, "
          "of which the first and the last also have what is beyond");
  }
  if (s.argmax)
    own(name::kArgmax, Type::i32, {"token"}, 0, "token id", "best next token after every position");
  if (s.agreement)
    fixed(name::kAgreement, Type::f32, {"proximal_count"},
          {static_cast<std::int64_t>(s.agreement_counts.size())}, "share",
          "share of the last 100 positions whose best next token stays when every token in every "
          "layer attends to so many proximal tokens alone");
  if (s.columns)
    own(name::kColumnSums, Type::f32, {"layer", "head", "key"}, 1, "share",
        "attention that each key takes, summed over all prompt rows");
  if (s.maps) {
    own(name::kMapBlocks, Type::i32, {"level"}, 0, "token", "tokens a side of a block");
    for (int level = 0; level < kMapLevels; ++level) {
      const std::vector<std::string> axes = {"layer", "head", "query_block", "key_block"};
      own(map_name(false, level), s.map_type, axes, 2, kLog2OfAShare,
          "mean attention of a block, zeros above the diagonal counted");
      own(map_name(true, level), s.map_type, axes, 2, kLog2OfAShare,
          "greatest attention in a block");
    }
    own(name::kRows, s.map_type, {"layer", "head", "row", "key"}, 2, kLog2OfAShare,
        "attention of the last prompt rows, ascending");
  }
  if (s.keep_qkv)
    for (const auto layer : s.keep_layers) {
      own(raw_name("query", layer), Type::f32, {"head", "token", "channel"}, 1, "value",
          "queries after RoPE");
      own(raw_name("key", layer), Type::f32, {"kv_head", "token", "channel"}, 1, "value",
          "keys after RoPE");
      own(raw_name("value", layer), Type::f32, {"kv_head", "token", "channel"}, 1, "value",
          "values");
    }
  return all;
}

std::vector<Description> text_descriptions() {
  return {{name::kTextBytes,
           {"byte"},
           "byte",
           "the texts of the prompt's tokens, one after the other; a token may end inside a "
           "character",
           Type::u8,
           {},
           0},
          {name::kTextEnds, {"token"}, "byte", "where each token's text ends", Type::i32, {}, 0}};
}

std::int64_t statistics_bytes(const CaptureSettings& settings, const model::Config& config) {
  std::int64_t bytes = 0;
  for (const auto& array : descriptions(settings, config))
    if (!array.sizes.empty()) bytes += byte_count(array.type, array.sizes);
  return bytes;
}

}  // namespace kvatlas::profile
