// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/precision.hpp"

#include <algorithm>

#include "base/str.hpp"
#include "base/text_count.hpp"

namespace kvatlas::calibrate {
namespace {

struct Choice {
  KvFormat format;
  double bytes, cost;
};

/// The formats of an item that are worth a step, from 16 bits to the fewest bytes: each step costs
/// more for the bytes that it saves than the one before.
std::vector<Choice> worthwhile(const StoredItem& item, std::span<const KvFormat> formats) {
  std::vector<Choice> choices = {
      {KvFormat::f16, item.values * facts_of(KvFormat::f16).bytes_per_value, 0}};
  for (std::size_t f = 0; f < formats.size(); ++f)
    choices.push_back(
        {formats[f], item.values * facts_of(formats[f]).bytes_per_value, item.cost[f]});
  std::stable_sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.cost < b.cost;
  });
  const auto price = [](const Choice& from, const Choice& to) {
    return (to.cost - from.cost) / (from.bytes - to.bytes);
  };
  std::vector<Choice> hull;
  for (const Choice& next : choices) {
    if (!hull.empty() && next.bytes == hull.back().bytes) continue;
    while (hull.size() > 1 && price(hull[hull.size() - 2], hull.back()) >= price(hull.back(), next))
      hull.pop_back();
    hull.push_back(next);
  }
  return hull;
}

/// "3 layers in q8_0, 1 in int4".
std::string side_text(std::span<const KvFormats> formats, KvFormat KvFormats::*side) {
  std::string text;
  for (std::size_t f = 0; f < kKvFormats.size(); ++f) {
    const auto count = std::count_if(formats.begin(), formats.end(), [&](const auto& layer) {
      return layer.*side == static_cast<KvFormat>(f);
    });
    if (count == 0) continue;
    text += text.empty() ? count_of(count, "layer", "layers") : str(", ", count);
    text += str(" in ", kKvFormats[f].word);
  }
  return text;
}

}  // namespace

std::vector<Allocation> allocations(std::span<const StoredItem> items,
                                    std::span<const KvFormat> formats) {
  struct Step {
    std::size_t item;
    Choice from, to;
    double price() const { return (to.cost - from.cost) / (from.bytes - to.bytes); }
  };
  std::vector<Step> steps;
  double all = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto hull = worthwhile(items[i], formats);
    all += hull.front().bytes;
    for (std::size_t c = 1; c < hull.size(); ++c) steps.push_back({i, hull[c - 1], hull[c]});
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.price() < b.price(); });
  std::vector<Allocation> out = {{std::vector<KvFormat>(items.size(), KvFormat::f16)}};
  double bytes = all;
  for (const Step& step : steps) {
    Allocation next = out.back();
    next.formats[step.item] = step.to.format;
    bytes += step.to.bytes - step.from.bytes;
    next.size = bytes / all;
    next.cost += step.to.cost - step.from.cost;
    out.push_back(std::move(next));
  }
  return out;
}

const Allocation& first_within(std::span<const Allocation> all, double size) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Allocation& one) { return one.size <= size + 1e-12; });
  return found == all.end() ? all.back() : *found;
}

std::string formats_text(std::span<const KvFormats> formats) {
  return str("keys: ", side_text(formats, &KvFormats::keys),
             "; values: ", side_text(formats, &KvFormats::values));
}

}  // namespace kvatlas::calibrate
