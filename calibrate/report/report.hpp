// SPDX-License-Identifier: Apache-2.0
// What calibration, search and evaluation report in a policy document, as types (fields.hpp).
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/table.hpp"
#include "calibrate/report/fields.hpp"

namespace kvatlas::calibrate {

inline constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

/// A policy's scores at one length and depth of the prompts.
struct DepthScore {
  std::int64_t length = 0;
  double depth = kNotKnown;
  std::int64_t samples = 0;
  double score = kNotKnown;
  double digits_prefix = kNotKnown, digits_in_place = kNotKnown;  // of the pass keys among them

  void fields(auto& field) {
    field("length", length)("depth", depth)("samples", samples)("score", score)
        .maybe("digits_prefix", digits_prefix)
        .maybe("digits_in_place", digits_in_place);
  }
};

/// And at one turn of conversations.
struct TurnScore {
  std::int64_t turn = 0, samples = 0;
  Estimate score;

  void fields(auto& field) { field("turn", turn)("samples", samples)("score", score); }
};

/// What the cache holds while tokens are generated, in the mean over answers that are so long.
struct HeldOverTokens {
  std::vector<std::int64_t> tokens;
  std::vector<double> bytes;

  void fields(auto& field) { field("tokens", tokens)("bytes", bytes); }
};

/// What was measured of a policy on the model, beside the full cache. A loss is the full cache's
/// score less the policy's.
struct Measured {
  std::int64_t samples = 0, texts = 0;
  Estimate score, full, loss;  // 0 to 1; the loss from -1 to 1
  double kept_share = kNotKnown;
  std::optional<bool> held_out;  // from the choice of the policy; what calibration says
  Divergence kl;
  Estimate agreement, digits_prefix, digits_in_place;
  double read_bytes = kNotKnown, full_read_bytes = kNotKnown;  // in a step of decoding
  double prompt_read_share = kNotKnown;
  double held_mean_bytes = kNotKnown, held_peak_bytes = kNotKnown;
  double ms_per_token = kNotKnown, full_ms_per_token = kNotKnown;
  std::map<std::string, Measured> tasks;
  std::vector<DepthScore> depths, full_depths;
  std::vector<TurnScore> turns, full_turns;
  std::optional<HeldOverTokens> held, full_held;

  void fields(auto& field) {
    field("samples", samples)
        .maybe("texts", texts)("score", score)("full", full)("loss", loss)("kept_share", kept_share)
        .maybe("held_out", held_out)
        .maybe("kl", kl)
        .maybe("agreement", agreement)
        .maybe("digits_prefix", digits_prefix)
        .maybe("digits_in_place", digits_in_place)
        .maybe_count("read_bytes_per_token", read_bytes)
        .maybe_count("full_read_bytes_per_token", full_read_bytes)
        .maybe("prompt_read_share", prompt_read_share)
        .maybe_count("held_mean_bytes", held_mean_bytes)
        .maybe_count("held_peak_bytes", held_peak_bytes)
        .maybe("ms_per_token", ms_per_token)
        .maybe("full_ms_per_token", full_ms_per_token)
        .maybe("tasks", tasks)
        .maybe("by_length_and_depth", depths)
        .maybe("full_by_length_and_depth", full_depths)
        .maybe("by_turn", turns)
        .maybe("full_by_turn", full_turns)
        .maybe("held_over_tokens", held)
        .maybe("full_held_over_tokens", full_held);
  }
};

/// The score at one value of the setting that was searched.
struct CurvePoint {
  double setting = kNotKnown;
  Estimate score;
  double kept_share = kNotKnown, kv_ratio = kNotKnown, lazy_layers = kNotKnown;
};
/// The same with the setting's name in documents.
template <const char* kSetting>
struct PointOf : CurvePoint {
  void fields(auto& field) {
    field(kSetting, setting)("score", score.mean)("low", score.low)("high", score.high)
        .maybe("kept_share", kept_share)
        .maybe("kv_ratio", kv_ratio)
        .maybe("lazy_layers", lazy_layers);
  }
};
/// What settings that are searched are called in documents.
namespace searched {
inline constexpr char kThreshold[] = "threshold", kDelta[] = "delta", kBudget[] = "budget",
                      kTau[] = "tau", kTokens[] = "tokens";
}

/// What is saved at one length of the prompts. A method says what it knows.
struct Saving {
  std::int64_t length = 0, new_tokens = 0, kept = 0;
  double saved = kNotKnown, compression = kNotKnown;
  double layer_ratio = kNotKnown, kv_ratio = kNotKnown, kv_ratio_4bit = kNotKnown;
  double full_bytes = kNotKnown, kept_bytes = kNotKnown;
  std::optional<std::int64_t> full_batch, batch;  // that memory has room for

