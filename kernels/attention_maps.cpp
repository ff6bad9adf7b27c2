// SPDX-License-Identifier: Apache-2.0
// Ladder: products of 6 or 8 rows with a stripe of 384 keys go to a buffer in L1, then one pass
// over it takes the exponentials and adds them up by column; blocks and columns are closed at block
// borders and every 256 rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_maps.cpp"
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "kernels/attention_maps_impl.hpp"
#include "kernels/check.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/math-inl.hpp"
#include "kernels/qk_tile-inl.hpp"
#include "kernels/tanh-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr double kLog2e = 1.4426950408889634, kLn2 = 0.6931471805599453;
// Terms that one float32 sum takes before it goes to float64.
constexpr std::int64_t kSumRows = 256;

/// The factor on one side of the product after which `finish_scores` gives scores in powers of two.
HWY_INLINE float row_factor(const CausalScores& scores) {
  return scores.soft_cap > 0 ? scores.scale / scores.soft_cap
                             : static_cast<float>(static_cast<double>(scores.scale) * kLog2e);
}

/// soft_cap * log2 e * tanh(x) over the first `rows` rows of the columns begin .. end, if there is
/// a cap.
HWY_INLINE void finish_scores(const CausalScores& scores, float* products, std::int64_t rows,
                              std::int64_t begin, std::int64_t end) {
  if (!(scores.soft_cap > 0)) return;
  const TileTag d;
  const auto cap = hn::Set(d, static_cast<float>(static_cast<double>(scores.soft_cap) * kLog2e));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = begin; c < end; c += kTileLanes) {
      float* at = products + r * kStripe + c;
      hn::Store(hn::Mul(cap, tanh(d, hn::Load(d, at))), d, at);
    }
  }
}

/// One thread's work on stripes of keys.
class MapWorker {
 public:
  explicit MapWorker(const AttentionMaps& io)
      : io_(io),
        n_(io.lse.sizes[1]),
        tile_(io.scores.queries.sizes[2]),
        column_totals_(kStripe),
        shares_(kStripe) {}

  /// The key blocks first .. first + count of head h, all rows.
  void run(std::int64_t h, std::int64_t first, std::int64_t count) {
    first_block_ = first;
    count_ = count;
    row_blocks_ = map_blocks(n_, io_.block);
    sums_.assign(static_cast<std::size_t>(row_blocks_ * count), 0.0);
    maxima_.assign(sums_.size(), 0.0f);
    const std::int64_t end = std::min(n_, (first + count) * io_.block);
    for (std::int64_t key = first * io_.block; key < end; key += kStripe)
      run_stripe(h, key, std::min(kStripe, end - key));
    if (!io_.levels.empty()) write_blocks(h);
  }

 private:
  void run_stripe(std::int64_t h, std::int64_t first_col, std::int64_t width) {
    const CausalScores& scores = io_.scores;
    const std::int64_t group = scores.queries.sizes[0] / scores.keys.sizes[0];
    const float factor = row_factor(scores);
    first_col_ = first_col;
    width_ = width;
    tile_.pack_stripe(scores.keys, h / group, first_col, width);
    std::fill_n(column_totals_.begin(), kStripe, 0.0);
    clear_open();
    const std::int64_t end = end_row(scores, first_col + width - 1);
    std::int64_t open = first_col;  // the first row that is not closed yet
    for (std::int64_t i = first_col; i < end; i += kTileRows) {
      const std::int64_t rows = std::min(kTileRows, end - i);
      const std::int64_t begin =
          std::max<std::int64_t>(0, first_key(scores, i) - first_col) / kPanel;
      const std::int64_t stop = (std::min(width, i + rows - first_col) + kPanel - 1) / kPanel;
      tile_.pack_rows(scores.queries, h, i, rows, factor);
      tile_.multiply(begin, stop);
      finish_scores(scores, tile_.products(), rows, begin * kPanel, stop * kPanel);
      for (std::int64_t r = 0; r < rows; ++r) {
        const float lse = io_.lse(h, i + r);
        lse2_[r] = std::isfinite(lse) ? static_cast<float>(static_cast<double>(lse) * kLog2e)
                                      : std::numeric_limits<float>::quiet_NaN();
      }
      for (std::int64_t r = 0; r < rows;) {
        const std::int64_t close =
            std::min((i + r) / io_.block * io_.block + io_.block, open + kSumRows);
        const std::int64_t until = std::min(rows, close - i);
        add_rows(i, r, until, begin * kPanel, stop * kPanel);
        r = until;
        if (i + r == close || i + r == end) {
          close_rows(i + r - 1);
          open = i + r;
        }
      }
    }
    if (io_.column_sums.data)
      for (std::int64_t c = 0; c < width; ++c)
        io_.column_sums(h, first_col + c) = static_cast<float>(column_totals_[c]);
  }

