// SPDX-License-Identifier: Apache-2.0
// Cache policies: what they are made of, how they are written in a word or two, and the document
// that calibration leaves (docs/policy-format.md). LibTorch is not needed for any of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernels/lag_scores.hpp"
#include "kernels/last_rows.hpp"
#include "kernels/window_scores.hpp"

namespace kvatlas::calibrate {

using kernels::LagVariant;
using kernels::Pooling;
using kernels::Proximity;

/// [layer][KV head], 1 where only proximal tokens are kept.
using LazyHeads = std::vector<std::vector<std::uint8_t>>;

// The parts of a policy (docs/evaluation.md). Defaults are the papers'.

/// Every layer keeps the initial and the recent tokens; with initial 0 it is called "window".
struct Streaming {
  Proximity keep{4, 1024};
};

struct SimLayerKv {
  Proximity keep{4, 1024};
  double threshold = 0.9;
  enum class Identify : std::uint8_t { decode, prefill };
  Identify identify = Identify::decode;
  std::int64_t w_last = 32;  // prompt rows looked at by `prefill`
  bool per_head = false;     // every KV head by itself
  /// The control of Fig. 3: as many layers as are lazy are trimmed, those of the smallest mass.
  bool opposite = false;
  /// As kvpress decides: a row's own key is not counted, but one more key before the recent ones
  /// is, and prompts of up to initial + recent + 2 tokens stay whole.
  bool without_own_key = false;
  /// Trimmed beforehand, whatever the input: the static view. Rows of one entry count for all KV
  /// heads of the layer.
  std::optional<LazyHeads> fixed = {};
};

/// As many layers trimmed as SimLayerKV trims at this threshold, or `layers` of them.
struct LayerBaseline {
  enum class Choose : std::uint8_t { pyramid, random };  // the highest layers; layers by the seed
  enum class From : std::uint8_t { lower, upper, all };  // half of the layers, for random
  Choose choose = Choose::pyramid;
  From from = From::all;
  Proximity keep{4, 1024};
  double threshold = 0.9;
  std::optional<std::int64_t> layers = {};
  std::uint64_t seed = 0;
};

struct Pod {
  Proximity proximal{16, 4080};
  double delta = 0.5;
  bool per_query_head = false;   // granularity=head; else kv-head
  double tau = 1.0;              // heads whose g reaches it skip the distant part; at 1 none does
  std::string blocks_file = {};  // blocks=FILE: a profile or policy; empty: the prompt's own rows
  /// [query head][layer]: the lowest layer of the head's block. Empty: still to be found.
  std::vector<std::vector<std::int64_t>> lowest = {};
  bool operator==(const Pod&) const = default;
};

/// How DynamicKV, SnapKV and PyramidKV score tokens, and how many of them a layer keeps, the window
/// included.
struct WindowBudget {
  std::int64_t window = 16, budget = 128, kernel = 7;
  Pooling pooling = Pooling::average;
};

struct DynamicKv {
  WindowBudget select = {};
  double r_max = 10;
  /// [layer], the window not counted. Given: they hold for every input.
  std::optional<std::vector<std::int64_t>> fixed = {};
};

struct SnapKv {
  WindowBudget select = {};
  bool pyramid = false;  // PyramidKV: budgets fall linearly over the layers
};

struct H2o {
  std::int64_t budget = 128;
};

struct LagKv {
  std::int64_t sink = 16, lag = 128;
  std::string ratio = "1/4";  // as it was given: "0.25", "1/6"
  LagVariant variant = LagVariant::lag;
  std::int64_t keep() const;                     // tokens of a partition: int(ratio * lag)
  std::int64_t kept(std::int64_t tokens) const;  // of a prompt of so many
  bool operator==(const LagKv&) const = default;
};

struct MiniCache {
  double t = 0.6;
  std::int64_t recent = 1024;  // tokens that are not merged
  bool operator==(const MiniCache&) const = default;
};

struct Quest {
  std::int64_t page = 16, budget = 128;  // tokens a page; tokens read a step
  bool operator==(const Quest&) const = default;
};

using Part = std::variant<Streaming, SimLayerKv, LayerBaseline, Pod, DynamicKv, SnapKv, H2o, LagKv,
                          MiniCache, Quest>;

/// Parts applied together, in this order: at most one that trims layers (SimLayerKv,
/// LayerBaseline), at most one that selects tokens (it works on the layers that stay full), at most
/// one Pod. No parts: the full cache.
struct Policy {
  std::string name;  // as it was given, or what it is called in tables
  std::vector<Part> parts;
  int kv_bits = 16;      // 4 or 2: what is kept is stored so
  bool rolling = false;  // windows stay at their size while decoding
  /// A runtime's windows mask the prefill too (docs/runtimes.md, loss b).
  bool masks_prefill = false;
  /// Where a document keeps what it says of it: "lagkv", "simlayerkv/static", or kComposition;
  /// empty if it is of none.
  std::string section = {};
};

/// "simlayerkv:threshold=0.7,initial=4,recent=256+lagkv:lag=128". Error(usage) says which part and
/// which key, what was found and what is known.
Policy parse_policy(std::string_view text);
/// The shortest text that parse_policy reads as this policy (settings that are not the default, in
/// a fixed order). What has no inline form (fixed layers, budgets, blocks) is left out.
std::string policy_text(const Policy& policy);
/// The name that says most about a part: streaming with initial 0 is called "window".
std::string name_of(const Part& part);
/// Error(usage) for a composition that makes no sense, saying which two parts and why.
void check_composition(const Policy& policy);
/// The names and keys of inline policies with their meanings and defaults, for --help and docs.
std::string policy_help();

/// What a document says about the model that it is for.
struct ModelInfo {
  std::string name, architecture, fingerprint;
  std::int64_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
};

/// Where it comes from.
struct Provenance {
  std::string profile;  // fingerprint of the profile; may be empty
  std::int64_t samples = 0;
  std::vector<std::int64_t> lengths;  // tokens of the prompts, distinct, ascending
  std::vector<std::string> tasks;
  std::uint64_t seed = 0;
  std::string tool_version;
};

/// A policy document, `kvatlas.policy/1`. A section holds its method's policy under "settings" and
/// "result", and what calibration found, as JSON whose shape the schema gives: "curve" or "sweep",
/// "savings", "measured", and more.
struct Document {
  ModelInfo model;
  Provenance provenance;
  /// "simlayerkv", "pod", "dynamickv", "lagkv", "baseline", "heads" -> its section.
  nlohmann::json sections = nlohmann::json::object();
  /// The order of a composition; empty: every section is a policy of its own.
  std::vector<std::string> compose;
  int kv_bits = 16;
  std::string runtime;                               // that it was calibrated for; may be empty
  nlohmann::json pareto = nlohmann::json::array();   // the front it was chosen from
  nlohmann::json search = nlohmann::json::object();  // what was asked for, and how it was searched
  /// Members of a newer minor version, kept, and under "schema" that version's name.
  nlohmann::json unknown = nlohmann::json::object();
};

/// Writes a part as the section of a document ("settings" and "result"), and reads it back;
/// Error(unreadable) for what is no such section. "heads" is read as SimLayerKV with fixed heads.
nlohmann::json section_of(const Part& part);
Part part_of(const std::string& section, const nlohmann::json& json);
/// "simlayerkv", "pod", "dynamickv", "lagkv" or "baseline".
std::string section_name(const Part& part);

/// Canonical text: keys sorted, numbers with at most 9 significant digits, two spaces of
/// indentation, a line break at the end. Equal documents give equal bytes. Error(internal) if the
/// document does not meet the schema.
std::string document_text(const Document& document);
/// Any JSON in that form: keys sorted, lists of plain values in one line, two spaces of
/// indentation, numbers with at most 9 significant digits. Error(internal), naming the place, for a
/// number that is not finite, text that is not UTF-8, and what nests deeper than a document may.
std::string canonical_json(const nlohmann::json& json);

/// Error(unreadable), naming the place in the document, for what does not meet the schema or
/// contradicts itself (layers, heads, lists of other lengths); a newer major version is refused by
/// name, members of a newer minor one are kept.
Document parse_document(std::string_view text);
Document read_document(const std::filesystem::path& path);
/// Not over an existing file unless `force`; takes its name in one step.
void write_document(const Document& document, const std::filesystem::path& path, bool force);
/// Any text as a file, likewise: it is whole, or not there.
void write_whole(std::string_view text, const std::filesystem::path& path, bool force);
/// The JSON Schema (draft-07) that documents meet.
std::string_view document_schema();

inline constexpr const char* kComposition = "composition";
/// The policies that a document holds: one if it is a composition, else one a section. For
/// `task`, DynamicKV's budgets of that task (Error(usage) if it has none); empty: overall.
std::vector<Policy> policies_of(const Document& document, const std::string& task = {});

}  // namespace kvatlas::calibrate