  void fields(auto& field) {
    field("length", length)
        .maybe("new_tokens", new_tokens)
        .maybe("kept", kept)
        .maybe("saved", saved)
        .maybe("compression", compression)
        .maybe("layer_ratio", layer_ratio)
        .maybe("kv_ratio", kv_ratio)
        .maybe("kv_ratio_4bit", kv_ratio_4bit)
        .maybe_count("full_bytes", full_bytes)
        .maybe_count("kept_bytes", kept_bytes)
        .maybe("full_batch", full_batch)
        .maybe("batch", batch);
  }
};

/// What the sections of all methods of calibration report.
struct MethodReport {
  std::string name;              // of a baseline, which its section has beside its settings
  std::optional<Estimate> full;  // the full cache's score on the samples of the choice
  double tolerance = kNotKnown;  // the share of the score that may be lost
  std::int64_t samples = 0;      // that the choice was made on
  std::optional<Measured> measured;
  std::map<std::string, Measured> runtimes;  // what they make of the policy, by their names
  std::vector<Saving> savings;

  void fields(auto& field) {
    field.maybe("name", name)
        .maybe("full", full)
        .maybe("tolerance", tolerance)
        .maybe("samples", samples)
        .maybe("measured", measured)
        .maybe("runtimes", runtimes)
        .maybe("savings", savings);
  }
};

/// Another policy that was tried beside the calibrated one.
struct ControlReport {
  std::optional<Measured> measured;

  void fields(auto& field) { field.maybe("measured", measured); }
};

/// The layers that are lazy for most inputs, whatever the input.
struct StaticLayersReport : ControlReport {
  double share = kNotKnown, disagreement = kNotKnown;
  std::vector<bool> lazy_layers;

  void fields(auto& field) {
    ControlReport::fields(field);
    field.maybe("share", share)
        .maybe("disagreement", disagreement)
        .maybe("lazy_layers", lazy_layers);
  }
};

struct LazyHeadsReport {
  std::vector<std::vector<double>> rates;
  std::vector<std::vector<bool>> lazy_heads;

  void fields(auto& field) { field.maybe("rates", rates).maybe("lazy_heads", lazy_heads); }
};

struct OppositeLayersReport : ControlReport {
  double layers = kNotKnown;

  void fields(auto& field) {
    ControlReport::fields(field);
    field.maybe("layers", layers);
  }
};

struct SimLayerKvReport : MethodReport {
  std::vector<PointOf<searched::kThreshold>> curve;
  std::vector<double> lazy_rates, consistency;  // by layer
  std::optional<StaticLayersReport> for_all;
  std::optional<LazyHeadsReport> per_head;
  std::optional<OppositeLayersReport> opposite;

  void fields(auto& field) {
    MethodReport::fields(field);
    field.maybe("curve", curve)
        .maybe("lazy_rates", lazy_rates)
        .maybe("consistency", consistency)
        .maybe("static", for_all)
        .maybe("per_head", per_head)
        .maybe("opposite", opposite);
  }
};

struct GateSkipped {
  double tau = kNotKnown, skipped = kNotKnown;

