// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/precision.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/str.hpp"
#include "base/text_count.hpp"

namespace kvatlas::calibrate {
namespace {

constexpr double kPlainBytes = 2;  // of a number at 16 bits

struct Choice {
  KvFormat format;
  double bytes, cost;
};

/// What a step to fewer bytes costs for each byte that it saves.
double price_of(const Choice& from, const Choice& to) {
  return (to.cost - from.cost) / (from.bytes - to.bytes);
}

/// The formats of an item that are worth a step, from 16 bits to the fewest bytes: each step costs
/// more for the bytes that it saves than the one before.
std::vector<Choice> worthwhile(const StoredItem& item, std::span<const KvFormat> formats) {
  std::vector<Choice> choices = {{KvFormat::f16, item.values * kPlainBytes, 0}};
  for (std::size_t f = 0; f < formats.size(); ++f)
    if (std::isfinite(item.cost[f]))
      choices.push_back({formats[f], item.values * item.bytes[f], item.cost[f]});
  std::stable_sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.cost < b.cost;
  });
  std::vector<Choice> hull;
  for (const Choice& next : choices) {
    if (!hull.empty() && next.bytes == hull.back().bytes) continue;
    while (hull.size() > 1 &&
           price_of(hull[hull.size() - 2], hull.back()) >= price_of(hull.back(), next))
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

/// From the largest to the smallest, those that cost less than all others of at most their size.
std::vector<Allocation> undominated(std::vector<Allocation> all) {
  std::stable_sort(all.begin(), all.end(), [](const Allocation& a, const Allocation& b) {
    return a.size != b.size ? a.size < b.size : a.cost < b.cost;
  });
  std::vector<Allocation> out;
  for (Allocation& one : all)
    if (out.empty() || one.cost < out.back().cost) out.push_back(std::move(one));
  std::reverse(out.begin(), out.end());
  return out;
}

/// What items of one side weigh in each format, from the first to the last layer: what they cost
/// and, at some price, their bytes.
struct WeighedSide {
  std::vector<std::size_t> items;
  std::vector<std::vector<double>> sums;  // [format, 16 bits the last][layer]: of those before it

  /// The lightest format of the layers from `begin` to before `end`.
  std::pair<double, std::size_t> lightest(std::size_t begin, std::size_t end) const {
    std::pair<double, std::size_t> best{std::numeric_limits<double>::infinity(), 0};
    for (std::size_t f = 0; f < sums.size(); ++f)
      best = std::min(best, {sums[f][end] - sums[f][begin], f});
    return best;
  }
};

/// The lightest formats of a side's first layers, its last ones and those between.
void weigh_ends(const WeighedSide& side, std::span<const KvFormat> formats, Allocation& out) {
  const std::size_t layers = side.items.size();
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t first = 0; first <= layers; ++first)
    for (std::size_t last = first; last <= layers; ++last) {
      const std::pair<double, std::size_t> runs[] = {
          side.lightest(0, first), side.lightest(first, last), side.lightest(last, layers)};
      const double weight = runs[0].first + runs[1].first + runs[2].first;
      if (!(weight < least)) continue;
      least = weight;
      for (std::size_t l = 0; l < layers; ++l) {
        const std::size_t f = runs[l < first ? 0 : l < last ? 1 : 2].second;
        out.formats[side.items[l]] = f < formats.size() ? formats[f] : KvFormat::f16;
      }
    }
}

}  // namespace

std::vector<Allocation> allocations(std::span<const StoredItem> items,
                                    std::span<const KvFormat> formats) {
  struct Step {
    std::size_t item;
    Choice from, to;
    double price() const { return price_of(from, to); }
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

std::vector<Allocation> allocations_in_one_format(std::span<const StoredItem> items,
                                                  std::span<const KvFormat> formats) {
  std::vector<Allocation> all;
  for (std::size_t f = 0; f < formats.size(); ++f) {
    std::vector<StoredItem> in_it;
    for (const StoredItem& item : items)
      in_it.push_back({item.values, {item.cost[f]}, {item.bytes[f]}});
    for (Allocation& one : allocations(in_it, formats.subspan(f, 1))) all.push_back(std::move(one));
  }
  return undominated(std::move(all));
}

std::vector<Allocation> allocations_by_ends(std::span<const StoredItem> items,
                                            std::span<const KvFormat> formats) {
  std::set<double> prices = {0, std::numeric_limits<double>::max() / 1e100};
  for (const StoredItem& item : items) {
    const auto hull = worthwhile(item, formats);
    for (std::size_t c = 1; c < hull.size(); ++c) prices.insert(price_of(hull[c - 1], hull[c]));
  }
  std::vector<Allocation> all;
  for (const double price : prices) {
    Allocation one{std::vector<KvFormat>(items.size(), KvFormat::f16)};
    for (const std::size_t first : {0, 1}) {
      WeighedSide side{{}, std::vector<std::vector<double>>(formats.size() + 1, {0.0})};
      for (std::size_t i = first; i < items.size(); i += 2) {
        side.items.push_back(i);
        for (std::size_t f = 0; f <= formats.size(); ++f) {
          const bool plain = f == formats.size();
          side.sums[f].push_back(side.sums[f].back() + (plain ? 0 : items[i].cost[f]) +
                                 price * items[i].values *
                                     (plain ? kPlainBytes : items[i].bytes[f]));
        }
      }
      weigh_ends(side, formats, one);
    }
    double bytes = 0, plain = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto found = std::find(formats.begin(), formats.end(), one.formats[i]);
      const auto f = static_cast<std::size_t>(found - formats.begin());
      plain += items[i].values * kPlainBytes;
      bytes += items[i].values * (found == formats.end() ? kPlainBytes : items[i].bytes[f]);
      one.cost += found == formats.end() ? 0 : items[i].cost[f];
    }
    one.size = bytes / plain;
    all.push_back(std::move(one));
  }
  return undominated(std::move(all));
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