  /// Adds rows i + first .. i + until of the buffer to the open column sums and maxima.
  void add_rows(std::int64_t i, std::int64_t first, std::int64_t until, std::int64_t begin,
                std::int64_t stop) {
    if (i + first >= first_col_ + stop - 1 &&
        first_key(io_.scores, i + until - 1) <= first_col_ + begin)
      return add_whole(first, until, begin, stop);
    const TileTag d;
    for (std::int64_t r = first; r < until; ++r) {
      const std::int64_t low = std::max(begin, first_key(io_.scores, i + r) - first_col_);
      const std::int64_t high = std::min(stop, i + r - first_col_ + 1);
      const auto lse = hn::Set(d, lse2_[r]);
      for (std::int64_t c = low / kTileLanes * kTileLanes; c < high; c += kTileLanes) {
        const auto seen = hn::And(
            hn::Ge(hn::Iota(d, static_cast<float>(c)), hn::Set(d, static_cast<float>(low))),
            hn::Lt(hn::Iota(d, static_cast<float>(c)), hn::Set(d, static_cast<float>(high))));
        const auto weight = hn::IfThenElseZero(
            seen, exp2(d, hn::Sub(hn::Load(d, tile_.products() + r * kStripe + c), lse)));
        hn::Store(hn::Add(hn::Load(d, sum_ + c), weight), d, sum_ + c);
        hn::Store(hn::Max(hn::Load(d, max_ + c), weight), d, max_ + c);
      }
    }
  }

  /// add_rows for rows that see every column.
  void add_whole(std::int64_t first, std::int64_t until, std::int64_t begin, std::int64_t stop) {
    const TileTag d;
    for (std::int64_t c = begin; c < stop; c += kTileLanes) {
      auto sum = hn::Zero(d), most = hn::Load(d, max_ + c);
      for (std::int64_t r = first; r < until; ++r) {
        const auto weight =
            exp2(d, hn::Sub(hn::Load(d, tile_.products() + r * kStripe + c), hn::Set(d, lse2_[r])));
        sum = hn::Add(sum, weight);
        most = hn::Max(most, weight);
      }
      hn::Store(hn::Add(hn::Load(d, sum_ + c), sum), d, sum_ + c);
      hn::Store(most, d, max_ + c);
    }
  }

  /// Moves the open sums and maxima, whose last row is `row`, to their columns and blocks.
  void close_rows(std::int64_t row) {
    for (std::int64_t c = 0; c < width_; ++c) column_totals_[c] += static_cast<double>(sum_[c]);
    if (!io_.levels.empty()) {
      std::int64_t width = width_, first_col = first_col_, size = io_.block;
      std::fill(sum_ + width, sum_ + kStripe, 0.0f);  // these columns do not exist
      std::fill(max_ + width, max_ + kStripe, 0.0f);
      // Columns in pairs first, which is vector code; it matters for the small blocks of short
      // prompts.
      for (int step = 0; step < 5 && size % 2 == 0; ++step) {
        width = (width + 1) / 2;
        first_col /= 2;
        size /= 2;
        add_pairs(width);
      }
      for (std::int64_t c = 0; c < width;) {
        const std::int64_t block = (first_col + c) / size;
        const std::int64_t end = std::min(width, (block + 1) * size - first_col);
        double sum = 0;
        float most = 0;
        for (; c < end; ++c) {
          sum += static_cast<double>(sum_[c]);
          most = std::max(most, max_[c]);
        }
        const auto at = static_cast<std::size_t>(row / io_.block * count_ + block - first_block_);
        sums_[at] += sum;
        maxima_[at] = std::max(maxima_[at], most);
      }
    }
    clear_open();
  }

