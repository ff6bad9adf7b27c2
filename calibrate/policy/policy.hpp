// SPDX-License-Identifier: Apache-2.0
// Cache policies: the parts that they are made of, their short text form ("lagkv:lag=64+kv4"), and
// the JSON document that calibration writes (docs/policy-format.md). None of it needs LibTorch.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/pooling.hpp"
#include "calibrate/policy/kv_format.hpp"
#include "kernels/lag_scores.hpp"
#include "kernels/last_rows.hpp"
#include "kernels/select.hpp"

namespace kvatlas::calibrate {

using kernels::LagVariant;
using kernels::Proximity;
using kvatlas::Pooling;

/// [layer][KV head]: 1 where only the initial and recent tokens are kept, else 0.
using LazyHeads = std::vector<std::vector<std::uint8_t>>;

// The parts of a policy (docs/evaluation.md). Their settings have the defaults of the papers; the
// table in policy_settings.hpp says how each setting is called and which values it may have.

/// Every layer keeps its first and its last tokens. With initial = 0 the part is called "window".
struct Streaming {
  Proximity keep = {};
};

/// Layers that attend mostly to the first and the last tokens are lazy: they keep only those.
struct SimLayerKv {
  Proximity keep = {};
  double threshold = 0.9;
  enum class Identify : std::uint8_t { decode, prefill };
  Identify identify = Identify::decode;
  std::int64_t w_last = 32;  // how many of the last prompt rows `prefill` looks at
  bool per_head = false;     // KV heads are lazy one by one, not whole layers
  /// The control experiment of the paper's figure 3: as many layers are trimmed as are lazy, but
  /// those with the smallest mass on the first and last tokens.
  bool opposite = false;
  /// Decides as kvpress does: a row's own key is not counted, one more key before the recent ones
  /// is counted in its place, and prompts of up to initial + recent + 2 tokens stay whole.
  bool without_own_key = false;
  /// What is trimmed for every input alike. If it is given, nothing is decided by the input. A row
  /// with one entry speaks for all KV heads of the layer.
  std::optional<LazyHeads> fixed = {};
};

/// To compare SimLayerKV with: trims `layers` layers, or if that is not given as many as SimLayerKV
/// would trim at the threshold, but chooses them otherwise.
struct LayerBaseline {
  enum class Choose : std::uint8_t { pyramid, random };  // the highest layers, or drawn by the seed
  enum class From : std::uint8_t { lower, upper, all };  // which half `random` draws from
  Choose choose = Choose::pyramid;
  From from = From::all;
  Proximity keep = {};
  double threshold = 0.9;
  std::optional<std::int64_t> layers = {};
  std::uint64_t seed = 0;
  std::int64_t draws = 5;  // of `random`: the seeds from `seed` on, each a policy of its own
  /// How `pyramid` saves as many tokens as so many trimmed layers do: the highest layers keep their
  /// windows alone, or the windows of all layers shrink from the lowest layer to the highest.
  enum class Shape : std::uint8_t { top, linear };
  Shape shape = Shape::linear;
};

/// Layers of a block share the keys of distant tokens (docs/pod.md).
struct Pod {
  Proximity proximal{16, 4080};
  double delta = 0.5;
  bool per_query_head = false;  // each query head has blocks of its own, not each KV head
  double tau = 1.0;             // heads whose gate reaches it skip the distant part; at 1 none does
  /// Keys are shared while the prompt is read too, not while decoding alone.
  bool shared_prefill = false;
  /// The profile or policy to take the blocks from. If it is empty, the rows of the prompt decide.
  std::string blocks_file = {};
  /// [query head][layer]: the lowest layer of the head's block. Empty until the blocks are found.
  std::vector<std::vector<std::int64_t>> lowest = {};
  bool operator==(const Pod&) const = default;
};

/// How DynamicKV, HeadKV, SnapKV, PyramidKV, AdaKV, ChunkKV and CriticalKV score tokens, and how
/// many of them a layer keeps on average, the window included.
struct WindowBudget {
  std::int64_t window = 16, budget = 128, kernel = 7;
  Pooling pooling = Pooling::average;
  bool per_query_head = false;  // each query head keeps tokens of its own, not each KV head

