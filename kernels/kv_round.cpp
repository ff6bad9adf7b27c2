// SPDX-License-Identifier: Apache-2.0
// A task is a token of one head, whose row is in L1 as float32.
#include "kernels/kv_round.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <utility>
#include <vector>

#include "base/half.hpp"
#include "base/parallel.hpp"
#include "kernels/check.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/kv_round_impl.hpp"

namespace kvatlas::kernels {
namespace {

/// Levels that vLLM computes in double precision, one head size at a time.
class LloydMax {
 public:
  LloydMax(std::int64_t head_dim, int bits)
      : variance_(1.0 / static_cast<double>(head_dim)), count_(std::size_t{1} << bits) {}

  std::vector<double> solve() const {
    constexpr int kRounds = 200;
    constexpr double kEnough = 1e-10, kDeviations = 3.5;
    const double low = -kDeviations * std::sqrt(variance_), high = -low;
    std::vector<double> levels(count_);
    for (std::size_t i = 0; i < count_; ++i)
      levels[i] = low + (high - low) * (static_cast<double>(i) + 0.5) / static_cast<double>(count_);
    for (int round = 0; round < kRounds; ++round) {
      std::vector<double> next(count_);
      double moved = 0;
      for (std::size_t i = 0; i < count_; ++i) {
        const double from = i == 0 ? low * 3 : (levels[i - 1] + levels[i]) / 2,
                     to = i + 1 == count_ ? high * 3 : (levels[i] + levels[i + 1]) / 2;
        const double moment = integral(from, to, [&](double x) { return x * density(x); }),
                     mass = integral(from, to, [&](double x) { return density(x); });
        next[i] = mass > 1e-15 ? moment / mass : levels[i];
        moved = std::max(moved, std::abs(next[i] - levels[i]));
      }
      if (moved < kEnough) break;
      levels = std::move(next);
    }
    return levels;
  }

 private:
  double density(double x) const {
    return 1.0 / std::sqrt(2 * std::numbers::pi * variance_) * std::exp(-x * x / (2 * variance_));
  }
  template <class Fn>
  static double integral(double from, double to, Fn&& fn) {
    constexpr int kSteps = 200;
    const double step = (to - from) / kSteps;
    double sum = 0.5 * (fn(from) + fn(to));
    for (int i = 1; i < kSteps; ++i) sum += fn(from + i * step);
    return sum * step;
  }