  /// sum_[c] = sum_[2 c] + sum_[2 c + 1] for c < count, and the same of the maxima.
  void add_pairs(std::int64_t count) {
    float sums[kStripe / 2], maxima[kStripe / 2];
    for (std::int64_t c = 0; c < count; ++c) {
      sums[c] = sum_[2 * c] + sum_[2 * c + 1];
      maxima[c] = std::max(max_[2 * c], max_[2 * c + 1]);
    }
    std::copy_n(sums, count, sum_);
    std::copy_n(maxima, count, max_);
    sum_[count] = max_[count] = 0;  // for the next step, if count is odd
  }

  void clear_open() {
    std::fill_n(sum_, kStripe, 0.0f);
    std::fill_n(max_, kStripe, 0.0f);
  }

  void write_blocks(std::int64_t h) {
    const MapLevel& level = io_.levels[0];
    const auto share = [&](std::int64_t b) {
      return 1 / static_cast<double>(std::min(io_.block, n_ - b * io_.block));
    };
    for (std::int64_t b = 0; b < count_; ++b) shares_[b] = share(first_block_ + b);
    for (std::int64_t bi = 0; bi < row_blocks_; ++bi) {
      const double* sums = sums_.data() + bi * count_;
      const float* maxima = maxima_.data() + bi * count_;
      const double row_share = share(bi);
      if (level.mean.data) {
        float* to = level.mean.at(h, bi, first_block_);
        const std::int64_t step = level.mean.strides[2];
        for (std::int64_t b = 0; b < count_; ++b)
          to[b * step] = static_cast<float>(sums[b] * (row_share * shares_[b]));
      }
      if (level.max.data) {
        float* to = level.max.at(h, bi, first_block_);
        const std::int64_t step = level.max.strides[2];
        // A vector maximum may lose a NaN, a sum does not.
        for (std::int64_t b = 0; b < count_; ++b)
          to[b * step] = std::isnan(sums[b]) ? static_cast<float>(sums[b]) : maxima[b];
      }
    }
  }

  const AttentionMaps& io_;
  std::int64_t n_, first_block_ = 0, count_ = 0, row_blocks_ = 0, first_col_ = 0, width_ = 0;
  TileScratch tile_;
  std::vector<double> column_totals_, shares_, sums_;
  std::vector<float> maxima_;
  float lse2_[kTileRows];
  HWY_ALIGN float sum_[kStripe], max_[kStripe];
};

void attention_maps_body(const AttentionMaps& io) {
  const std::int64_t heads = io.lse.sizes[0], n = io.lse.sizes[1];
  const std::int64_t blocks = map_blocks(n, io.block);
  const std::int64_t per_task = (kStripe + io.block - 1) / io.block;
  std::vector<std::unique_ptr<MapWorker>> workers(static_cast<std::size_t>(thread_count()));
  // The first stripes have the most rows, so the longest tasks start first.
  parallel_for((blocks + per_task - 1) / per_task * heads, [&](std::int64_t task, int worker) {
    auto& mine = workers[worker];
    if (!mine) mine = std::make_unique<MapWorker>(io);
    const std::int64_t first = task / heads * per_task;
    mine->run(task % heads, first, std::min(per_task, blocks - first));
  });
  parallel_for(heads, [&](std::int64_t h, int) { reference::pool_levels(io, h); });
}

/// One thread's work on stripes of queries: the lanes are queries, so each keeps its own running
/// maximum.
class LseWorker {
 public:
  explicit LseWorker(const RowLogSumExp& io)
      : io_(io), tile_(io.scores.queries.sizes[2]), top_total_(kStripe), total_(kStripe) {}

