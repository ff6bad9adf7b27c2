// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <sstream>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/policy/policy_settings.hpp"

namespace kvatlas::calibrate {
namespace {

constexpr std::size_t kLongestText = 4096;

struct Modifier {
  const char *name, *meaning;
  int bits;  // that keys and values are stored in
};
constexpr Modifier kModifiers[] = {
    {"kv4", "what is kept is stored in 4 bits", 4},
    {"kv2", "what is kept is stored in 2 bits", 2},
    {"rolling", "windows stay at their size while decoding", 16},
};
constexpr const char* kResidual = "residual";
constexpr WholeRange kResidualRange{0, std::int64_t{1} << 24};

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> pieces;
  while (true) {
    const auto end = text.find(at);
    pieces.emplace_back(text.substr(0, end));
    if (end == text.npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

/// Letters to change, add or leave out to make one word of the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

std::vector<std::string> all_names() {
  std::vector<std::string> names = {"full"};
  for (const auto& part : part_names()) names.push_back(part.name);
  for (const auto& modifier : kModifiers) names.emplace_back(modifier.name);
  for (const KvFormatFacts& format : kKvFormats)
    if (format.word != facts_of(KvFormat::f16).word) names.emplace_back(format.word);
  return names;
}

[[noreturn]] void fail_unknown_name(const std::string& name) {
  const auto names = all_names();
  auto words = wrapped_lines(name, 0);
  if (words.size() > 1 && words[0] != "full" &&
      std::find(names.begin(), names.end(), words[0]) != names.end()) {
    const std::string first = words[0];
    words.erase(words.begin());
    fail(ErrorCode::usage, "a colon is missing after '", first, "': write ",
         printable(first + ":" + join(words, ",")));
  }
  std::vector<std::string> near;
  for (const auto& known : names)
    if (!name.empty() && name.size() < 32 &&
        distance(name, known) <= std::max<std::size_t>(1, known.size() / 3))
      near.push_back(known);
  if (near.empty())
    fail(ErrorCode::usage, "there is no policy ", quoted(name), "; known are ", join(names));
  fail(ErrorCode::usage, "there is no policy ", quoted(name), "; did you mean ", join(near, " or "),
       "?");
}

struct Pair {
  std::string key, value;
};

std::vector<Pair> read_pairs(std::string_view text) {
  std::vector<Pair> pairs;
  for (const auto& piece : split(text, ',')) {
    const auto equals = piece.find('=');
    if (equals == piece.npos || equals == 0 || equals + 1 == piece.size())
      fail(ErrorCode::usage, quoted(piece), ": expected key=value");
    const auto key = piece.substr(0, equals);
    for (const auto& earlier : pairs)
      if (earlier.key == key) fail(ErrorCode::usage, "'", printable(key), "' is given twice");
    pairs.push_back({key, piece.substr(equals + 1)});
  }
  return pairs;
}

const Pair* find_pair(const std::vector<Pair>& pairs, std::string_view key) {
  const auto found =
      std::find_if(pairs.begin(), pairs.end(), [&](const Pair& pair) { return pair.key == key; });
  return found == pairs.end() ? nullptr : &*found;
}

void set_all(const PartName& known, const std::vector<Pair>& pairs, Part& part) {
  for (const auto& [key, meaning, allowed, get, set] : known.settings) {
    const Pair* given = find_pair(pairs, key);
    if (!given) continue;
    const auto value = value_from_text(allowed, given->value);
    if (!is_allowed(allowed, value))
      fail(ErrorCode::usage, key, "=", printable(given->value), ": expected ",
           expected_text(allowed));
    set(part, value);
  }
  for (const auto& pair : pairs)
    if (const auto lack = lack_of_setting(known, pair.key); !lack.empty())
      fail(ErrorCode::usage, "there is no key ", quoted(pair.key), lack);
}

Part parse_part(const std::string& text) {
  const auto colon = text.find(':');
  const auto name = text.substr(0, colon);
  const PartName* known = find_part(name);
  const auto format = kv_format_called(name);
  if (!known && format && *format != KvFormat::f16) known = find_part(method::kPrecision.name);
  if (!known) fail_unknown_name(name);
  return in_context(name, [&] {
    if (colon == text.size() - 1) fail(ErrorCode::usage, "expected key=value behind the colon");
    std::vector<Pair> pairs;
    if (colon != text.npos) pairs = read_pairs(std::string_view(text).substr(colon + 1));
    Part part = known->standard;
    if (auto* precision = std::get_if<Precision>(&part); precision && format)
      precision->everywhere = {*format, *format};
    set_all(*known, pairs, part);
    if (find_pair(pairs, "layers") && find_pair(pairs, "threshold"))
      fail(ErrorCode::usage, "give 'threshold' or 'layers', not both");
    check_settings(part);
    return part;
  });
}

std::string part_text(Part part) {
  // Where the number of layers is given, the threshold is not used, and may not be written beside.
  if (auto* baseline = std::get_if<LayerBaseline>(&part); baseline && baseline->layers)
    baseline->threshold = LayerBaseline{}.threshold;
  const PartName& known = row_of(part);
  std::vector<std::string> pairs;
  for (const auto& setting : known.settings)
    if (const auto value = setting.get(part); value != setting.get(known.standard))
      pairs.push_back(setting.key + "=" + value_text(value));
  return pairs.empty() ? known.name : known.name + ":" + join(pairs, ",");
}

/// In the order of PartKind.
constexpr const char* kKindText[] = {"trim layers",
                                     "select tokens",
                                     "share keys",
                                     "change what layers hold",
                                     "say how numbers are stored",
                                     "say what the prompt's tokens attend to"};

/// Whether all heads of a layer keep the same tokens.
bool keeps_by_layer(const Part& part) {
  if (const auto* lazy = std::get_if<SimLayerKv>(&part)) return !lazy->per_head;
  if (const auto* decoding = std::get_if<Decoding>(&part))
    return decoding->by == Decoding::By::tova || decoding->by == Decoding::By::streaming;
  return traits_of(part).by_layer;
}

const Modifier* find_modifier(std::string_view name) {
  const auto found = std::find_if(std::begin(kModifiers), std::end(kModifiers),
                                  [&](const Modifier& known) { return known.name == name; });
  return found == std::end(kModifiers) ? nullptr : found;
}

std::int64_t parse_residual(const std::string& settings) {
  const auto pairs = read_pairs(settings);
  const Pair& pair = pairs.front();
  if (pairs.size() > 1 || pair.key != kResidual)
    fail(ErrorCode::usage, "there is no key ", quoted(pairs.back().key), "; known is ", kResidual);
  const auto value = value_from_text(kResidualRange, pair.value);
  if (!is_allowed(kResidualRange, value))
    fail(ErrorCode::usage, kResidual, "=", printable(pair.value), ": expected ",
         expected_text(kResidualRange));
  return value.get<std::int64_t>();
}

void set_modifier(Policy& policy, const Modifier& modifier, const std::string* settings) {
  const bool rolls = modifier.bits == 16;
  if (rolls ? policy.rolling : policy.kv_bits != 16)
    fail(ErrorCode::usage, "'", modifier.name, "' comes on top of another of its kind");
  if (rolls && settings) fail(ErrorCode::usage, "'", modifier.name, "' has no settings");
  if (rolls)
    policy.rolling = true;
  else
    policy.kv_bits = modifier.bits;
  if (settings)
    policy.kv_residual = in_context(modifier.name, [&] { return parse_residual(*settings); });
}

}  // namespace

std::vector<Policy> draws_of(std::span<const Policy> policies) {
  std::vector<Policy> out;
  for (const Policy& policy : policies) {
    out.push_back(policy);
    for (std::size_t i = 0; i < policy.parts.size(); ++i) {
      const auto* drawn = std::get_if<LayerBaseline>(&policy.parts[i]);
      if (!drawn || drawn->choose != LayerBaseline::Choose::random) continue;
      out.pop_back();
      for (std::int64_t draw = 0; draw < drawn->draws; ++draw) {
        auto& one = std::get<LayerBaseline>(out.emplace_back(policy).parts[i]);
        one.seed += static_cast<std::uint64_t>(draw);
        one.draws = 1;
      }
    }
  }
  return out;
}

std::vector<KvFormats> formats_of(const Policy& policy, std::int64_t layers) {
  if (const auto* precision = part_of_type<Precision>(policy))
    return layer_formats(*precision, layers);
  const KvFormat format = policy.kv_bits == 4   ? KvFormat::int4
                          : policy.kv_bits == 2 ? KvFormat::int2
                                                : KvFormat::f16;
  return std::vector<KvFormats>(static_cast<std::size_t>(layers), {format, format});
}

Policy parse_policy(std::string_view text) {
  if (text.size() > kLongestText)
    fail(ErrorCode::usage, "a policy of ", text.size(), " characters; at most ", kLongestText,
         " are read");
  return in_context("policy " + quoted(text), [&] {
    Policy policy;
    policy.name = text;
    bool full = false;
    for (const auto& piece : split(text, '+')) {
      const auto colon = piece.find(':');
      const std::string settings = colon == piece.npos ? "" : piece.substr(colon + 1);
      if (const auto* modifier = find_modifier(std::string_view(piece).substr(0, colon)))
        set_modifier(policy, *modifier, colon == piece.npos ? nullptr : &settings);
      else if (piece == "full" && !full)
        full = true;
      else
        policy.parts.push_back(parse_part(piece));
    }
    const auto cuts = [](const Part& part) { return traits_of(part).kind != PartKind::stores; };
    if (full && std::any_of(policy.parts.begin(), policy.parts.end(), cuts))
      fail(ErrorCode::usage, "'full' keeps the whole cache, and '", name_of(policy.parts[0]),
           "' does not");
    order_parts(policy.parts);
    check_composition(policy);
    return policy;
  });
}

void order_parts(std::vector<Part>& parts) {
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return traits_of(a).kind < traits_of(b).kind;
  });
}

std::string policy_text(const Policy& policy) {
  std::vector<std::string> pieces;
  for (const auto& part : policy.parts) pieces.push_back(part_text(part));
  if (pieces.empty()) pieces.emplace_back("full");
  if (policy.kv_bits != 16)
    pieces.push_back(
        str("kv", policy.kv_bits,
            policy.kv_residual > 0 ? str(":", kResidual, "=", policy.kv_residual) : ""));
  if (policy.rolling) pieces.emplace_back("rolling");
  return join(pieces, "+");
}

void check_composition(const Policy& policy) {
  for (std::size_t i = 0; i < policy.parts.size(); ++i)
    for (std::size_t j = i + 1; j < policy.parts.size(); ++j) {
      const auto first = name_of(policy.parts[i]), second = name_of(policy.parts[j]);
      const PartKind a = traits_of(policy.parts[i]).kind, b = traits_of(policy.parts[j]).kind;
      if (a == b)
        fail(ErrorCode::usage, "'", first, "' and '", second, "' both ",
             kKindText[static_cast<std::size_t>(a)], ": a policy has one such part");
      if (a == PartKind::merges || b == PartKind::merges)
        fail(ErrorCode::usage, "'", first, "' and '", second,
             "': ", a == PartKind::merges ? first : second,
             " changes layers that hold the same tokens with keys of their own, so it stands "
             "alone");
    }
  const auto any_part = [&](const auto& test) {
    return std::any_of(policy.parts.begin(), policy.parts.end(), test);
  };
  const bool changes_cache = any_part([](const Part& part) {
    return traits_of(part).kind != PartKind::reads && !std::holds_alternative<Quest>(part);
  });
  if (part_of_type<Quest>(policy) && (changes_cache || policy.kv_bits != 16))
    fail(ErrorCode::usage, "'", policy_text(policy),
         "': quest chooses pages of the whole cache anew at each step, so it stands alone");
  if (policy.kv_bits != 16 && part_of_type<Precision>(policy))
    fail(ErrorCode::usage, "'", policy_text(policy), "': 'kv", policy.kv_bits,
         "' and 'precision' both say how numbers are stored");
  if (policy.kv_bits != 16 && policy.kv_bits != 4 && policy.kv_bits != 2)
    fail(ErrorCode::usage, "keys and values of ", policy.kv_bits, " bits: expected 16, 4 or 2");
  if (policy.kv_residual > 0 && policy.kv_bits == 16)
    fail(ErrorCode::usage, "the last ", policy.kv_residual,
         " tokens stay at 16 bits, and no others are stored in fewer");
  const bool by_query_head = any_part([](const Part& part) {
    const auto* select = window_budget(part);
    return select && select->per_query_head;
  });
  if (by_query_head && policy.kv_residual > 0)
    fail(ErrorCode::usage, "'", policy_text(policy),
         "': with heads=query all tokens of the prompt are stored in fewer bits, so it has no "
         "residual");
  const auto* pod = part_of_type<Pod>(policy);
  if (pod && part_of_type<Decoding>(policy))
    fail(ErrorCode::usage, "'", policy_text(policy),
         "': 'decoding' chooses tokens anew in each layer, whose keys pod would share with others");
  if (by_query_head && pod)
    fail(ErrorCode::usage, "'", policy_text(policy),
         "': pod shares the keys of KV heads, so heads=query cannot be composed with it");
  if ((policy.rolling || policy.masks_prefill) &&
      !any_part([](const Part& part) { return kept_window(part); }))
    fail(ErrorCode::usage, "'", policy.rolling ? "rolling" : "a masked prefill",
         "' is said of windows, and no part of '", policy_text(policy), "' has one");
}

void check_cache(const Policy& policy, const ModelInfo& model) {
  if (model.cached_values.empty()) return;
  const bool latent = model.latent_rank > 0;
  const bool shared = std::find(model.cached_values.begin(), model.cached_values.end(), 0) !=
                      model.cached_values.end();
  const auto refuse = [&](const std::string& what, const char* why) {
    fail(ErrorCode::usage, "'", what, "' does not fit the model, ", why);
  };
  constexpr const char* kNotOfHeads =
      "which does not cache a key and a value of each head: what fewer bits cost there is not "
      "simulated";
  for (const Part& part : policy.parts) {
    const PartKind kind = traits_of(part).kind;
    if (kind == PartKind::stores) {
      if (latent || shared) refuse(name_of(part), kNotOfHeads);
      continue;
    }
    if (kind == PartKind::reads || std::holds_alternative<Streaming>(part)) continue;
    if (std::holds_alternative<ShareValues>(part))
      refuse(name_of(part),
             "whose layers do not all cache a key and a value of each head: their values cannot be "
             "compared");
    if (latent && !keeps_by_layer(part))
      refuse(name_of(part),
             "which caches one latent for all heads of a layer: heads cannot keep "
             "tokens of their own");
    if (shared)
      refuse(name_of(part),
             "some of whose layers read the keys of others: layers cannot keep "
             "tokens of their own");
    if (std::holds_alternative<LagKv>(part))
      refuse(name_of(part),
             "whose layers have heads of different sizes: the scores would depend "
             "on how they are filled up");
  }
  if (policy.kv_bits != 16 && (latent || shared)) refuse(str("kv", policy.kv_bits), kNotOfHeads);
}

std::string policy_help() {
  std::ostringstream out;
  out << "full\n    the whole cache\n";
  for (const auto& part : part_names()) {
    out << part.name << "\n    " << part.meaning << '\n';
    for (const auto& setting : part.settings) {
      const auto value = value_text(setting.get(part.standard));
      const auto range = range_text(setting.allowed);
      out << "      " << setting.key << (value.empty() ? "" : "=" + value) << "  ";
      out << setting.meaning << (range.empty() ? "" : " (" + range + ")") << '\n';
    }
  }
  for (const auto& [name, meaning, bits] : kModifiers) {
    out << '+' << name << "\n    " << meaning << '\n';
    if (bits < 16)
      out << "      " << kResidual << "=0  last tokens that stay at 16 bits ("
          << range_text(kResidualRange) << ")\n";
  }
  out << "A number format's name alone, such as +int8_per_token_head:skip=0:-1, is precision with "
         "it "
         "for keys\nand values.\n";
  out << "Composed with '+': one part that trims layers (simlayerkv, pyramid-layers, "
         "random-layers),\none that selects tokens in the layers that stay full, pod, precision, "
         "and vertical-slash.\n";
  return out.str();
}

}  // namespace kvatlas::calibrate
