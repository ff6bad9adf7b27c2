// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/weights.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/parallel.hpp"

namespace kvatlas::model {
namespace {

/// Vectors are read whole. Their parts lie side by side.
bool is_vector(const Weight& weight) {
  return !weight.parts.empty() && weight.parts.front().is_vector;
}

std::vector<std::int64_t> without_ones(std::vector<std::int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

std::int64_t bytes_of(TensorType type, std::int64_t values) {
  const BlockShape block = block_shape(type);
  return values / block.values * block.bytes;
}

/// The parts of a vector, side by side.
void read_vector(const Weight& weight, float* out) {
  std::vector<float> stored;
  for (const Rows& part : weight.parts) {
    if (part.order.empty()) {
      dequantize(part.tensor->type, part.tensor->bytes.data(), part.columns, out);
    } else {
      stored.resize(part.columns);
      dequantize(part.tensor->type, part.tensor->bytes.data(), part.columns, stored.data());
      for (std::int64_t i = 0; i < part.columns; ++i) out[i] = stored[part.order[i]];
    }
    out += part.columns;
  }
}

/// Rows [first, first + count) of a matrix, in the calling thread.
void read_block(const Weight& weight, std::int64_t first, std::int64_t count, float* out) {
  for (const Rows& part : weight.parts) {
    const std::int64_t begin = std::min(first, part.count);
    const std::int64_t rows = std::min(count, part.count - begin);
    const std::byte* bytes = part.tensor->bytes.data();
    const std::int64_t row_bytes = bytes_of(part.tensor->type, part.columns);
    if (part.order.empty()) {
      dequantize(part.tensor->type, bytes + (part.first + begin) * row_bytes, rows * part.columns,
                 out);
      out += rows * part.columns;
    } else {
      for (std::int64_t row = begin; row < begin + rows; ++row, out += part.columns)
        dequantize(part.tensor->type, bytes + part.order[row] * row_bytes, part.columns, out);
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
                                          const std::vector<std::int64_t>& shape) const {
  const StoredTensor* tensor = find_(name);
  if (tensor == nullptr) fail(ErrorCode::unreadable, "the tensor ", quoted(name), " is missing");
  if (tensor->shape != shape && without_ones(tensor->shape) != without_ones(shape))
    fail(ErrorCode::unreadable, "tensor ", quoted(name), ": shape ", list_str(tensor->shape),
         ", expected ", list_str(shape));
  return *tensor;
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
  const StoredTensor& tensor = require(name, {count, rows, columns});
  std::vector<Rows> parts;
  for (std::int64_t i = 0; i < count; ++i)
    parts.push_back({&tensor, columns, i * rows, rows, {}, false});
  return parts;
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