  void run(std::int64_t h, std::int64_t first_row, std::int64_t width) {
    const CausalScores& scores = io_.scores;
    const std::int64_t group = scores.queries.sizes[0] / scores.keys.sizes[0];
    const float factor = row_factor(scores);
    tile_.pack_stripe(scores.queries, h, first_row, width);
    std::fill_n(top_, kStripe, std::numeric_limits<float>::lowest());
    std::fill_n(sum_, kStripe, 0.0f);
    std::fill_n(top_total_.begin(), kStripe, std::numeric_limits<float>::lowest());
    std::fill_n(total_.begin(), kStripe, 0.0);
    std::int64_t open = first_key(scores, first_row);
    const std::int64_t end = first_row + width;
    for (std::int64_t j = open; j < end; j += kTileRows) {
      const std::int64_t keys = std::min(kTileRows, end - j);
      const std::int64_t begin = std::max<std::int64_t>(0, j - first_row) / kPanel;
      const std::int64_t stop =
          (std::min(width, end_row(scores, j + keys - 1) - first_row) + kPanel - 1) / kPanel;
      tile_.pack_rows(scores.keys, h / group, j, keys, factor);
      tile_.multiply(begin, stop);
      finish_scores(scores, tile_.products(), keys, begin * kPanel, stop * kPanel);
      mask(j, keys, first_row, begin * kPanel, stop * kPanel);
      add_tile(begin * kPanel, stop * kPanel);
      if (j + keys - open >= 2 * kSumRows || j + keys == end) {
        close(width);
        open = j + keys;
      }
    }
    for (std::int64_t c = 0; c < width; ++c) {
      const auto at = static_cast<std::size_t>(c);
      io_.lse(h, first_row + c) =
          static_cast<float>(kLn2 * (static_cast<double>(top_total_[at]) + std::log2(total_[at])));
    }
  }

 private:
  /// Minus infinity where query first_row + c does not see key j + r.
  void mask(std::int64_t j, std::int64_t keys, std::int64_t first_row, std::int64_t begin,
            std::int64_t stop) {
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    for (std::int64_t r = 0; r < kTileRows; ++r) {
      float* row = tile_.products() + r * kStripe;
      const std::int64_t low = r < keys ? std::clamp(j + r - first_row, begin, stop) : stop;
      const std::int64_t high =
          r < keys ? std::clamp(end_row(io_.scores, j + r) - first_row, low, stop) : stop;
      std::fill(row + begin, row + low, kNever);
      std::fill(row + high, row + stop, kNever);
    }
  }

  void add_tile(std::int64_t begin, std::int64_t stop) {
    const TileTag d;
    for (std::int64_t c = begin; c < stop; c += kTileLanes) {
      const float* at = tile_.products() + c;
      const auto before = hn::Load(d, top_ + c);
      auto top = before;
#pragma GCC unroll 8
      for (std::int64_t r = 0; r < kTileRows; ++r)
        top = hn::Max(top, hn::Load(d, at + r * kStripe));
      auto sum = hn::Zero(d);
#pragma GCC unroll 8
      for (std::int64_t r = 0; r < kTileRows; ++r)
        sum = hn::Add(sum, exp2(d, hn::Sub(hn::Load(d, at + r * kStripe), top)));
      hn::Store(hn::MulAdd(hn::Load(d, sum_ + c), exp2(d, hn::Sub(before, top)), sum), d, sum_ + c);
      hn::Store(top, d, top_ + c);
    }
  }

  /// Moves the float32 sums into the float64 ones.
  void close(std::int64_t width) {
    for (std::int64_t c = 0; c < width; ++c) {
      const auto at = static_cast<std::size_t>(c);
      if (top_[c] != top_total_[at])
        total_[at] *= std::exp2(static_cast<double>(top_total_[at]) - static_cast<double>(top_[c]));
      top_total_[at] = top_[c];
      total_[at] += static_cast<double>(sum_[c]);
      sum_[c] = 0;
    }
  }