  std::int64_t share(double of) const {  // of the budget
    return static_cast<std::int64_t>(static_cast<double>(budget) * of);
  }
};

/// Each layer gets its share of the budget by the scores of the prompt (docs/dynamickv.md).
struct DynamicKv {
  WindowBudget select = {};
  double r_max = 10;  // no layer keeps more than so many times the average, the window not counted
  /// [layer]: tokens kept besides the window, for every input alike. If it is not given, each
  /// prompt decides.
  std::optional<std::vector<std::int64_t>> fixed = {};
  /// Where each prompt decides: after how many layers the layers so far are cut, again and again. 0
  /// means once, after the last layer.
  std::int64_t update = 0;
};

/// [layer][KV head]: tokens that a head keeps besides the window.
using HeadBudgets = std::vector<std::vector<std::int64_t>>;

/// Each KV head has a budget of its own (docs/headkv.md).
struct HeadKv {
  WindowBudget select = {};
  double safeguard = 0.2;  // the share of the budget that each head keeps at least
  std::int64_t safe() const { return select.share(safeguard); }
  /// For every input alike. If it is not given, the best scores of each prompt are kept, in
  /// whichever head of whichever layer they are.
  std::optional<HeadBudgets> fixed = {};
};

/// Every layer keeps the same number of tokens with the best scores.
struct SnapKv {
  WindowBudget select = {};
  bool pyramid =
      false;  // PyramidKV: the budgets fall linearly from the lowest layer to the highest
};

/// The heads of a layer share its budget: the best scores of all of them are kept, wherever they
/// are.
struct AdaKv {
  WindowBudget select = {};
  double safeguard = 0.2;  // the share of the budget that each head keeps at least
  std::int64_t safe() const { return select.share(safeguard); }
};

/// Keeps chunks of neighbouring tokens, those with the best scores in the sum over the heads: the
/// same tokens in all heads of a layer.
struct ChunkKv {
  WindowBudget select = {};
  std::int64_t chunk = 20;
  std::int64_t chunks(std::int64_t tokens) const { return (tokens + chunk - 1) / chunk; }
  /// How many chunks are kept of a prompt of so many tokens: as many as the budget holds, and one
  /// at least.
  std::int64_t chunks_kept(std::int64_t tokens) const;
  /// How many tokens are kept of it, if the last chunk, which may be shorter, is among them.
  std::int64_t kept(std::int64_t tokens) const;
  /// Whether it is, for every prompt of so many tokens: the window has the better half of it.
  bool keeps_last(std::int64_t tokens) const { return tokens % chunk <= 2 * select.window; }
};

/// Keeps tokens by SnapKV's scores, and then by these and what their values give to the output.
struct CriticalKv {
  WindowBudget select = {};
  double share = 0.5;     // of the budget that the scores alone decide on
  double epsilon = 1e-4;  // added to the scores that are weighed by the values
  std::int64_t first() const {
    return share > 0 ? std::max<std::int64_t>(1, select.share(share)) : 0;
  }
};

/// Keeps the tokens that took most attention, and as many of the most recent ones.
struct H2o {
  std::int64_t budget = 128;
  std::optional<std::int64_t> heavy = {};  // of them for the most attention; half if not given
  std::int64_t heaviest() const { return heavy.value_or(kernels::h2o_heavy(budget)); }
};

/// Keeps the last token, and the tokens that it attends to most in the mean over all heads of a
/// layer: the same tokens in all of them.
struct Tova {
  std::int64_t budget = 128;
};

/// Keeps the tokens whose keys are least like the mean of all keys of their head.
struct KeyDiff {
  std::int64_t budget = 128;
};

/// Keeps the tokens that queries behind the prompt would attend to most, if they were spread as
/// those of the prompt are.
struct ExpectedAttention {
  std::int64_t budget = 128;
  std::int64_t sink = 4;      // first tokens kept, whose queries are not counted
  std::int64_t future = 512;  // positions behind the prompt that queries are put at
  bool covariance = true;     // how queries vary is counted, not their mean alone
  bool values = true;         // scores are multiplied by the norms of values
  double epsilon = 0;         // and before that this is added to them
};

/// How the model is asked to repeat a prompt that it has read (docs/evaluation.md).
struct Repetition {
  std::int64_t sink = 4;      // first tokens that are attended to while any part is repeated
  std::int64_t chunk = 2048;  // tokens that are repeated at a time
  bool operator==(const Repetition&) const = default;
  bool operator<(const Repetition& other) const {
    return std::tie(sink, chunk) < std::tie(other.sink, other.chunk);
  }
};

/// Keeps the tokens that the model attends to most while it repeats the prompt. All heads of all
/// layers share the budget.
struct KvZip {
  std::int64_t budget = 128;  // tokens a head, in the mean over all heads
  Repetition repetition = {};
  bool layerwise = false;  // the heads of each layer share a budget of their own
};

/// As settings and reports call it.
constexpr const char* variant_word(LagVariant variant) {
  return variant == LagVariant::lag ? "lag" : variant == LagVariant::local ? "local" : "l2";
}
/// Cuts the cache in partitions, each scored against the next one (docs/lagkv.md).
struct LagKv {
  std::int64_t sink = 16, lag = 128;
  std::string ratio = "1/4";  // share of a partition kept, as it was written: "0.25", "1/6"
  LagVariant variant = LagVariant::lag;
  std::int64_t keep() const;                     // tokens kept of a partition: int(ratio * lag)
  std::int64_t kept(std::int64_t tokens) const;  // tokens kept of a prompt of so many tokens
  bool operator==(const LagKv&) const = default;
};

/// Holds a budget while tokens are generated too: after each `every` of them, every KV head keeps
/// the `budget` tokens with the best scores of those that it then holds (docs/decoding.md).
struct Decoding {
  std::int64_t budget = 128, every = 64;
  /// What scores a token: what the selections of these names score a prompt by; with l2 the length
  /// of its key, with rkv attention less what later keys say as well, with streaming its place,
  /// with triattention what the prompt's mean query would give it from places behind.
  enum class By : std::uint8_t { snapkv, h2o, tova, keydiff, l2, rkv, streaming, triattention };
  By by = By::snapkv;
  std::int64_t window = 16;   // snapkv, rkv: the last tokens, which score the others; kept
  std::int64_t kernel = 7;    // snapkv, rkv: positions that attention is pooled over
  std::int64_t initial = 4;   // streaming: the first tokens, which are kept
  double lambda = 0.1;        // rkv: the weight of attention; the rest is redundancy's
  bool whole_prompt = false;  // the prompt is not cut before the first `every` tokens are there