  void fields(auto& field) { field("tau", tau)("skipped", skipped); }
};

struct GateReport {
  std::vector<PointOf<searched::kTau>> curve;
  std::vector<GateSkipped> skipped;

  void fields(auto& field) { field.maybe("curve", curve).maybe("skipped", skipped); }
};

struct PodReport : MethodReport {
  struct Delta {
    double delta = kNotKnown, keys_dropped = kNotKnown;
    std::int64_t blocks = 0;
    std::vector<Saving> savings;

    void fields(auto& field) {
      field("delta", delta)("blocks", blocks)("keys_dropped", keys_dropped)("savings", savings);
    }
  };
  struct Agreement {
    std::int64_t tokens = 0;
    double agreement = kNotKnown;

    void fields(auto& field) { field("tokens", tokens)("agreement", agreement); }
  };
  std::vector<PointOf<searched::kDelta>> curve;
  std::vector<Delta> sweep;
  std::vector<PointOf<searched::kTokens>> proximal;
  std::vector<Agreement> agreement;
  std::optional<GateReport> gate;
  double keys_dropped = kNotKnown, memory_bytes = kNotKnown;

  void fields(auto& field) {
    MethodReport::fields(field);
    field.maybe("curve", curve)
        .maybe("sweep", sweep)
        .maybe("proximal", proximal)
        .maybe("agreement", agreement)
        .maybe("gate", gate)
        .maybe("keys_dropped", keys_dropped)
        .maybe_count("memory_bytes", memory_bytes);
  }
};

/// Budgets of one kind over all that were tried.
struct BudgetReport : MethodReport {
  std::vector<PointOf<searched::kBudget>> curve;
  std::int64_t recommended = 0;  // the smallest that keeps the score; 0: none does

  void fields(auto& field) {
    MethodReport::fields(field);
    field.maybe("curve", curve).maybe("recommended", recommended);
  }
};

struct DynamicKvReport : BudgetReport {
  /// Budgets of layers over samples.
  struct Budgets {
    std::vector<double> mean, deviation;
    std::vector<std::int64_t> least, most, exact;

    void fields(auto& field) {
      field("mean", mean)("deviation", deviation)("least", least)("most", most)("exact", exact);
    }
  };
  struct Level : Budgets {
    std::int64_t budget = 0;
    std::vector<double> raw, scaled;
    std::map<std::string, Budgets> tasks;
    std::vector<Saving> savings;

    void fields(auto& field) {
      Budgets::fields(field);
      field("budget", budget)("raw", raw)("scaled", scaled)("tasks", tasks)("savings", savings);
    }
  };
  std::vector<Level> sweep;
  std::map<std::string, std::vector<double>> retention;  // shares of layers, by task
  std::optional<BudgetReport> by_prompt, by_task;

  void fields(auto& field) {
    BudgetReport::fields(field);
    field.maybe("sweep", sweep)
        .maybe("retention", retention)
        .maybe("by_prompt", by_prompt)
        .maybe("by_task", by_task);
  }
};

struct HeadKvReport : BudgetReport {
  std::string rule;
  std::vector<std::vector<double>> distant;  // attention to distant tokens, [layer][KV head]
  std::optional<BudgetReport> even, other;

  void fields(auto& field) {
    BudgetReport::fields(field);
    field.maybe("rule", rule).maybe("distant", distant).maybe("even", even).maybe("other", other);
  }
};

struct LagCandidate {
  std::string variant, ratio;  // "lag", "local" or "l2"; "1/4"
  std::int64_t lag = 0, keep = 0, samples = 0;
  double compression = kNotKnown, full = kNotKnown, attention = kNotKnown;
  Estimate score;
  double digits_prefix = kNotKnown, digits_in_place = kNotKnown;
  double wanted_compression = kNotKnown;
  bool own() const { return variant == "lag"; }