  const RowLogSumExp& io_;
  TileScratch tile_;
  std::vector<float> top_total_;
  std::vector<double> total_;
  HWY_ALIGN float top_[kStripe], sum_[kStripe];
};

void row_logsumexp_body(const RowLogSumExp& io) {
  const std::int64_t heads = io.lse.sizes[0], n = io.lse.sizes[1];
  const std::int64_t stripes = (n + kStripe - 1) / kStripe;
  std::vector<std::unique_ptr<LseWorker>> workers(static_cast<std::size_t>(thread_count()));
  parallel_for(stripes * heads, [&](std::int64_t task, int worker) {
    auto& mine = workers[worker];
    if (!mine) mine = std::make_unique<LseWorker>(io);
    const std::int64_t first = (stripes - 1 - task / heads) * kStripe;
    mine->run(task % heads, first, std::min(kStripe, n - first));
  });
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvatlas::kernels {
namespace {

void check(const CausalScores& scores, const std::array<std::int64_t, 2>& lse, Memory memory) {
  require_array("queries", scores.queries);
  require_array("keys", scores.keys);
  const auto [n_heads, n_tokens, head_dim] = scores.queries.sizes;
  const std::int64_t n_kv_heads = scores.keys.sizes[0];
  require_shape("keys", scores.keys.sizes, {n_kv_heads, n_tokens, head_dim});
  require_shared_heads(n_heads, n_kv_heads);
  require_shape("lse", lse, {n_heads, n_tokens});
  require_range("window", scores.window.size, 0, std::numeric_limits<std::int64_t>::max());
  require_soft_cap(scores.soft_cap);
  require_same_memory("lse", memory, scores.queries.memory);
  require_same_memory("keys", scores.keys.memory, scores.queries.memory);
}

void check_level(const AttentionMaps& io, std::size_t l) {
  const std::int64_t side = map_blocks(io.lse.sizes[1], io.block << l);
  for (const auto* view : {&io.levels[l].mean, &io.levels[l].max}) {
    if (!view->data) continue;
    require_shape("a level of the maps", view->sizes, {io.lse.sizes[0], side, side});
    require_same_memory("a level of the maps", view->memory, io.lse.memory);
  }
  if (l > 0 && ((io.levels[l].mean.data && !io.levels[l - 1].mean.data) ||
                (io.levels[l].max.data && !io.levels[l - 1].max.data)))
    fail(ErrorCode::usage, "level ", l, " of the maps asks for what level ", l - 1, " lacks");
}

}  // namespace

HWY_EXPORT(row_logsumexp_body);
HWY_EXPORT(attention_maps_body);

void row_logsumexp(const RowLogSumExp& io, const Exec& exec) {
  check(io.scores, io.lse.sizes, io.lse.memory);
  require_array("lse", io.lse);
  const Backend backend = choose(exec, io.lse.memory);
  if (io.lse.count() == 0) return;
  run_body(backend, exec, io, reference::row_logsumexp, HWY_DYNAMIC_DISPATCH(row_logsumexp_body),
           KVATLAS_CUDA_BODY(row_logsumexp));
}

void attention_maps(const AttentionMaps& io, const Exec& exec) {
  check(io.scores, io.lse.sizes, io.lse.memory);
  require_array("lse", io.lse);
  require_range("block", io.block, 1, std::int64_t{1} << 40);
  require_range("the number of levels", static_cast<std::int64_t>(io.levels.size()), 0, 20);
  for (std::size_t l = 0; l < io.levels.size(); ++l) check_level(io, l);
  if (io.column_sums.data) {
    require_shape("column_sums", io.column_sums.sizes, io.lse.sizes);
    require_same_memory("column_sums", io.column_sums.memory, io.lse.memory);
  }
  const Backend backend = choose(exec, io.lse.memory);
  if (io.lse.count() == 0) return;
  run_body(backend, exec, io, reference::attention_maps, HWY_DYNAMIC_DISPATCH(attention_maps_body),
           KVATLAS_CUDA_BODY(attention_maps));
}

}  // namespace kvatlas::kernels
#endif
