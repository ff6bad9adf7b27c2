// SPDX-License-Identifier: Apache-2.0
// MInference's vertical-slash pattern: while the prompt is read, each query head attends to the
// columns and the diagonals that the prompt's last rows attend to most.
#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "analyzer/capture/kernel_inputs-inl.hpp"
#include "calibrate/simulate/plan_impl.hpp"
#include "calibrate/simulate/vertical_slash_impl.hpp"
#include "kernels/kernels.hpp"

namespace kvatlas::calibrate {

/// It cuts nothing: it is asked while the prompt is read.
PartPlanner planner_of(const VerticalSlash&) {
  return {.cut = [](const Draft&) {}, .window_of = [](std::int64_t) { return std::nullopt; }};
}

namespace {

/// [n_heads, n]: for each distance, what the last rows of attention, [n_heads, rows, n], give to
/// the keys that lie so far before them.
at::Tensor diagonal_sums(const at::Tensor& attention) {
  const std::int64_t rows = attention.size(1), n = attention.size(2);
  at::Tensor sums = at::zeros({attention.size(0), n}, attention.options());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t seen = n - rows + row + 1;
    sums.narrow(1, 0, seen).add_(attention.select(1, row).narrow(1, 0, seen).flip(1));
  }
  return sums;
}

/// The `most` places with the greatest sums of each head, the first `certain` ones among them.
std::vector<std::vector<std::uint8_t>> greatest(const at::Tensor& sums, std::int64_t certain,
                                                std::int64_t most) {
  const std::int64_t n = sums.size(1);
  sums.narrow(1, 0, std::min(certain, n)).fill_(std::numeric_limits<float>::infinity());
  std::vector<std::vector<std::uint8_t>> flags;
  for (const auto& of_head : best_of_rows(sums, most, n)) {
    auto& of_places = flags.emplace_back(static_cast<std::size_t>(n), std::uint8_t{0});
    for (const std::int64_t place : of_head) of_places[place] = 1;
  }
  return flags;
}

}  // namespace

capture::SeenKeys SparseReading::choose(const capture::AttentionInputs& in) {
  const std::int64_t heads = in.query.sizes[0], n = in.query.sizes[1],
                     rows = std::min(part_.last, n);
  const at::Tensor attention = at::empty({heads, rows, n}, capture::float_on(in.query));
  kernels::LastRows io = capture::last_rows_of(in, rows);
  io.probs = capture::view_of<float, 3>(attention);
  kernels::last_rows(io);
  capture::SeenKeys keys{greatest(attention.sum(1).cpu(), part_.initial, part_.vertical),
                         greatest(diagonal_sums(attention).cpu(), part_.recent, part_.slash)};
  for (std::int64_t h = 0; h < heads; ++h) {
    std::vector<std::int64_t> near(static_cast<std::size_t>(n) + 1);  // diagonals before each one
    for (std::int64_t d = 0; d < n; ++d) near[d + 1] = near[d] + keys.diagonals[h][d];
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t rows_of_key = in.window.end_query(j, n) - j;
      all_ += rows_of_key;
      read_ += keys.columns[h][j] ? rows_of_key : near[rows_of_key];
    }
  }
  return keys;
}

}  // namespace kvatlas::calibrate
