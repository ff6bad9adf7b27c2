// SPDX-License-Identifier: Apache-2.0
// Ladder: a task has about 96 queries of a head, in panels whose vector lanes are queries, and goes
// through the keys 96 at a time. For each panel: scores by tiles of 6 or 8 keys (which are
// broadcast as they lie), their exponentials lane by lane with a running maximum, then tiles of 6
// or 8 channels of the values. Queries, weights and results of a panel stay in L1, and no work is
// done for keys behind the diagonal beyond the panel.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/causal_attention.cpp"
#include "kernels/causal_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "kernels/check.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/math-inl.hpp"
#include "kernels/qk_tile-inl.hpp"
#include "kernels/tanh-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kKeyBlock = 96;
constexpr std::int64_t kPanels = std::max<std::int64_t>(1, 96 / kPanel);  // of a task

/// panel_tile of any number of rows; rows of `out` are kPanel long.
template <bool kAdjacent>
void panel_product(const float* rows, std::int64_t count, std::int64_t stride, const float* panel,
                   std::int64_t depth, bool add, float* out) {
  std::int64_t r = 0;
  const auto tiles = [&]<int kRows>(std::integral_constant<int, kRows>) {
    for (; r + kRows <= count; r += kRows)
      panel_tile<kRows, kAdjacent, kPanel>(rows + (kAdjacent ? r : r * stride), stride, panel,
                                           depth, add, out + r * kPanel);
  };
  tiles(std::integral_constant<int, static_cast<int>(kTileRows)>{});
  tiles(std::integral_constant<int, 4>{});
  tiles(std::integral_constant<int, 2>{});
  tiles(std::integral_constant<int, 1>{});
}

/// Queries that share vectors, and what is known of them so far.
class Panel {
 public:
  Panel(std::int64_t head_dim, std::int64_t value_dim)
      : value_dim_(value_dim),
        queries_(aligned<float>(head_dim * kPanel)),
        sums_(aligned<float>(value_dim * kPanel)) {}

  /// Rows row .. row + count of head h, the first of which is token `position`.
  void begin(const CausalAttention<float>& io, std::int64_t h, std::int64_t row, std::int64_t count,
             std::int64_t position, float factor) {
    head_ = h;
    row_ = row;
    count_ = count;
    first_ = position;
    const std::int64_t dim = io.queries.sizes[2];
    std::fill_n(queries_.get(), dim * kPanel, 0.0f);
    for (std::int64_t c = 0; c < count; ++c) {
      const float* from = &io.queries(h, row + c, 0);
      for (std::int64_t k = 0; k < dim; ++k) queries_[k * kPanel + c] = from[k] * factor;
    }
    std::fill_n(sums_.get(), value_dim_ * kPanel, 0.0f);
    std::fill_n(top_, kPanel, std::numeric_limits<float>::lowest());
    std::fill_n(total_, kPanel, 0.0f);
  }

  std::int64_t first() const { return first_; }
  std::int64_t end() const { return first_ + count_; }

  /// Takes the keys j .. j + count and their values. `weights`: room for kKeyBlock * kPanel.
  void take(const CausalAttention<float>& io, std::int64_t kv_head, std::int64_t j,
            std::int64_t count, float* weights) {
    panel_product<false>(&io.keys(kv_head, j, 0), count, io.keys.strides[1], queries_.get(),
                         io.queries.sizes[2], false, weights);
    if (io.soft_cap > 0) cap(weights, count * kPanel, io.soft_cap);
    if (j + count - 1 > first_ || j < io.window.first_key(end() - 1)) hide(io, j, count, weights);
    weigh(weights, count);
    panel_product<true>(&io.values(kv_head, j, 0), value_dim_, io.values.strides[1], weights, count,
                        true, sums_.get());
  }

  void finish(const CausalAttention<float>& io) const {
    for (std::int64_t c = 0; c < count_; ++c) {
      const float share = 1 / total_[c];
      float* to = &io.out(row_ + c, head_, 0);
      for (std::int64_t v = 0; v < value_dim_; ++v) to[v] = sums_[v * kPanel + c] * share;
      io.lse(head_, row_ + c) = static_cast<float>(static_cast<double>(top_[c]) +
                                                   std::log(static_cast<double>(total_[c])));
    }
  }

 private:
  static void cap(float* scores, std::int64_t count, float soft_cap) {
    const TileTag d;
    const auto size = hn::Set(d, soft_cap);
    for (std::int64_t c = 0; c < count; c += kTileLanes)
      hn::Store(hn::Mul(size, tanh(d, hn::Load(d, scores + c))), d, scores + c);
  }