  /// How many of the last tokens are kept whatever their scores are.
  std::int64_t kept_last() const;
  bool operator==(const Decoding&) const = default;
};

/// Merges pairs of adjacent layers in the upper half of the model.
struct MiniCache {
  double t = 0.6;              // where between the two layers their merged direction lies
  std::int64_t retain = 1024;  // tokens that are not merged, those whose directions differ most
  bool operator==(const MiniCache&) const = default;
};

/// Layers of a block share the values of the prompt's first tokens. Each keeps the lengths of its
/// own (docs/evaluation.md).
struct ShareValues {
  double delta = 0.5;          // least mean cosine of the values of a block's layers
  std::int64_t recent = 1024;  // tokens whose values are not shared
  /// [KV head][layer]: the lowest layer of the block. Empty until the prompt is read.
  std::vector<std::vector<std::int64_t>> lowest = {};
  bool operator==(const ShareValues&) const = default;
};

/// Keeps the whole cache, but each step reads only the pages with the best bounds.
struct Quest {
  std::int64_t page = 16, budget = 128;  // tokens in a page, and tokens read at each step
  bool operator==(const Quest&) const = default;
};

/// What a scale of FP8 numbers may be: float32 holds it, its inverse and 448 times it.
inline constexpr double kLeastScale = 1e-30, kLargestScale = 1e30;

/// [layer]: a number for all KV heads, or one for each.
using HeadScales = std::vector<std::vector<double>>;

/// What numbers are divided by before they are rounded to FP8, and multiplied by when they are read
/// (docs/precision.md). Queries, which some kernels round too, have none where `queries` is empty.
struct Fp8Scales {
  HeadScales keys, values, queries = {};
  bool operator==(const Fp8Scales&) const = default;
};

/// The scale of a KV head; 1 where there are none.
inline double scale_in(const HeadScales& scales, std::int64_t layer, std::int64_t kv_head) {
  if (scales.empty()) return 1;
  const auto& row = scales[static_cast<std::size_t>(layer)];
  return row[row.size() == 1 ? 0 : static_cast<std::size_t>(kv_head)];
}

/// Keys and values are stored in number formats of fewer bits, those of each layer in formats of
/// its own (docs/precision.md).
struct Precision {
  KvFormats everywhere{KvFormat::fp8, KvFormat::fp8};  // in all layers
  /// [layer]: the formats of each layer. If it is given, it stands in place of `everywhere`.
  std::optional<std::vector<KvFormats>> fixed = {};
  /// The tokens of the prompt, too, attend to the rounded keys and values, as in a server that
  /// reads them back from its cache.
  bool rounded_prefill = false;
  std::optional<Fp8Scales> scales = {};  // of layers in FP8; others ignore theirs
  /// Layers that stay at 16 bits whatever the formats are, as "0:1:-2:-1": negative numbers count
  /// from the last layer.
  std::string skip = {};
  /// Queries are rounded to E4M3 where a layer is in a floating-point format, as some kernels do.
  bool fp8_queries = false;
  /// Tokens of the prompt that a server reads at a time, 0 for all: what its first tokens attend to
  /// depends on it in some formats (KvFormatFacts::first_chunk_exact).
  std::int64_t chunk = 0;
  bool operator==(const Precision&) const = default;
};

/// The formats of each of so many layers.
std::vector<KvFormats> layer_formats(const Precision& part, std::int64_t layers);
/// Precision::skip as numbers. Error(usage) says what it should have been.
std::vector<std::int64_t> skipped_layers(std::string_view skip);
/// As Precision::skip: the layers, of so many, that are at 16 bits.
std::string skip_text(const std::vector<KvFormats>& formats);

/// Keeps the whole cache, but each token of the prompt attends only to the columns and diagonals
/// that the prompt's last rows attend to most, in each query head to its own.
struct VerticalSlash {
  std::int64_t vertical = 1000, slash = 6096;  // columns and diagonals
  std::int64_t last = 64;                      // rows that choose them
  std::int64_t initial = 30, recent = 100;     // columns and diagonals that are chosen always
  bool operator==(const VerticalSlash&) const = default;
};

using Part = std::variant<Streaming, SimLayerKv, LayerBaseline, Pod, DynamicKv, HeadKv, SnapKv,
                          AdaKv, ChunkKv, CriticalKv, H2o, Tova, KeyDiff, ExpectedAttention, KvZip,
                          LagKv, Decoding, MiniCache, ShareValues, Quest, Precision, VerticalSlash>;

/// How the part scores tokens by the last rows of the prompt; nullptr if it does not. AnyPart is a
/// Part or a const Part.
template <class AnyPart>
auto* window_budget(AnyPart& part) {
  using Found = decltype(&std::get<SnapKv>(part).select);
  return std::visit(
      [](auto& one) -> Found {
        if constexpr (requires { one.select; })
          return &one.select;
        else
          return nullptr;
      },
      part);
}

/// The first and last tokens that layers keep which the part trims; nullptr if it trims none.
template <class AnyPart>
auto* kept_window(AnyPart& part) {
  using Found = decltype(&std::get<Streaming>(part).keep);
  return std::visit(
      [](auto& one) -> Found {
        if constexpr (requires { one.keep.recent; })
          return &one.keep;
        else
          return nullptr;
      },
      part);
}

/// Parts that are applied together, in this order: at most one that trims layers (SimLayerKv,
/// LayerBaseline), at most one that selects tokens in the layers that stay full, at most one Pod,
/// at most one Precision, and at most one VerticalSlash. A policy without parts keeps the full
/// cache.
struct Policy {
  std::string name;  // its text as the user gave it, or what tables call it
  std::vector<Part> parts;
  int kv_bits = 16;              // bits that keys and values are stored in: 16, 4 or 2
  std::int64_t kv_residual = 0;  // with 4 or 2 bits: how many of the last tokens stay at 16
  bool rolling = false;          // windows keep their size while tokens are generated
  /// The runtime's windows hide tokens from the prompt's own rows too (docs/runtimes.md, loss b).
  bool masks_prefill = false;
  /// Where a document describes this policy: "lagkv", "simlayerkv/static" or kComposition. Empty if
  /// the policy is not from a document.
  std::string section = {};
};

/// The policy's part of this type, of which it has one at most; nullptr if it has none.
template <class P>
const P* part_of_type(const Policy& policy) {
  for (const Part& part : policy.parts)
    if (const P* found = std::get_if<P>(&part)) return found;
  return nullptr;
}

/// The formats in which each of so many layers stores what it keeps.
std::vector<KvFormats> formats_of(const Policy& policy, std::int64_t layers);

/// Reads a text such as "simlayerkv:threshold=0.7,initial=4,recent=256+lagkv:lag=128". Error(usage)
/// names the part and the key that are wrong, what was found, and what is known.
Policy parse_policy(std::string_view text);
/// The shortest text that parse_policy reads as this policy: settings that are not the default, in
/// a fixed order. What only a document can hold (fixed layers, budgets, blocks) is left out.
std::string policy_text(const Policy& policy);
/// The name that says most about a part: streaming with initial 0 is called "window".
std::string name_of(const Part& part);
/// What is tried for these policies, one behind the other: of one that draws layers several times
/// each draw, as a policy of its own with the same name, else itself.
std::vector<Policy> draws_of(std::span<const Policy> policies);
/// Error(usage) for parts that cannot be combined, naming the two parts and the reason.
void check_composition(const Policy& policy);
/// All parts and their settings with meanings, defaults and ranges, for --help and for the docs.
std::string policy_help();

/// The model that a document is for.
struct ModelInfo {
  std::string name, architecture, fingerprint;
  std::int64_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  /// [layer]: how many tokens the model itself lets a query see, 0 for all. Empty if all layers see
  /// all tokens.
  std::vector<std::int64_t> windows = {};
  /// As in profile::Header: which of the model's layers have attention, if not all, and how many
  /// numbers a token takes in each one's cache, if not a key and a value a KV head.
  std::vector<std::int64_t> layer_numbers = {}, cached_values = {};
  std::int64_t latent_rank = 0;
};

/// Error(usage) for a policy that a cache like the model's cannot follow: heads that share one
/// latent keep the same tokens, and so do layers that read the keys of others.
void check_cache(const Policy& policy, const ModelInfo& model);

/// What a document was calibrated from.
struct Provenance {
  std::string profile;                // fingerprint of the profile; may be empty
  std::int64_t samples = 0;           // prompts that calibration looked at
  std::vector<std::int64_t> lengths;  // their tokens: distinct numbers, ascending
  std::vector<std::string> tasks;
  /// Of generated prompts: the least and the largest seed, by task.
  std::map<std::string, std::array<std::int64_t, 2>> seeds;
  /// Of other prompts: hashes of their tokens (prompt_hash), ascending.
  std::vector<std::string> prompts;
  std::uint64_t seed = 0;
  std::string tool_version;
};

/// A policy document, `kvatlas.policy/1`. Each section holds the policy of one method under
/// "settings" and "result", and besides what calibration found: "curve", "sweep", "savings",
/// "measured" and more. The schema gives the shape of all this.
struct Document {
  ModelInfo model;
  Provenance provenance;
  /// The sections by name: "simlayerkv", "pod", "dynamickv", "headkv", "lagkv", "precision",
  /// "baseline" and "heads".
  nlohmann::json sections = nlohmann::json::object();
  /// The sections that make up one policy together. If it is empty, each section is a policy of its
  /// own.
  std::vector<std::string> compose;
  int kv_bits = 16;
  std::int64_t kv_residual = 0;
  std::string runtime;  // the runtime that it was calibrated for; may be empty
  /// The policies that no other beats in both memory and score; this one was chosen from them.
  nlohmann::json pareto = nlohmann::json::array();
  /// What a search was asked for, what it tried and what that cost.
  nlohmann::json search = nlohmann::json::object();
  /// Other policies that were tried on the same prompts: "policy" as text and "measured".
  nlohmann::json compared = nlohmann::json::array();
  /// Members that this version does not know because a newer minor version wrote them. They are
  /// kept, with the name of that version under "schema".
  nlohmann::json unknown = nlohmann::json::object();
};

/// A part as the section of a document ("settings" and "result"), and a part read from a section.
/// Error(unreadable) if it is no such section. "heads" becomes SimLayerKV with fixed heads.
nlohmann::json section_of(const Part& part);
Part part_of(const std::string& section, const nlohmann::json& json);
/// The section that holds such a part: "simlayerkv", "pod", "dynamickv", "headkv", "lagkv",
/// "precision" or "baseline".
std::string section_name(const Part& part);

/// The document as canonical_json, so that equal documents give equal bytes. Error(internal) if it
/// does not meet the schema.
std::string document_text(const Document& document);
/// JSON with sorted keys, two spaces of indentation, lists of plain values in one line, numbers
/// with at most 9 significant digits, and a line break at the end. Error(internal) names the place
/// of a number that is not finite, of text that is not UTF-8, and of what nests deeper than a
/// document may.
std::string canonical_json(const nlohmann::json& json);

/// Error(unreadable) names the place of what does not meet the schema or contradicts itself, such
/// as a list that is not as long as the model has layers. A newer major version is refused by its
/// name; members of a newer minor version are kept.
Document parse_document(std::string_view text);
/// Of a policy that was given as text.
Document document_of(const Policy& policy, ModelInfo model);
Document read_document(const std::filesystem::path& path);
/// Replaces an existing file only if `force` is true. The file is there as a whole or not at all.
void write_document(const Document& document, const std::filesystem::path& path, bool force);
/// The JSON Schema (draft-07) that every document meets.
std::string_view document_schema();

inline constexpr const char* kComposition = "composition";
/// The policies that a document holds: one if its sections are composed, else one for each section.
/// If a task is named, DynamicKV takes the budgets of that task; Error(usage) if there are none.
std::vector<Policy> policies_of(const Document& document, const std::string& task = {});

}  // namespace kvatlas::calibrate
