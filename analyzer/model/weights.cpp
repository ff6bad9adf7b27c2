// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>

#include "base/error.hpp"
#include "base/half.hpp"
#include "base/parallel.hpp"

namespace kvatlas::model {
namespace {

/// Numbers that share a scale in NVFP4.
constexpr std::int64_t kNvfp4Block = 16;

/// Vectors are read whole. Their parts lie side by side.
bool is_vector(const Weight& weight) {
  return !weight.parts.empty() && weight.parts.front().is_vector;
}

std::vector<std::int64_t> without_ones(std::vector<std::int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

/// Bytes that mean nothing without the scales that go with them.
bool needs_scales(TensorType type) {
  return type == TensorType::f8_e4m3 || type == TensorType::i8 || type == TensorType::u8 ||
         type == TensorType::i32;
}

std::int64_t bytes_of(TensorType type, std::int64_t values) {
  const BlockShape block = block_shape(type);
  return values / block.values * block.bytes;
}

/// The parts of a vector, side by side.
void read_vector(const Weight& weight, float* out) {
  std::vector<float> stored;
  for (const Rows& part : weight.parts) {
    const std::byte* bytes = part.tensor->bytes.data() + bytes_of(part.tensor->type, part.first);
    if (part.order.empty() && part.step == 1) {
      dequantize(part.tensor->type, bytes, part.columns, out);
    } else {
      const std::int64_t span =
          part.order.empty() ? (part.columns - 1) * part.step + 1 : part.columns;
      stored.resize(static_cast<std::size_t>(span));
      dequantize(part.tensor->type, bytes, span, stored.data());
      for (std::int64_t i = 0; i < part.columns; ++i)
        out[i] = stored[part.order.empty() ? i * part.step : part.order[i]];
    }
    out += part.columns;
  }
}

/// Two numbers of 4 bits a byte, the lower half first, in units of half the power of two.
void decode_mxfp4(const Rows& part, std::int64_t row, float* out) {
  static constexpr float kValues[16] = {0,     1,  2,  3,  4,  6,  8,  12,
                                        -0.0F, -1, -2, -3, -4, -6, -8, -12};
  const auto* codes =
      reinterpret_cast<const std::uint8_t*>(part.tensor->bytes.data()) + row * part.columns / 2;
  const auto* exponents =
      reinterpret_cast<const std::uint8_t*>(part.scales->bytes.data()) + row * part.columns / 32;
  for (std::int64_t block = 0; block < part.columns / 32; ++block) {
    const float unit = std::ldexp(1.0F, exponents[block] - 128);
    for (std::int64_t i = 0; i < 16; ++i, ++codes, out += 2) {
      out[0] = kValues[*codes & 15] * unit;
      out[1] = kValues[*codes >> 4] * unit;
    }
  }
}

/// Two numbers of 4 bits a byte, the lower half first. As compressed-tensors and Model Optimizer
/// decode them: in float32, and then to bfloat16.
void decode_nvfp4(const Rows& part, std::int64_t row, float* out) {
  static constexpr float kValues[16] = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                                        -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  const auto* codes =
      reinterpret_cast<const std::uint8_t*>(part.tensor->bytes.data()) + row * part.columns / 2;
  std::vector<float> scales(static_cast<std::size_t>(part.columns / kNvfp4Block));
  dequantize(TensorType::f8_e4m3, part.scales->bytes.data() + row * std::ssize(scales),
             std::ssize(scales), scales.data());
  for (float scale : scales) {
    scale = part.global_divides ? scale / part.global_scale : scale * part.global_scale;
    for (std::int64_t i = 0; i < kNvfp4Block / 2; ++i, ++codes, out += 2) {
      out[0] = bf16_to_float(float_to_bf16(kValues[*codes & 15] * scale));
      out[1] = bf16_to_float(float_to_bf16(kValues[*codes >> 4] * scale));
    }
  }
}

void scale_row(const Rows& part, std::int64_t row, float* out) {
  const std::int64_t factors = (part.columns + part.scale_columns - 1) / part.scale_columns;
  std::vector<float> factor(static_cast<std::size_t>(factors));
  const TensorType type = part.scales->type;
  dequantize(type, part.scales->bytes.data() + bytes_of(type, row / part.scale_rows * factors),
             factors, factor.data());
  for (std::int64_t c = 0; c < part.columns; ++c) out[c] *= factor[c / part.scale_columns];
}

std::uint32_t word_at(const StoredTensor& tensor, std::int64_t index) {
  std::uint32_t word;
  std::memcpy(&word, tensor.bytes.data() + 4 * index, sizeof word);
  return word;
}

/// Numbers of a few bits in words that lie `stride` words apart.
struct BitStream {
  const StoredTensor* words;
  std::int64_t first, stride;
  int bits;

  std::uint32_t at(std::int64_t index) const {
    const std::int64_t bit = index * bits, word = first + bit / 32 * stride;
    const auto shift = static_cast<int>(bit % 32);
    std::uint32_t value = word_at(*words, word) >> shift;
    if (shift + bits > 32) value |= word_at(*words, word + stride) << (32 - shift);
    return value & ((1U << bits) - 1);
  }
};

std::int64_t words_for(std::int64_t count, int bits) { return (count * bits + 31) / 32; }

/// Where AWQ puts a row's number among its neighbours.
std::int64_t awq_place(std::int64_t row) {
  static constexpr std::int64_t kPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  return row / 8 * 8 + kPlaces[row % 8];
}

/// The zero of each group of a packed row.
std::vector<float> zeros_of(const Rows& part, std::int64_t row) {
  const PackedBits& p = part.packed;
  std::vector<float> zeros(static_cast<std::size_t>(part.groups),
                           static_cast<float>(1 << (p.bits - 1)));
  if (!p.zeros) return zeros;
  const bool awq = p.layout == PackedBits::Layout::awq;
  const std::int64_t words = words_for(part.stored_rows, p.bits);
  for (std::int64_t g = 0; g < part.groups; ++g) {
    const BitStream of_group = p.layout == PackedBits::Layout::compressed
                                   ? BitStream{p.zeros, g, part.groups, p.bits}
                                   : BitStream{p.zeros, g * words, 1, p.bits};
    const std::uint32_t stored = of_group.at(awq ? awq_place(row) : row);
    zeros[g] = static_cast<float>((stored + static_cast<std::uint32_t>(p.zero_shift)) &
                                  ((1U << p.bits) - 1));
  }
  return zeros;
}

void decode_packed(const Rows& part, std::int64_t row, float* out) {
  const PackedBits& p = part.packed;
  const std::vector<float> zeros = zeros_of(part, row);
  std::vector<float> scales(zeros.size());
  const bool compressed = p.layout == PackedBits::Layout::compressed;
  const TensorType type = part.scales->type;
  for (std::int64_t g = 0; g < part.groups; ++g)
    dequantize(type,
               part.scales->bytes.data() +
                   bytes_of(type, compressed ? row * part.groups + g : g * part.stored_rows + row),
               1, &scales[g]);
  const std::int64_t words = words_for(part.stored_rows, p.bits), place = awq_place(row);
  for (std::int64_t c = 0; c < part.columns; ++c) {
    std::uint32_t number = 0;
    switch (p.layout) {
      case PackedBits::Layout::gptq:
        number = BitStream{part.tensor, row, part.stored_rows, p.bits}.at(c);
        break;
      case PackedBits::Layout::awq:
        number = BitStream{part.tensor, c * words, 1, p.bits}.at(place);
        break;
      case PackedBits::Layout::compressed:
        number = BitStream{part.tensor, row * words_for(part.columns, p.bits), 1, p.bits}.at(c);
        break;
    }
    const std::int64_t group = p.groups ? word_at(*p.groups, c) : c / p.group_size;
    out[c] = (static_cast<float>(number) - zeros[group]) * scales[group];
  }
}

/// One stored row.
void read_row(const Rows& part, std::int64_t row, float* out) {
  const TensorType type = part.tensor->type;
  const std::byte* bytes = part.tensor->bytes.data();
  switch (part.encoding) {
    case Rows::Encoding::transposed: {
      const std::int64_t width = part.tensor->shape.back();
      const BlockShape block = block_shape(type);
      std::vector<float> values(static_cast<std::size_t>(block.values));
      for (std::int64_t c = 0; c < part.columns; ++c) {
        const std::int64_t value = part.offset + c * width + row;
        dequantize(type, bytes + value / block.values * block.bytes, block.values, values.data());
        out[c] = values[value % block.values];
      }
      return;
    }
    case Rows::Encoding::mxfp4:
      return decode_mxfp4(part, row, out);
    case Rows::Encoding::nvfp4:
      return decode_nvfp4(part, row, out);
    case Rows::Encoding::packed:
      return decode_packed(part, row, out);
    case Rows::Encoding::plain:
    case Rows::Encoding::scaled:
      dequantize(type, bytes + row * bytes_of(type, part.columns), part.columns, out);
      if (part.encoding == Rows::Encoding::scaled) scale_row(part, row, out);
      return;
  }
}

/// Rows [first, first + count) of a matrix, in the calling thread.
void read_block(const Weight& weight, std::int64_t first, std::int64_t count, float* out) {
  for (const Rows& part : weight.parts) {
    const std::int64_t begin = std::min(first, part.count);
    const std::int64_t rows = std::min(count, part.count - begin);
    const TensorType type = part.tensor->type;
    if (part.encoding == Rows::Encoding::plain && part.order.empty() && part.step == 1) {
      dequantize(type,
                 part.tensor->bytes.data() + (part.first + begin) * bytes_of(type, part.columns),
                 rows * part.columns, out);
      out += rows * part.columns;
    } else {
      for (std::int64_t i = begin; i < begin + rows; ++i, out += part.columns)
        read_row(part, part.first + (part.order.empty() ? i * part.step : part.order[i]), out);
    }
    first -= begin;
    if (rows > 0) first = 0;
    count -= rows;
  }
}

}  // namespace

std::int64_t Weight::rows() const {
  if (parts.empty()) return 0;
  if (is_vector(*this)) return 1;
  std::int64_t total = 0;
  for (const Rows& part : parts) total += part.count;
  return total;
}

std::int64_t Weight::columns() const {
  if (parts.empty()) return 0;
  if (!is_vector(*this)) return parts.front().columns;
  std::int64_t total = 0;
  for (const Rows& part : parts) total += part.columns;
  return total;
}

void read_rows(const Weight& weight, std::int64_t first, std::int64_t count, float* out) {
  if (first < 0 || count < 0 || first > weight.rows() - count)
    fail(ErrorCode::internal, "rows ", first, " to ", first + count, " of a weight of ",
         weight.rows(), " rows");
  const std::int64_t columns = weight.columns();
  if (count == 0 || columns == 0) return;
  if (is_vector(weight)) return read_vector(weight, out);
  // Tasks of about 128 KiB of output stay in the second-level cache.
  const std::int64_t rows_a_task = std::max<std::int64_t>(1, 32768 / columns);
  const std::int64_t tasks = (count + rows_a_task - 1) / rows_a_task;
  parallel_for(tasks, [&](std::int64_t task, int) {
    const std::int64_t begin = task * rows_a_task;
    read_block(weight, first + begin, std::min(rows_a_task, count - begin), out + begin * columns);
  });
}

const StoredTensor& TensorFinder::require(const std::string& name,
                                          const std::vector<std::int64_t>& shape,
                                          bool scaled) const {
  const StoredTensor* tensor = find_(name);
  if (tensor && !scaled && needs_scales(tensor->type))
    fail(ErrorCode::unsupported, "tensor ", quoted(name), " has the type ", type_name(*tensor),
         " without scales, which is not supported");
  if (tensor == nullptr) fail(ErrorCode::unreadable, "the tensor ", quoted(name), " is missing");
  if (tensor->shape != shape && without_ones(tensor->shape) != without_ones(shape))
    fail(ErrorCode::unreadable, "tensor ", quoted(name), ": shape ", list_str(tensor->shape),
         ", expected ", list_str(shape));
  return *tensor;
}

Rows TensorFinder::scaled(const std::string& name, const std::string& scales, std::int64_t rows,
                          std::int64_t columns, const std::vector<std::int64_t>& block) const {
  Rows part;
  part.tensor = &require(name, {rows, columns}, true);
  part.columns = columns;
  part.count = rows;
  part.encoding = Rows::Encoding::scaled;
  part.scales = find_(scales);
  if (part.scales == nullptr || block_shape(part.scales->type).values > 1)
    fail(ErrorCode::unreadable, "the tensor ", quoted(scales), " holds no numbers");
  const auto& shape = part.scales->shape;
  if (shape.size() == 2 && block.size() == 2) {
    part.scale_rows = block[0];
    part.scale_columns = block[1];
  } else {  // one for all, one a row, or several a row
    const std::int64_t of_rows = shape.empty() ? 1 : shape[0],
                       of_columns = shape.size() < 2 ? 1 : shape[1];
    part.scale_rows = of_rows == 1 ? rows : 1;
    part.scale_columns = of_columns > 0 ? (columns + of_columns - 1) / of_columns : columns;
  }
  const auto pieces = [](std::int64_t size, std::int64_t each) { return (size + each - 1) / each; };
  require(scales, {pieces(rows, part.scale_rows), pieces(columns, part.scale_columns)});
  return part;
}

Rows TensorFinder::packed(const std::string& name, std::int64_t rows, std::int64_t columns,
                          const PackedBits& format) const {
  using Layout = PackedBits::Layout;
  const bool compressed = format.layout == Layout::compressed;
  const auto called = [&](const char* theirs, const char* ours) {
    return name + (compressed ? theirs : ours);
  };
  Rows part;
  part.columns = columns;
  part.count = part.stored_rows = rows;
  part.encoding = Rows::Encoding::packed;
  PackedBits& p = part.packed = format;
  if (p.layout == Layout::awq && rows % 8 != 0)
    fail(ErrorCode::unreadable, "tensor ", quoted(name + ".qweight"), ": ", rows,
         " rows, expected a multiple of 8");
  const std::int64_t of_rows = words_for(rows, p.bits), of_columns = words_for(columns, p.bits);
  part.tensor = &require(called(".weight_packed", ".qweight"),
                         compressed                 ? std::vector{rows, of_columns}
                         : p.layout == Layout::gptq ? std::vector{of_columns, rows}
                                                    : std::vector{columns, of_rows},
                         true);
  const std::string scales = called(".weight_scale", ".scales");
  part.scales = find_(scales);
  if (part.scales == nullptr || part.scales->shape.size() != 2 ||
      block_shape(part.scales->type).values > 1 || needs_scales(part.scales->type))
    fail(ErrorCode::unreadable, "the tensor ", quoted(scales), " holds no matrix of numbers");
  part.groups = part.scales->shape[compressed ? 1 : 0];
  if (p.group_size == 0 && part.groups > 0)
    p.group_size = (columns + part.groups - 1) / part.groups;
  if (p.group_size < 1 || (columns + p.group_size - 1) / p.group_size != part.groups)
    fail(ErrorCode::unreadable, "tensor ", quoted(scales), ": ", part.groups, " groups of ",
         p.group_size, " columns, and the matrix has ", columns);
  require(scales, compressed ? std::vector{rows, part.groups} : std::vector{part.groups, rows});
  const std::string zeros = called(".weight_zero_point", ".qzeros");
  if (has(zeros))
    p.zeros = &require(
        zeros, compressed ? std::vector{of_rows, part.groups} : std::vector{part.groups, of_rows},
        true);
  if (const std::string groups = called(".weight_g_idx", ".g_idx"); has(groups)) {
    p.groups = &require(groups, {columns}, true);
    for (std::int64_t c = 0; p.groups->type == TensorType::i32 && c < columns; ++c)
      if (word_at(*p.groups, c) >= static_cast<std::uint64_t>(part.groups))
        fail(ErrorCode::unreadable, "tensor ", quoted(groups), " names a group beyond the ",
             part.groups, " that there are");
  }
  for (const StoredTensor* tensor : {part.tensor, p.zeros, p.groups})
    if (tensor && tensor->type != TensorType::i32)
      fail(ErrorCode::unreadable, "tensor ", quoted(tensor->name), ": ", type_name(*tensor),
           ", expected I32");
  return part;
}

Rows TensorFinder::nvfp4(const std::string& name, std::int64_t rows, std::int64_t columns) const {
  Rows part;
  part.global_divides = has(name + ".weight_packed");
  const std::string weight = name + (part.global_divides ? ".weight_packed" : ".weight"),
                    global =
                        name + (part.global_divides ? ".weight_global_scale" : ".weight_scale_2");
  if (columns % kNvfp4Block != 0)
    fail(ErrorCode::unreadable, "tensor ", quoted(weight), ": rows of ", columns,
         " values, expected a multiple of ", kNvfp4Block);
  part.tensor = &require(weight, {rows, columns / 2}, true);
  part.scales = &require(name + ".weight_scale", {rows, columns / kNvfp4Block}, true);
  const StoredTensor& of_all = require(global, {1});
  if (part.tensor->type != TensorType::u8 || part.scales->type != TensorType::f8_e4m3 ||
      block_shape(of_all.type).values > 1)
    fail(ErrorCode::unreadable, "tensor ", quoted(weight), ": ", type_name(*part.tensor),
         " with scales of ", type_name(*part.scales), " and ", type_name(of_all),
         ", expected U8, F8_E4M3 and F32");
  dequantize(of_all.type, of_all.bytes.data(), 1, &part.global_scale);
  if (!std::isfinite(part.global_scale) || part.global_scale <= 0)
    fail(ErrorCode::unreadable, "tensor ", quoted(global), ": found ", part.global_scale,
         ", expected a scale above 0");
  part.columns = columns;
  part.count = rows;
  part.encoding = Rows::Encoding::nvfp4;
  return part;
}

Rows TensorFinder::matrix(const std::string& name, std::int64_t rows, std::int64_t columns) const {
  Rows part;
  part.tensor = &require(name, {rows, columns});
  part.columns = columns;
  part.count = rows;
  return part;
}

Rows TensorFinder::vector(const std::string& name, std::int64_t size) const {
  Rows part;
  part.tensor = &require(name, {size});
  part.columns = size;
  part.count = 1;
  part.is_vector = true;
  return part;
}

std::vector<Rows> TensorFinder::stacked(const std::string& name, std::int64_t count,
                                        std::int64_t rows, std::int64_t columns) const {
  Rows part;
  part.tensor = &require(name, {count, rows, columns});
  part.columns = columns;
  part.count = rows;
  std::vector<Rows> parts(static_cast<std::size_t>(count), part);
  for (std::int64_t i = 0; i < count; ++i) parts[i].first = i * rows;
  return parts;
}

std::vector<Rows> TensorFinder::stacked_vectors(const std::string& name, std::int64_t count,
                                                std::int64_t size) const {
  Rows part;
  part.tensor = &require(name, {count, size});
  part.columns = size;
  part.count = 1;
  part.is_vector = true;
  std::vector<Rows> parts(static_cast<std::size_t>(count), part);
  for (std::int64_t i = 0; i < count; ++i) parts[i].first = i * size;
  return parts;
}

std::vector<Rows> TensorFinder::stacked_transposed(const std::string& name, std::int64_t count,
                                                   std::int64_t rows, std::int64_t columns) const {
  Rows part;
  part.tensor = &require(name, {count, columns, rows});
  part.columns = columns;
  part.count = rows;
  part.encoding = Rows::Encoding::transposed;
  std::vector<Rows> parts(static_cast<std::size_t>(count), part);
  for (std::int64_t i = 0; i < count; ++i) parts[i].offset = i * rows * columns;
  return parts;
}

std::vector<Rows> TensorFinder::stacked_mxfp4(const std::string& name, std::int64_t count,
                                              std::int64_t rows, std::int64_t columns) const {
  if (columns % 32 != 0)
    fail(ErrorCode::unreadable, "tensor ", quoted(name + "_blocks"), ": rows of ", columns,
         " values, expected a multiple of 32");
  Rows part;
  part.tensor = &require(name + "_blocks", {count, rows, columns / 32, 16}, true);
  part.scales = &require(name + "_scales", {count, rows, columns / 32}, true);
  for (const StoredTensor* tensor : {part.tensor, part.scales})
    if (tensor->type != TensorType::u8)
      fail(ErrorCode::unreadable, "tensor ", quoted(tensor->name), ": ", type_name(*tensor),
           ", expected U8");
  part.columns = columns;
  part.count = rows;
  part.encoding = Rows::Encoding::mxfp4;
  std::vector<Rows> parts(static_cast<std::size_t>(count), part);
  for (std::int64_t i = 0; i < count; ++i) parts[i].first = i * rows;
  return parts;
}

std::vector<LayerWeights> gather_layers(
    const Config& config,
    const std::function<LayerWeights(std::int64_t number, std::optional<std::int64_t> attention)>&
        read) {
  std::vector<LayerWeights> layers, waiting;
  const auto& with_attention = config.layer_numbers;  // empty: all have it
  for (std::int64_t number = 0; number < config.total_layers; ++number) {
    if (with_attention.empty() ||
        std::binary_search(with_attention.begin(), with_attention.end(), number)) {
      layers.push_back(read(number, std::ssize(layers)));
      layers.back().before = std::move(waiting);
      waiting.clear();
    } else {
      waiting.push_back(read(number, std::nullopt));
    }
  }
  layers.back().after = std::move(waiting);
  return layers;
}

void split_gates(const Config& config, Weight& qkv) {
  Rows gates = qkv.parts[0];
  for (Rows* part : {&qkv.parts[0], &gates}) {
    part->order.clear();
    for (std::int64_t head = 0; head < config.n_heads; ++head)
      for (std::int64_t i = 0; i < config.head_dim; ++i)
        part->order.push_back((2 * head + (part == &gates ? 1 : 0)) * config.head_dim + i);
    (part->is_vector ? part->columns : part->count) = config.n_heads * config.head_dim;
  }
  qkv.parts.push_back(std::move(gates));
}

std::vector<std::int64_t> by_head(const std::vector<std::int64_t>& pieces, std::int64_t heads) {
  const auto of_head = std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0});
  std::vector<std::int64_t> order;
  order.reserve(static_cast<std::size_t>(of_head * heads));
  std::int64_t before = 0;
  for (const auto piece : pieces) {
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t i = 0; i < piece; ++i) order.push_back(head * of_head + before + i);
    before += piece;
  }
  return order;
}