  double variance_;
  std::size_t count_;
};

/// vLLM draws them once, with a seed of its own; shorter heads take the first ones.
constexpr std::uint32_t kSigns[8] = {0x9a8ca6f2, 0x7f7fca4e, 0x59bbc293, 0x9480abc7,
                                     0xb55b747e, 0x54503bbe, 0xcdf467b7, 0x05dfbc5f};
constexpr std::int64_t kMostTurned = 256;

constexpr float kUneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};

struct HostOps {
  static float mul(float a, float b) { return a * b; }
  static float div(float a, float b) { return a / b; }
  static float half(float x) { return f16_to_float(float_to_f16(x)); }
};

void load_row(const AnyView<3>& from, std::int64_t h, std::int64_t i, float* to) {
  const std::int64_t first = h * from.strides[0] + i * from.strides[1], step = from.strides[2];
  const auto each = [&](const auto* data, const auto& value) {
    for (std::int64_t c = 0; c < from.sizes[2]; ++c) to[c] = value(data[first + c * step]);
  };
  if (from.type == DType::f32)
    each(static_cast<const float*>(from.data), [](float x) { return x; });
  else if (from.type == DType::f16)
    each(static_cast<const std::uint16_t*>(from.data), f16_to_float);
  else
    each(static_cast<const std::uint16_t*>(from.data), bf16_to_float);
}

/// The rotation of Walsh and Hadamard, without its factor, of blocks of this order.
void rotate(std::vector<float>& row, std::int64_t order) {
  const std::int64_t size = std::ssize(row);
  for (std::int64_t reach = 1; reach < order; reach *= 2)
    for (std::int64_t block = 0; block < size; block += 2 * reach)
      for (std::int64_t i = block; i < block + reach; ++i) {
        const float a = row[i], b = row[i + reach];
        row[i] = a + b;
        row[i + reach] = a - b;
      }
}

/// The same rotation of whole rows as a matrix, with its factor.
std::vector<float> rotation(std::size_t size) {
  std::vector<float> out(size * size);
  const float unit = lloyd_unit(static_cast<std::int64_t>(size));
  for (std::size_t i = 0; i < size; ++i)
    for (std::size_t j = 0; j < size; ++j)
      out[i * size + j] = std::popcount(i & j) % 2 == 0 ? unit : -unit;
  return out;
}

void turn(std::vector<float>& row, std::int64_t order, const RowTables& tables) {
  for (std::int64_t c = 0; c < std::ssize(row); ++c) {
    const std::int64_t i = c % order;
    if ((tables.signs[i / 32] >> (i % 32) & 1u) != 0) row[c] = -row[c];
  }
}

/// The sum of squares, halves joined with halves.
double square_sum(const std::vector<float>& row, std::vector<double>& squares) {
  for (std::size_t c = 0; c < row.size(); ++c)
    squares[c] = static_cast<double>(row[c]) * static_cast<double>(row[c]);
  for (std::size_t half = row.size() / 2; half > 0; half /= 2)
    for (std::size_t c = 0; c < half; ++c) squares[c] += squares[c + half];
  return squares[0];
}

template <RowFormat kFormat>
void round_groups(std::vector<float>& row, const RowTables& tables, float scale) {
  const std::int64_t size = std::ssize(row),
                     group = row_group(kFormat) == 0 ? size : row_group(kFormat);
  for (std::int64_t begin = 0; begin < size; begin += group) {
    const std::int64_t end = std::min(begin + group, size);
    GroupCode code;
    if constexpr (row_group(kFormat) != 1) {
      GroupStats stats;
      for (std::int64_t c = begin; c < end; ++c) stats.add(row[c]);
      code = group_code<HostOps>(kFormat, stats, scale);
    }
    if constexpr (kFormat == RowFormat::iq4_nl)
      scale_of_levels<HostOps>(code, &row[begin], end - begin, tables);
    for (std::int64_t c = begin; c < end; ++c)
      row[c] = restored<HostOps>(kFormat, row[c], code, tables, scale);
  }
}

/// What a task needs beside its row, and what all share.
struct RowWork {
  const RowTables& tables;
  const std::vector<float>& matrix;  // of Lloyd's formats
  float scale;
  std::vector<double> squares;
  std::vector<float> product;

  void project(std::vector<float>& row) {
    const std::size_t size = row.size();
    std::fill(product.begin(), product.end(), 0.0f);
    for (std::size_t i = 0; i < size; ++i)
      for (std::size_t j = 0; j < size; ++j)
        product[j] = sum_of_product(product[j], row[i], matrix[i * size + j]);
    std::swap(row, product);
  }
};

template <RowFormat kFormat>
void round_row(std::vector<float>& row, RowWork& work) {
  const std::int64_t size = std::ssize(row);
  if constexpr (kFormat == RowFormat::int4_row) {
    const std::int64_t order = rotated_at_a_time(size);
    turn(row, order, work.tables);
    rotate(row, order);
    round_groups<kFormat>(row, work.tables, work.scale);
    rotate(row, order);
    turn(row, order, work.tables);
    for (float& x : row) x /= static_cast<float>(order);
  } else if constexpr (is_lloyd(kFormat)) {
    const auto length = static_cast<float>(std::sqrt(square_sum(row, work.squares)));
    for (float& x : row) x /= length + kLloydLeast;
    work.project(row);
    round_groups<kFormat>(row, work.tables, work.scale);
    const float again = lloyd_correction(square_sum(row, work.squares)),
                stored = HostOps::half(length);
    for (float& x : row) x = stored * (x * again);
    work.project(row);
  } else {
    round_groups<kFormat>(row, work.tables, work.scale);
  }
}

template <RowFormat kFormat>
void round_rows_as(const KvRound& io, const RowTables& tables) {
  const auto [heads, tokens, channels] = io.from.sizes;
  const auto size = static_cast<std::size_t>(channels), wide = is_lloyd(kFormat) ? size : 0;
  const auto matrix = rotation(wide);
  constexpr std::int64_t kRows = 16;
  const std::int64_t rows = heads * tokens;
  parallel_for((rows + kRows - 1) / kRows, [&, tokens = tokens](std::int64_t task, int) {
    std::vector<float> row(size);
    RowWork work{tables, matrix, io.scale, std::vector<double>(wide), std::vector<float>(wide)};
    for (std::int64_t r = task * kRows; r < std::min(rows, (task + 1) * kRows); ++r) {
      load_row(io.from, r / tokens, r % tokens, row.data());
      round_row<kFormat>(row, work);
      float* to = io.to.at(r / tokens, r % tokens, 0);
      for (std::size_t c = 0; c < size; ++c)
        to[static_cast<std::int64_t>(c) * io.to.strides[2]] = row[c];
    }
  });
}

template <std::size_t... kIndex>
void round_as(const KvRound& io, std::index_sequence<kIndex...>) {
  const RowTables tables = row_tables(io.format, io.from.sizes[2]);
  ((static_cast<std::size_t>(io.format) == kIndex
        ? round_rows_as<static_cast<RowFormat>(kIndex)>(io, tables)
        : void()),
   ...);
}

void kv_round_body(const KvRound& io) {
  round_as(io, std::make_index_sequence<kRowFormats.size()>());
}

}  // namespace

