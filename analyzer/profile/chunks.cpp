// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <libdeflate.h>
#include <new>
#include <utility>

#include "analyzer/profile/chunks_impl.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"

namespace kvatlas::profile {

std::int64_t element_count(const Sizes& sizes) {
  std::int64_t count = 1;
  bool empty = false;
  for (const auto size : sizes) {
    if (size == 0)
      empty = true;
    else if (size < 0 || count > (std::int64_t{1} << 62) / size)
      fail(ErrorCode::unreadable, "sizes ", list_str(sizes), " are beyond what can be");
    else
      count *= size;
  }
  return empty ? 0 : count;
}

std::int64_t byte_count(Type type, const Sizes& shape) {
  Sizes sizes = shape;
  sizes.push_back(type_bytes(type));
  return element_count(sizes);
}

std::int64_t Grid::size() const {
  Sizes counts;
  for (std::size_t i = 0; i < shape.size(); ++i)
    counts.push_back(shape[i] / chunk[i] + (shape[i] % chunk[i] != 0));
  return element_count(counts);
}

Sizes Grid::start(std::int64_t k) const {
  Sizes start(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    const std::int64_t count = shape[i] / chunk[i] + (shape[i] % chunk[i] != 0);
    start[i] = k % count * chunk[i];
    k /= count;
  }
  return start;
}

std::int64_t Grid::number(const Sizes& place) const {
  std::int64_t k = 0;
  for (std::size_t i = 0; i < shape.size(); ++i)
    k = k * (shape[i] / chunk[i] + (shape[i] % chunk[i] != 0)) + place[i] / chunk[i];
  return k;
}

Sizes chunk_sizes(const Sizes& shape, int single_axes) {
  constexpr std::int64_t kTile = 256, kMost = 256 * 1024, kSmall = 8 * 1024;  // elements
  const auto single = static_cast<std::size_t>(single_axes);
  const bool tiles = single > 0 && shape.size() >= single + 2;
  Sizes chunk(shape.size(), 1);
  std::int64_t elements = 1;
  bool whole = true;  // the chunk has all of the axes that are not single
  for (std::size_t i = shape.size(); i-- > single;) {
    const bool tile_axis = tiles && i + 2 >= shape.size();
    chunk[i] = std::max<std::int64_t>(
        1, std::min({shape[i], tile_axis ? kTile : kMost, kMost / elements}));
    elements *= chunk[i];
    whole = whole && chunk[i] == shape[i];
  }
  for (std::size_t i = single; whole && i-- > 0;) {
    chunk[i] = std::clamp<std::int64_t>(kSmall / elements, 1, std::max<std::int64_t>(shape[i], 1));
    elements *= chunk[i];
    whole = chunk[i] == shape[i];
  }
  return chunk;
}

void copy_block(const std::byte* from, const Sizes& from_shape, const Sizes& from_start,
                std::byte* to, const Sizes& to_shape, const Sizes& to_start, const Sizes& extent,
                std::int64_t element_bytes) {
  const std::size_t rank = extent.size();
  if (std::find(extent.begin(), extent.end(), 0) != extent.end()) return;
  Sizes at(rank, 0);
  const auto offset = [&](const Sizes& shape, const Sizes& start) {
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < rank; ++i) elements = elements * shape[i] + start[i] + at[i];
    return elements * element_bytes;
  };
  const auto run = static_cast<std::size_t>(extent.back() * element_bytes);
  for (;;) {
    std::memcpy(to + offset(to_shape, to_start), from + offset(from_shape, from_start), run);
    std::size_t axis = rank - 1;  // the last one is copied whole
    for (; axis > 0 && ++at[axis - 1] == extent[axis - 1]; --axis) at[axis - 1] = 0;
    if (axis == 0) return;
  }
}

namespace {

struct FreeCoder {
  void operator()(libdeflate_compressor* coder) const { libdeflate_free_compressor(coder); }
  void operator()(libdeflate_decompressor* coder) const { libdeflate_free_decompressor(coder); }
};
using Compressor = std::unique_ptr<libdeflate_compressor, FreeCoder>;
using Decompressor = std::unique_ptr<libdeflate_decompressor, FreeCoder>;

/// Byte b of every element, then byte b + 1 of every element, …
void shuffle(const std::byte* elements, std::size_t count, std::size_t size, std::byte* out) {
  for (std::size_t b = 0; b < size; ++b)
    for (std::size_t i = 0; i < count; ++i) *out++ = elements[i * size + b];
}

void unshuffle(const std::byte* shuffled, std::size_t count, std::size_t size, std::byte* out) {
  for (std::size_t b = 0; b < size; ++b)
    for (std::size_t i = 0; i < count; ++i) out[i * size + b] = *shuffled++;
}

}  // namespace

Bytes encode_chunk(const Array& array, const Grid& grid, std::int64_t k) {
  const auto element = static_cast<std::size_t>(type_bytes(array.type));
  const Sizes start = grid.start(k), origin(start.size(), 0);
  Sizes extent = grid.chunk;
  for (std::size_t i = 0; i < extent.size(); ++i)
    extent[i] = std::min(extent[i], grid.shape[i] - start[i]);
  const auto count = static_cast<std::size_t>(element_count(grid.chunk));
  Bytes plain(count * element);
  copy_block(array.bytes.data(), array.shape, start, plain.data(), grid.chunk, origin, extent,
             static_cast<std::int64_t>(element));
  if (element > 1) {
    Bytes shuffled(plain.size());
    shuffle(plain.data(), count, element, shuffled.data());
    plain = std::move(shuffled);
  }
  thread_local const Compressor compressor(libdeflate_alloc_compressor(kDeflateLevel));
  if (!compressor) throw std::bad_alloc();
  Bytes out(libdeflate_zlib_compress_bound(compressor.get(), plain.size()));
  out.resize(libdeflate_zlib_compress(compressor.get(), plain.data(), plain.size(), out.data(),
                                      out.size()));
  out.shrink_to_fit();
  return out;
}

std::vector<Bytes> encode_chunks(const Array& array, const Grid& grid) {
  std::vector<Bytes> chunks(static_cast<std::size_t>(grid.size()));
  parallel_for(grid.size(), [&](std::int64_t k, int) { chunks[k] = encode_chunk(array, grid, k); });
  return chunks;
}

bool decode_chunk(std::span<const std::byte> stored, bool shuffled, bool deflated,
                  std::int64_t element_bytes, std::span<std::byte> out) {
  Bytes inflated;
  if (deflated) {
    inflated.resize(out.size());
    thread_local const Decompressor decompressor(libdeflate_alloc_decompressor());
    if (!decompressor) throw std::bad_alloc();
    std::size_t used = 0;
    if (libdeflate_zlib_decompress_ex(decompressor.get(), stored.data(), stored.size(),
                                      inflated.data(), inflated.size(), &used,
                                      nullptr) != LIBDEFLATE_SUCCESS ||
        used != stored.size())
      return false;
    stored = inflated;
  }
  if (stored.size() != out.size()) return false;
  const auto element = static_cast<std::size_t>(element_bytes);
  if (shuffled)
    unshuffle(stored.data(), out.size() / element, element, out.data());
  else
    std::copy(stored.begin(), stored.end(), out.begin());
  return true;
}

}  // namespace kvatlas::profile
