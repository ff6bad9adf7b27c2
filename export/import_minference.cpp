// SPDX-License-Identifier: Apache-2.0
// MInference's best_pattern is a list with an object for each layer: "head" -> [kind, x, y, score].
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/str.hpp"
#include "export/import_impl.hpp"

namespace kvatlas::importing {
namespace {

using calibrate::LazyHeads;
using calibrate::Proximity;
using nlohmann::json;

/// The window of a head; nothing if the head has another pattern.
std::optional<Proximity> window_of(const json& pattern, const std::string& place) {
  if (!pattern.is_array() || pattern.size() != 4 || !pattern[0].is_string())
    fail(ErrorCode::unreadable, place, ": expected [kind, number, number, score]");
  const auto& kind = pattern[0].get_ref<const std::string&>();
  if (kind == "vertical_and_slash" || kind == "block_sparse") return std::nullopt;
  if (kind != "stream_llm")
    fail(ErrorCode::unreadable, place, ": found the kind ", quoted(kind, 40),
         ", expected stream_llm, vertical_and_slash or block_sparse");
  return Proximity{tokens_of(pattern[1], 0, place), tokens_of(pattern[2], 1, place)};
}

/// The heads that have a window, as flags[layer][query head], and the size that all windows have.
class Windows {
 public:
  Windows(const json& layers, std::int64_t heads, bool sizes_given)
      : heads_(static_cast<std::size_t>(heads)), sizes_given_(sizes_given) {
    for (const auto& layer : layers) {
      const std::string place = str("layer ", flags.size());
      flags.emplace_back(heads_, std::uint8_t{0});
      if (!layer.is_object()) fail(ErrorCode::unreadable, place, ": expected an object of heads");
      for (const auto& [key, pattern] : layer.items()) read(key, pattern, place);
    }
  }

  LazyHeads flags;
  std::optional<Proximity> size;

 private:
  void read(const std::string& key, const json& pattern, const std::string& layer) {
    const std::string place = str(layer, ", head ", printable(key, 40));
    std::size_t head = 0;
    const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), head);
    if (problem != std::errc() || end != key.data() + key.size() || head >= heads_)
      fail(ErrorCode::unreadable, place, ": expected a query head from 0 to ", heads_ - 1);
    const auto window = window_of(pattern, place);
    if (!window) return;
    flags.back()[head] = 1;
    if (size && !sizes_given_ &&
        (size->initial != window->initial || size->recent != window->recent))
      fail(ErrorCode::usage, place, ": found a window of ", window->initial, " initial and ",
           window->recent, " recent tokens where an earlier head has ", size->initial, " and ",
           size->recent, "; a policy has one size: give --initial and --recent");
    size = window;
  }

  std::size_t heads_;
  bool sizes_given_;
};

}  // namespace

calibrate::Document import_minference(std::string_view text, const ImportRequest& request) {
  const auto layers = parse_json(text, kDeepestPattern);
  if (!layers.is_array() || layers.empty())
    fail(ErrorCode::unreadable, "expected a list of layers, each an object of heads");
  const auto known = completed_model(request, static_cast<std::int64_t>(layers.size()), 0, 0);
  const Windows windows(layers, known.heads, request.initial && request.recent);
  const auto group = static_cast<std::size_t>(known.heads / known.kv_heads);
  LazyHeads lazy;
  for (const auto& row : windows.flags) {
    auto& out = lazy.emplace_back(static_cast<std::size_t>(known.kv_heads), std::uint8_t{1});
    for (std::size_t head = 0; head < row.size(); ++head)
      if (row[head] == 0) out[head / group] = 0;
  }
  return document_of(request, known, lazy, windows.size.value_or(Proximity{}));
}

}  // namespace kvatlas::importing
