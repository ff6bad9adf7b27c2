// SPDX-License-Identifier: Apache-2.0
// The CPU body of top_counts. A histogram by leading bits finds the bin of each k-th largest score;
// only that bin's scores are kept for an exact selection. Scalar: counting into bins does not
// vectorise, and both passes already run near the speed of the second-level cache.
#include <algorithm>
#include <functional>

#include "base/parallel.hpp"
#include "kernels/check.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/select.hpp"
#include "kernels/top_counts_impl.hpp"

namespace kvatlas::kernels {
namespace {

constexpr std::uint32_t kBins = 4096;  // sign, exponent and three bits of mantissa
constexpr int kBinShift = 20;

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

/// Calls visit(key) for every score of a layer, in order.
template <class Visit>
void for_each_key(const View<const float, 3>& scores, std::int64_t layer, Visit&& visit) {
  const std::int64_t stride = scores.strides[2], n_positions = scores.sizes[2];
  for (std::int64_t head = 0; head < scores.sizes[1]; ++head) {
    const float* row = scores.at(layer, head);
    for (std::int64_t j = 0; j < n_positions; ++j) visit(rank_key(row[j * stride]));
  }
}

/// Where the k-th largest score lies: its bin, and the rank it has inside.
struct Place {
  std::uint32_t bin;
  std::int64_t rank;
};
Place find_place(const std::vector<std::int64_t>& bins, std::int64_t k) {
  for (std::uint32_t bin = kBins - 1;; --bin) {
    if (k <= bins[bin] || bin == 0) return {bin, k};
    k -= bins[bin];
  }
}

void top_counts_cpu(const TopCounts& io) {
  const std::int64_t n_layers = io.scores.sizes[0];
  std::vector<std::vector<std::uint32_t>> bins(size(n_layers));
  parallel_for(n_layers, [&](std::int64_t layer, int) {
    // Two histograms, for neighbouring scores often fall into one bin and would wait for each
    // other.
    std::vector<std::uint32_t> counts(2 * kBins);
    std::uint32_t half = 0;
    for_each_key(io.scores, layer, [&](std::uint32_t key) {
      ++counts[half + (key >> kBinShift)];
      half ^= kBins;
    });
    for (std::uint32_t bin = 0; bin < kBins; ++bin) counts[bin] += counts[kBins + bin];
    counts.resize(kBins);
    bins[size(layer)] = std::move(counts);
  });
  std::vector<std::int64_t> total(kBins);
  for (const auto& of_layer : bins)
    for (std::uint32_t bin = 0; bin < kBins; ++bin) total[bin] += of_layer[bin];

  constexpr std::uint8_t kUnused = 255;
  for (std::size_t first = 0; first < io.k.size();
       first += kUnused) {  // bins of so many k at a time
    const std::size_t last = std::min(io.k.size(), first + kUnused);
    std::vector<std::uint8_t> slot_of(kBins, kUnused);
    std::uint8_t slots = 0;
    std::vector<Place> places;
    for (std::size_t i = first; i < last; ++i) {
      places.push_back(find_place(total, io.k[i]));
      auto& slot = slot_of[places.back().bin];
      if (slot == kUnused) slot = slots++;
    }
    // [layer][slot]: the keys of that bin.
    std::vector<std::vector<std::vector<std::uint32_t>>> kept(size(n_layers));
    parallel_for(n_layers, [&](std::int64_t layer, int) {
      auto& of_layer = kept[size(layer)];
      of_layer.resize(slots);
      for (std::uint32_t bin = 0; bin < kBins; ++bin)
        if (slot_of[bin] != kUnused) of_layer[slot_of[bin]].reserve(bins[size(layer)][bin]);
      for_each_key(io.scores, layer, [&](std::uint32_t key) {
        const std::uint8_t slot = slot_of[key >> kBinShift];
        if (slot != kUnused) of_layer[slot].push_back(key);
      });
    });

    parallel_for(static_cast<std::int64_t>(last - first), [&](std::int64_t task, int) {
      const auto [bin, rank] = places[size(task)];
      const std::uint8_t slot = slot_of[bin];
      std::vector<std::uint32_t> candidates;
      for (const auto& of_layer : kept)
        candidates.insert(candidates.end(), of_layer[slot].begin(), of_layer[slot].end());
      std::uint32_t threshold = 0xffffffffu;  // rank 0 takes nothing
      if (rank > 0) {
        const auto nth = candidates.begin() + (rank - 1);
        std::nth_element(candidates.begin(), nth, candidates.end(), std::greater<>());
        threshold = *nth;
      }
      const std::int64_t row = static_cast<std::int64_t>(first) + task;
      std::vector<std::int64_t> ties(size(n_layers));
      std::int64_t ties_left = rank;
      for (std::int64_t layer = 0; layer < n_layers; ++layer) {
        std::int64_t above = 0;
        for (const std::uint32_t key : kept[size(layer)][slot]) {
          above += key > threshold;
          ties[size(layer)] += key == threshold;
        }
        ties_left -= above;
        for (std::uint32_t higher = bin + 1; higher < kBins; ++higher)
          above += bins[size(layer)][higher];
        io.counts(row, layer) = above;
      }
      for (std::int64_t layer = 0; layer < n_layers; ++layer) {
        const std::int64_t taken = std::min(ties_left, ties[size(layer)]);
        io.counts(row, layer) += taken;
        ties_left -= taken;
      }
    });
  }
}

}  // namespace

void top_counts(const TopCounts& io, const Exec& exec) {
  require_array("scores", io.scores);
  require_array("counts", io.counts);
  const auto n_k = static_cast<std::int64_t>(io.k.size());
  require_shape("counts", io.counts.sizes, {n_k, io.scores.sizes[0]});
  for (const std::int64_t k : io.k) require_range("k", k, 0, io.scores.count());
  // A bin of one layer is counted in 32 bits.
  if (io.scores.sizes[0] > 0)
    require_range("scores a layer", io.scores.count() / io.scores.sizes[0], 0, 0x7fffffff);
  require_same_memory("counts", io.counts.memory, io.scores.memory);
  run_body(choose(exec, io.scores.memory), exec, io, reference::top_counts, top_counts_cpu,
           KVATLAS_CUDA_BODY(top_counts));
}

}  // namespace kvatlas::kernels
