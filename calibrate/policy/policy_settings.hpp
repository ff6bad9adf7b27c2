// SPDX-License-Identifier: Apache-2.0
// The one table of all parts of a policy and of their settings. Inline text, documents, help,
// command line options, the controls of the viewer and the checks all work from it; a test compares
// the JSON Schema and the table of the Python package with it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

// Which values a setting may have. Both ends belong to a range.
struct WholeRange {
  std::int64_t least, most;
  bool odd = false;
};
struct NumberRange {
  double least, most;
};
struct AnySeed {};  // a whole number from 0 to 2^64 - 1
struct YesOrNo {};
struct TextLength {
  std::int64_t least, most;  // characters
};
struct OneOf {
  std::vector<std::string_view> words;
};
using Allowed = std::variant<WholeRange, NumberRange, AnySeed, YesOrNo, TextLength, OneOf>;

/// A setting of a part. Its default is the value that the part's standard has.
struct Setting {
  std::string key, meaning;
  Allowed allowed;
  /// The value in a part that has the setting; null or "" if it is not given.
  std::function<nlohmann::json(const Part&)> get;
  /// Takes an allowed value.
  std::function<void(Part&, const nlohmann::json&)> set;
};

/// What a part does to the cache; of each kind a policy has one at most, in this order.
enum class PartKind : std::uint8_t { trims, selects, shares, merges, stores, reads };

/// The forms in which a method reaches a runtime.
enum class Form : std::uint8_t {
  lazy_layers,       // a fixed set of lazy layers; in streaming, all layers are lazy
  lazy_by_input,     // lazy layers that are found by a threshold for each input
  lazy_heads,        // a fixed set of lazy KV heads
  pod,               // layers that share keys
  dynamickv,         // a budget for each layer
  headkv,            // a budget for each KV head
  lagkv,             // partitions cut by lag
  precision,         // number formats of keys and values
  selected,          // the tokens of the best scores, as many in every head
  selected_by_head,  // and more of them in some heads than in others
  decoding,          // a budget that holds while tokens are generated
};

/// What holds of a part with its standard settings.
struct PartTraits {
  PartKind kind = PartKind::selects;
  std::optional<Form> form = {};  // none for baselines, which no runtime is given
  /// Continuations read the prompt's cache where it lies: nothing in it is selected one by one or
  /// changed.
  bool in_place = false;
  bool by_layer = false;  // all heads of a layer keep the same tokens
  /// What texts and charts call a selection of another paper. It needs no calibration but a budget,
  /// which a search looks for; in documents it is a baseline.
  std::string_view title = {};
};

struct PartName {
  std::string name, meaning;
  Part standard;                  // with the settings that hold where none are given
  std::vector<Setting> settings;  // in the order of the help
  PartTraits traits = {};         // where names share a type, all but the title stand in the first
};

/// All names that a part may be called by, in the order of the help.
const std::vector<PartName>& part_names();
/// nullptr if no part is called so.
const PartName* find_part(std::string_view name);

/// The selections of other papers, by name.
std::vector<const PartName*> selections();
/// What a part of a policy is called in texts and charts, by its word; the word itself if it has no
/// title.
std::string_view title_of(std::string_view part);
/// The row of the name that says most about the part.
const PartName& row_of(const Part& part);
const PartTraits& traits_of(const Part& part);

/// Empty if the part has the setting. Else what follows "there is no setting ...": which one says
/// something like it, or which there are.
std::string lack_of_setting(const PartName& part, std::string_view key);

/// A setting of the part of this name. Both must be in the table.
const Setting& setting_named(std::string_view part, std::string_view key);
/// What the setting is where it is not given, as value_text writes it.
std::string default_text(std::string_view part, std::string_view key);

/// The words of a setting that is a choice, in the order of the enumeration that keeps it.
const std::vector<std::string_view>& setting_words(std::string_view part, std::string_view key);

/// "0 to 1", "layer or head"; "" if every text is allowed.
std::string range_text(const Allowed& allowed);
/// "a number from 0 to 1": what a refused value should have been.
std::string expected_text(const Allowed& allowed);
bool is_allowed(const Allowed& allowed, const nlohmann::json& value);
/// The value that a word stands for, or null if it stands for none of this kind. The value may be
/// out of range.
nlohmann::json value_from_text(const Allowed& allowed, const std::string& text);
/// The shortest text that value_from_text reads as this value.
std::string value_text(const nlohmann::json& value);

/// Error(usage) for settings that contradict each other.
void check_settings(const Part& part);
/// Sorts parts into the order in which they are applied.
void order_parts(std::vector<Part>& parts);

}  // namespace kvatlas::calibrate