std::array<float, 16> lloyd_levels(std::int64_t head_dim, int bits) {
  static std::mutex mutex;
  static std::map<std::pair<std::int64_t, int>, std::array<float, 16>> known;
  const std::lock_guard lock(mutex);
  const auto [found, fresh] = known.try_emplace({head_dim, bits});
  if (fresh) {
    const auto levels = LloydMax(head_dim, bits).solve();
    std::transform(levels.begin(), levels.end(), found->second.begin(),
                   [](double level) { return static_cast<float>(level); });
  }
  return found->second;
}

RowTables row_tables(RowFormat format, std::int64_t head_dim) {
  RowTables out;
  std::copy(std::begin(kSigns), std::end(kSigns), out.signs);
  if (format == RowFormat::iq4_nl) {
    out.count = 16;
    std::copy(std::begin(kUneven), std::end(kUneven), out.levels);
  } else if (is_lloyd(format)) {
    const int bits = format == RowFormat::lloyd4_row ? 4 : 3;
    out.count = 1 << bits;
    const auto levels = lloyd_levels(head_dim, bits);
    std::copy(levels.begin(), levels.end(), out.levels);
  }
  for (int i = 0; i + 1 < out.count; ++i)
    out.midpoints[i] = (out.levels[i] + out.levels[i + 1]) / 2;
  return out;
}

std::string lacking_head_size(RowFormat format, std::int64_t head_dim) {
  if (head_dim <= 0) return "";
  const std::int64_t order = rotated_at_a_time(head_dim);
  if (is_lloyd(format) && (order != head_dim || head_dim < 16)) return "a power of two from 16 on";
  if (format == RowFormat::int4_row && (order < 2 || order > kMostTurned))
    return str("even numbers that no power of two beyond ", kMostTurned, " divides");
  if (format == RowFormat::nvfp4 && head_dim % row_group(format) != 0)
    return str("multiples of ", row_group(format));
  return "";
}

void kv_round(const KvRound& io, const Exec& exec) {
  require_array("from", io.from);
  require_array("to", io.to);
  require_shape("to", io.to.sizes, io.from.sizes);
  require_same_memory("to", io.to.memory, io.from.memory);
  if (static_cast<std::size_t>(io.format) >= kRowFormats.size())
    fail(ErrorCode::usage, "there is no row format of number ", static_cast<int>(io.format));
  if (const auto lack = lacking_head_size(io.format, io.from.sizes[2]); !lack.empty())
    fail(ErrorCode::usage, word_of(io.format), ": heads have ", io.from.sizes[2],
         " numbers, and it takes ", lack);
  require_range("head_dim", io.from.sizes[2], 0, kMostRow);
  if (!(io.scale > 0) || std::isinf(io.scale))
    fail(ErrorCode::usage, "scale is ", io.scale, ", expected a positive number");
  const Backend backend = choose(exec, io.from.memory);
  if (io.from.sizes[0] == 0 || io.from.sizes[1] == 0 || io.from.sizes[2] == 0) return;
  run_body(backend, exec, io, reference::kv_round, kv_round_body, KVATLAS_CUDA_BODY(kv_round));
}

}  // namespace kvatlas::kernels