  /// Minus infinity where a query does not see a key.
  void hide(const CausalAttention<float>& io, std::int64_t j, std::int64_t count,
            float* scores) const {
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    for (std::int64_t r = 0; r < count; ++r) {
      float* row = scores + r * kPanel;
      const std::int64_t low = std::clamp<std::int64_t>(j + r - first_, 0, kPanel);
      const std::int64_t high =
          std::clamp(io.window.end_query(j + r, io.keys.sizes[1]) - first_, low, kPanel);
      std::fill(row, row + low, kNever);
      // Lanes behind the last query are not looked at.
      if (first_ + high < end()) std::fill(row + high, row + kPanel, kNever);
    }
  }

  /// Scores become weights under the largest score so far, to which all before is fitted.
  void weigh(float* scores, std::int64_t count) {
    const TileTag d;
    // To powers of two after the subtraction: of large scores that would cost digits.
    const auto log2e = hn::Set(d, 1.4426950408889634f);
    for (std::int64_t v = 0; v < kPanel; v += kTileLanes) {
      const auto before = hn::Load(d, top_ + v);
      auto top = before;
      for (std::int64_t r = 0; r < count; ++r)
        top = hn::Max(top, hn::Load(d, scores + r * kPanel + v));
      auto sum = hn::Zero(d);
      for (std::int64_t r = 0; r < count; ++r) {
        float* at = scores + r * kPanel + v;
        const auto weight = exp2(d, hn::Mul(hn::Sub(hn::Load(d, at), top), log2e));
        sum = hn::Add(sum, weight);
        hn::Store(weight, d, at);
      }
      const auto shrink = exp2(d, hn::Mul(hn::Sub(before, top), log2e));
      hn::Store(top, d, top_ + v);
      hn::Store(hn::MulAdd(hn::Load(d, total_ + v), shrink, sum), d, total_ + v);
      for (std::int64_t c = 0; c < value_dim_; ++c) {
        float* at = sums_.get() + c * kPanel + v;
        hn::Store(hn::Mul(hn::Load(d, at), shrink), d, at);
      }
    }
  }

  std::int64_t value_dim_, head_ = 0, row_ = 0, count_ = 0, first_ = 0;
  hwy::AlignedFreeUniquePtr<float[]> queries_, sums_;  // [channel][query]
  HWY_ALIGN float top_[kPanel], total_[kPanel];
};

struct AttentionWorker {
  std::vector<std::unique_ptr<Panel>> panels;
  hwy::AlignedFreeUniquePtr<float[]> weights = aligned<float>(kKeyBlock * kPanel);
};

void causal_attention_body(const CausalAttention<float>& io) {
  const std::int64_t heads = io.queries.sizes[0], n = io.queries.sizes[1];
  const std::int64_t group = heads / io.keys.sizes[0], before = io.keys.sizes[1] - n;
  const float factor = io.soft_cap > 0 ? io.scale / io.soft_cap : io.scale;
  const std::int64_t blocks = (n + kPanels * kPanel - 1) / (kPanels * kPanel);
  std::vector<AttentionWorker> workers(static_cast<std::size_t>(thread_count()));
  // The last queries see the most keys, so the longest tasks start first.
  parallel_for(blocks * heads, [&](std::int64_t task, int number) {
    AttentionWorker& worker = workers[static_cast<std::size_t>(number)];
    const std::int64_t h = task % heads, begin = (blocks - 1 - task / heads) * kPanels * kPanel;
    std::int64_t end = begin;  // of the rows
    std::size_t used = 0;
    for (; used < kPanels && end < n; ++used) {
      if (worker.panels.size() == used)
        worker.panels.push_back(std::make_unique<Panel>(io.queries.sizes[2], io.values.sizes[2]));
      const std::int64_t count = std::min(kPanel, n - end);
      worker.panels[used]->begin(io, h, end, count, before + end, factor);
      end += count;
    }
    for (std::int64_t j = io.window.first_key(before + begin); j < before + end; j += kKeyBlock)
      for (std::size_t p = 0; p < used; ++p) {
        Panel& panel = *worker.panels[p];
        const std::int64_t first = std::max(j, io.window.first_key(panel.first()));
        const std::int64_t count = std::min(j + kKeyBlock, panel.end()) - first;
        if (count > 0) panel.take(io, h / group, first, count, worker.weights.get());
      }
    for (std::size_t p = 0; p < used; ++p) worker.panels[p]->finish(io);
  });
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvatlas::kernels {

HWY_EXPORT(causal_attention_body);

void causal_attention(const CausalAttention<float>& io) {
  obey_cpu_environment();
  require_causal_attention(io);
  if (io.queries.sizes[0] == 0 || io.queries.sizes[1] == 0) return;
  HWY_DYNAMIC_DISPATCH(causal_attention_body)(io);
}

}  // namespace kvatlas::kernels
#endif