namespace {

void add_turned(const Latent& latent, std::int64_t begin, bool neighbours,
                std::vector<std::int64_t>& order) {
  const std::int64_t half = latent.rotated_dim / 2;
  for (std::int64_t i = 0; i < latent.rotated_dim; ++i)
    order.push_back(begin + (neighbours ? 2 * (i % half) + i / half : i));
}

}  // namespace

std::vector<std::int64_t> latent_query_order(const Config& config, std::int64_t head_dim,
                                             bool neighbours) {
  std::vector<std::int64_t> order;
  for (std::int64_t head = 0; head < config.n_heads; ++head) {
    const std::int64_t begin = head * head_dim;
    add_turned(config.latent, begin + config.latent.plain_dim, neighbours, order);
    for (std::int64_t i = 0; i < config.latent.plain_dim; ++i) order.push_back(begin + i);
  }
  return order;
}

std::vector<std::int64_t> latent_order(const Config& config, bool neighbours) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(config.latent.rank));
  std::iota(order.begin(), order.end(), 0);
  add_turned(config.latent, config.latent.rank, neighbours, order);
  return order;
}

void interleaved_halves(const std::vector<Rows>& fused, std::vector<Rows>& out) {
  for (const Rows& both : fused)
    for (std::int64_t half = 0; half < 2; ++half) {
      Rows part = both;
      part.first += half;
      part.step = 2;
      (part.is_vector ? part.columns : part.count) /= 2;
      out.push_back(std::move(part));
    }
}

std::vector<std::int64_t> neighbours_to_halves(const Config& config, std::int64_t n_heads) {
  const std::int64_t half = config.rotary_dim / 2;
  std::vector<std::int64_t> order;
  order.reserve(n_heads * config.head_dim);
  for (std::int64_t head = 0; head < n_heads; ++head) {
    const std::int64_t base = head * config.head_dim;
    for (std::int64_t i = 0; i < half; ++i) order.push_back(base + 2 * i);
    for (std::int64_t i = 0; i < half; ++i) order.push_back(base + 2 * i + 1);
    for (std::int64_t i = 2 * half; i < config.head_dim; ++i) order.push_back(base + i);
  }
  return order;
}

}  // namespace kvatlas::model
