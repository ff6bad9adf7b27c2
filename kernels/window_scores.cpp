// SPDX-License-Identifier: Apache-2.0
// CPU body of window_scores: one task for each group of heads and tile of positions; rows are added
// as they lie, the pool is `kernel` shifted loads. (Selections, which do not vectorise, are in
// top_counts.cpp.)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/window_scores.cpp"
#include <limits>

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/load-inl.hpp"
#include "kernels/window_scores_impl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {

/// The larger, NaN if one is.
template <class D>
HWY_INLINE hn::Vec<D> larger(D, hn::Vec<D> a, hn::Vec<D> b) {
  return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::Gt(a, b)), a, b);
}

/// Scores of group `group` at [begin, end). `row` and `mean` hold end - begin + kernel - 1 floats
/// and a vector more, `to` end - begin and a vector more.
void ScoreTile(const WindowScores& io, std::int64_t group, std::int64_t begin, std::int64_t end,
               float* HWY_RESTRICT row, float* HWY_RESTRICT mean, float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t n_positions = io.scores.sizes[1], reach = io.kernel / 2;
  const std::int64_t heads = io.probs.sizes[0] / io.scores.sizes[0];
  const bool average = io.pooling == Pooling::average;
  // The tile and its neighbours, of which those outside [0, n_positions) are padding.
  const std::int64_t low = begin - reach, high = end + reach;
  const std::int64_t first = low < 0 ? 0 : low, last = high < n_positions ? high : n_positions;
  const float padding = average ? 0.0f : -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < high - low + lanes; ++i) mean[i] = padding;
  for (std::int64_t i = 0; i < end - begin + lanes; ++i) to[i] = 0;
  const float scale = 1.0f / static_cast<float>(average ? io.window * io.kernel : io.window);

  for (std::int64_t head = group * heads; head < (group + 1) * heads; ++head) {
    float* own = mean + (first - low);
    for (std::int64_t i = 0; i < last - first; ++i) own[i] = 0;
    for (std::int64_t r = io.probs.sizes[1] - io.window; r < io.probs.sizes[1]; ++r) {
      const std::int64_t offset =
          head * io.probs.strides[0] + r * io.probs.strides[1] + first * io.probs.strides[2];
      copy_as_float(io.probs.data, io.probs.type, offset, io.probs.strides[2], last - first, row);
      std::int64_t i = 0;
      for (; i + lanes <= last - first; i += lanes)
        hn::StoreU(hn::Add(hn::LoadU(d, own + i), hn::LoadU(d, row + i)), d, own + i);
      for (; i < last - first; ++i) own[i] += row[i];
    }
    for (std::int64_t i = 0; i < end - begin; i += lanes) {
      auto pooled = hn::LoadU(d, mean + i);
      for (std::int64_t t = 1; t < io.kernel; ++t) {
        const auto next = hn::LoadU(d, mean + i + t);
        pooled = average ? hn::Add(pooled, next) : larger(d, pooled, next);
      }
      hn::StoreU(hn::MulAdd(pooled, hn::Set(d, scale), hn::LoadU(d, to + i)), d, to + i);
    }
  }
  const float share = 1.0f / static_cast<float>(heads);
  for (std::int64_t j = begin; j < end; ++j) *io.scores.at(group, j) = share * to[j - begin];
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "base/parallel.hpp"
#include "kernels/aligned_impl.hpp"
#include "kernels/check.hpp"
#include "kernels/dispatch.hpp"

namespace kvatlas::kernels {
HWY_EXPORT(ScoreTile);
namespace {

void window_scores_cpu(const WindowScores& io) {
  constexpr std::int64_t kPositions = 2048, kMaxLanes = 16;
  const std::int64_t n_positions = io.scores.sizes[1];
  const std::int64_t tiles = (n_positions + kPositions - 1) / kPositions;
  parallel_for(io.scores.sizes[0] * tiles, [&](std::int64_t task, int) {
    const std::int64_t begin = task % tiles * kPositions,
                       end = std::min(n_positions, begin + kPositions);
    const std::int64_t length = end - begin + io.kernel - 1 + kMaxLanes;
    const auto row = aligned<float>(length), mean = aligned<float>(length),
               to = aligned<float>(length);
    HWY_DYNAMIC_DISPATCH(ScoreTile)(io, task / tiles, begin, end, row.get(), mean.get(), to.get());
  });
}

}  // namespace

void window_scores(const WindowScores& io, const Exec& exec) {
  require_array("probs", io.probs);
  require_array("scores", io.scores);
  const auto [n_heads, q_rows, n_tokens] = io.probs.sizes;
  require_range("window", io.window, 1, std::min(q_rows, n_tokens));
  require_range("kernel", io.kernel, 1, std::int64_t{1} << 20);
  if (io.kernel % 2 == 0)
    fail(ErrorCode::usage, "kernel is ", io.kernel, ", expected an odd number");
  const std::int64_t n_groups = io.scores.sizes[0];
  require_shape("scores", io.scores.sizes, {n_groups, n_tokens - io.window});
  if (n_groups == 0 ? n_heads != 0 : n_heads == 0 || n_heads % n_groups != 0)
    fail(ErrorCode::usage, n_heads, " heads do not form ", n_groups, " groups");
  require_same_memory("scores", io.scores.memory, io.probs.memory);
  run_body(choose(exec, io.probs.memory), exec, io, reference::window_scores, window_scores_cpu,
           KVATLAS_CUDA_BODY(window_scores));
}

}  // namespace kvatlas::kernels
#endif