  void fields(auto& field) {
    field("variant", variant)("ratio", ratio)("lag", lag)("keep", keep)
        .maybe("samples", samples)("compression", compression)
        .maybe("full", full)
        .maybe("attention", attention)
        .maybe("score", score.mean)
        .maybe("low", score.low)
        .maybe("high", score.high)
        .maybe("digits_prefix", digits_prefix)
        .maybe("digits_in_place", digits_in_place)
        .maybe("wanted_compression", wanted_compression);
  }
};

struct LagFront {
  std::vector<std::int64_t> compression, tokens;  // places in the sweep

  void fields(auto& field) { field("compression", compression)("tokens", tokens); }
};

struct LagKvReport : MethodReport {
  std::vector<LagCandidate> sweep;
  std::optional<LagCandidate> recommended;
  std::optional<LagFront> front;
  std::optional<ControlReport> local, l2;

  void fields(auto& field) {
    MethodReport::fields(field);
    field.maybe("sweep", sweep)
        .maybe("recommended", recommended)
        .maybe("front", front)
        .maybe("local", local)
        .maybe("l2", l2);
  }
};

/// What fewer bits cost one side of some layers alone.
struct FormatItem {
  std::vector<std::int64_t> layers;
  bool keys = false, values = false;
  std::vector<double> kl;  // of each format

  void fields(auto& field) { field("layers", layers)("keys", keys)("values", values)("kl", kl); }
};

struct FormatSensitivity {
  std::vector<std::string> formats;
  std::vector<FormatItem> items;
  std::int64_t samples = 0;

  void fields(auto& field) { field("formats", formats)("items", items).maybe("samples", samples); }
};

struct PrecisionReport : MethodReport {
  struct Point {
    double size = kNotKnown;
    Estimate score;
    double kl = kNotKnown, expected_kl = kNotKnown;
    std::vector<std::string> keys, values;  // formats by layer

    void fields(auto& field) {
      field("size", size)("score", score.mean)("low", score.low)("high", score.high)("kl", kl)(
          "expected_kl", expected_kl)("keys", keys)("values", values);
    }
  };
  std::vector<Point> curve;
  double size = kNotKnown;                  // the chosen point's
  std::map<std::string, Measured> uniform;  // one format in all layers, by its name
  std::optional<FormatSensitivity> sensitivity;

  void fields(auto& field) {
    MethodReport::fields(field);
    field.maybe("curve", curve)
        .maybe("size", size)
        .maybe("uniform", uniform)
        .maybe("sensitivity", sensitivity);
  }
};

/// A policy that a search tried, complete enough to become a document.
struct FrontEntry {
  std::string policy, family;
  double bytes = kNotKnown, kept_share = kNotKnown, attention_lost = kNotKnown;
  std::int64_t samples = 0, texts = 0;
  Estimate score, loss;
  double capped_kl = kNotKnown;
  std::optional<Measured> measured;
  bool chosen = false;
  nlohmann::json sections;
  std::vector<std::string> compose;
  int kv_bits = 16;

  void fields(auto& field) {
    field("policy", policy)("family", family)
        .count("bytes", bytes)("kept_share", kept_share)
        .maybe("attention_lost", attention_lost)("samples", samples)("texts", texts)(
            "score", score)("loss", loss)
        .maybe("capped_kl", capped_kl)
        .maybe("measured", measured)("chosen", chosen)("sections", sections)("compose", compose)(
            "kv_bits", kv_bits);
  }
};

/// What a search was asked for, and how it went.
struct SearchReport {
  double most_bytes = kNotKnown, max_loss_points = kNotKnown, full_score = kNotKnown;

  void fields(auto& field) {
    field.count("most_bytes", most_bytes)("max_loss_points", max_loss_points)("full_score",
                                                                              full_score);
  }
};

/// A policy that was tried beside a document's own.
struct ComparedEntry {
  std::string policy, runtime;
  Measured measured;

  void fields(auto& field) {
    field("policy", policy).maybe("runtime", runtime)("measured", measured);
  }
};

/// A row for each task and one for all of them.
Table measured_table(const std::string& title, const Measured& measured);

}  // namespace kvatlas::calibrate
