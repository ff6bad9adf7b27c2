// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "analyzer/profile/dataset_impl.hpp"
namespace kvatlas::profile {
namespace {

constexpr std::size_t kMostStoredAxes = 8;
constexpr std::int64_t kMostChunkBytes = 64 << 20;  // a reader holds one a thread
constexpr std::array kTypes = {Type::f32, Type::f16, Type::i32, Type::i64, Type::u8};

H5Type file_type(Type type) {
  const auto copied = [](hid_t id) { return H5Type(H5Tcopy(id), "making a type"); };
  switch (type) {
    case Type::f32:
      return copied(H5T_IEEE_F32LE);
    case Type::i32:
      return copied(H5T_STD_I32LE);
    case Type::i64:
      return copied(H5T_STD_I64LE);
    case Type::u8:
      return copied(H5T_STD_U8LE);
    default: {  // IEEE half precision: sign, 5 bits of exponent, 10 of mantissa
      H5Type half = copied(H5T_IEEE_F32LE);
      check(H5Tset_fields(half.get(), 15, 10, 5, 0, 10), "making a type");
      check(H5Tset_size(half.get(), 2), "making a type");
      check(H5Tset_ebias(half.get(), 15), "making a type");
      return half;
    }
  }
}

std::vector<hsize_t> to_hdf5(const Sizes& sizes) { return {sizes.begin(), sizes.end()}; }

void require_plain(const StoredLayout& layout, const StoredObject& dataset,
                   const std::string& path) {
  if (layout.kind == StoredLayout::virtual_parts)
    fail(ErrorCode::unreadable, quoted(path), " is a virtual dataset, made of other files' parts");
  if (dataset.find(StoredObject::external_files) != nullptr)
    fail(ErrorCode::unreadable, quoted(path), " keeps its data in another file");
}

void read_filters(StoredArray& stored) {
  if (stored.dataset.find(StoredObject::filters) == nullptr) return;
  const auto filters = in_context(quoted(stored.path), [&] {
    return parse_filters(stored.dataset.body(StoredObject::filters, "list of filters"));
  });
  for (std::size_t i = 0; i < filters.size(); ++i) {
    if (filters[i] == H5Z_FILTER_SHUFFLE && !stored.shuffled && !stored.deflated)
      stored.shuffled = true;
    else if (filters[i] == H5Z_FILTER_DEFLATE && !stored.deflated)
      stored.deflated = true;
    else
      fail(ErrorCode::unreadable, quoted(stored.path), " has filter ", filters[i], " at place ", i,
           ", expected shuffle (", H5Z_FILTER_SHUFFLE, "), then deflate (", H5Z_FILTER_DEFLATE,
           ")");
  }
}

Type read_type(const StoredObject& dataset, const std::string& path) {
  const auto* found = dataset.find(StoredObject::datatype);
  if (found != nullptr && !found->shared)
    for (const Type type : kTypes)
      if (is_type(found->body, type)) return type;
  fail(ErrorCode::unreadable, quoted(path),
       " has a type of its own, expected float32, float16, int32, int64 or uint8");
}

Sizes read_shape(const StoredObject& dataset, const std::string& path) {
  const StoredSpace space = in_context(
      quoted(path), [&] { return parse_space(dataset.body(StoredObject::dataspace, "sizes")); });
  const std::size_t rank = space.sizes.size();
  if (!space.simple || rank == 0 || rank > kMostStoredAxes)
    fail(ErrorCode::unreadable, quoted(path), " has ", rank, " axes, expected 1 to ",
         kMostStoredAxes);
  // The index of chunks would be one of another kind, or of other sizes.
  if (space.sizes != space.most)
    fail(ErrorCode::unreadable, quoted(path), " can grow, expected fixed sizes");
  return space.sizes;
}

Sizes read_chunk_sizes(const StoredArray& stored) {
  Sizes chunk = stored.layout.chunk;
  if (chunk.size() != stored.grid.shape.size() + 1)
    fail(ErrorCode::unreadable, quoted(stored.path), " has chunks of ", chunk.size() - 1,
         " axes, expected as many as its own, ", stored.grid.shape.size());
  if (chunk.back() != type_bytes(stored.type))
    fail(ErrorCode::unreadable, quoted(stored.path), " has chunks of elements of ", chunk.back(),
         " bytes, expected ", type_bytes(stored.type));
  chunk.pop_back();
  if (std::ranges::any_of(chunk, [](auto size) { return size <= 0; }))
    fail(ErrorCode::unreadable, quoted(stored.path), " has chunks without elements");
  if (in_context(quoted(stored.path), [&] { return byte_count(stored.type, chunk); }) >
      kMostChunkBytes)
    fail(ErrorCode::unreadable, quoted(stored.path), " has chunks of ", list_str(chunk),
         ", expected at most ", kMostChunkBytes, " bytes");
  return chunk;
}

/// Finds the chunks, and returns how many bytes they have in all.
std::int64_t find_chunks(StoredArray& stored) {
  const std::int64_t plain = byte_count(stored.type, stored.grid.chunk);
  stored.chunks = in_context(quoted(stored.path), [&] {
    return read_chunk_index(stored.dataset.file(), stored.layout, stored.grid.size(), plain,
                            stored.shuffled || stored.deflated);
  });
  std::int64_t kept = 0;
  for (const StoredChunk& chunk : stored.chunks)
    if (chunk.address != kNowhere) kept += static_cast<std::int64_t>(chunk.bytes);
  return kept;
}

void require_every_chunk(const StoredArray& stored) {
  const auto there = std::ranges::count_if(
      stored.chunks, [](const StoredChunk& chunk) { return chunk.address != kNowhere; });
  if (there != stored.grid.size())
    fail(ErrorCode::unreadable, quoted(stored.path), " has ", there, " chunks, and its sizes ",
         list_str(stored.grid.shape), " take ", stored.grid.size());
}

/// The bytes of chunk number k as they are stored.
Bytes read_stored(const StoredArray& stored, std::int64_t k, bool& shuffled, bool& deflated) {
  const StoredChunk& chunk = stored.chunks[static_cast<std::size_t>(k)];
  const auto size = static_cast<std::int64_t>(chunk.bytes);
  const auto what = [&] {
    return str(quoted(stored.path), ": chunk at ", list_str(stored.grid.start(k)));
  };
  const std::int64_t plain = byte_count(stored.type, stored.grid.chunk);
  const std::int64_t most = plain + plain / 100 + 1024;
  if (size == 0 || size < plain / kMostExpansion || size > most)
    fail(ErrorCode::unreadable, what(), " has ", size, " stored bytes, which ", plain,
         " bytes cannot have");
  shuffled = stored.shuffled && (chunk.skipped & 1U) == 0;
  deflated = stored.deflated && (chunk.skipped & (stored.shuffled ? 2U : 1U)) == 0;
  return in_context(what(), [&] { return stored.dataset.file().read(chunk.address, chunk.bytes); });
}

/// Of an array whose elements lie one after the other, in the file or in the dataset's header.
Array read_unchunked(const StoredArray& stored, const Sizes& start, const Sizes& extent) {
  Array array(stored.type, extent);
  if (array.bytes.empty()) return array;
  const std::int64_t element = type_bytes(stored.type);
  const Sizes& shape = stored.grid.shape;
  const std::size_t rank = shape.size();
  if (stored.layout.kind == StoredLayout::compact) {
    copy_block(stored.layout.data.data(), shape, start, array.bytes.data(), extent, Sizes(rank, 0),
               extent, element);
    return array;
  }
  std::size_t axis = rank - 1;  // the first one of those that are read in one piece
  while (axis > 0 && extent[axis] == shape[axis]) --axis;
  std::int64_t piece = element;
  for (std::size_t i = axis; i < rank; ++i) piece *= extent[i];
  for (std::int64_t done = 0; done < std::ssize(array.bytes); done += piece) {
    std::int64_t left = done / piece, place = 0, step = 1;  // of the piece's first element
    for (std::size_t i = rank; i-- > 0; step *= shape[i]) {
      place += (start[i] + (i < axis ? left % extent[i] : 0)) * step;
      if (i < axis) left /= extent[i];
    }
    stored.dataset.file().read(
        stored.layout.all.address + static_cast<std::uint64_t>(place * element),
        std::span(array.bytes)
            .subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(piece)));
  }
  return array;
}

}  // namespace

H5Dataset make_dataset(hid_t place, const std::string& path, Type type, const Grid& grid) {
  const auto slash = path.rfind('/');
  const H5Group group = slash == path.npos ? H5Group() : make_groups(place, path.substr(0, slash));
  const H5Properties creation(H5Pcreate(H5P_DATASET_CREATE), "making dataset properties");
  set_object_properties(creation);
  const int rank = static_cast<int>(grid.shape.size());
  if (element_count(grid.shape) > 0) {
    check(H5Pset_chunk(creation.get(), rank, to_hdf5(grid.chunk).data()), path);
    check(H5Pset_shuffle(creation.get()), path);
    check(H5Pset_deflate(creation.get(), kDeflateLevel), path);
    check(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER), path);
  }
  const auto sizes = to_hdf5(grid.shape);
  const H5Space space(H5Screate_simple(rank, sizes.data(), nullptr), path);
  return {H5Dcreate2(slash == path.npos ? place : group.get(),
                     path.substr(slash == path.npos ? 0 : slash + 1).c_str(), file_type(type).get(),
                     space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
          str("making ", quoted(path))};
}

void write_chunk(const H5Dataset& dataset, const Grid& grid, std::int64_t k, const Bytes& bytes) {
  check(H5Dwrite_chunk(dataset.get(), H5P_DEFAULT, 0, to_hdf5(grid.start(k)).data(), bytes.size(),
                       bytes.data()),
        "writing a chunk");
}

StoredArray open_array(const StoredObject& place, const std::string& path) {
  StoredArray stored;
  stored.path = path;
  stored.dataset = open_dataset(place, path);
  stored.grid.shape = read_shape(stored.dataset, path);
  stored.layout = in_context(quoted(path), [&] {
    return parse_layout(stored.dataset.body(StoredObject::layout, "layout"));
  });
  require_plain(stored.layout, stored.dataset, path);
  stored.type = read_type(stored.dataset, path);
  const std::int64_t bytes =
      in_context(quoted(path), [&] { return byte_count(stored.type, stored.grid.shape); });
  const bool chunked = stored.layout.kind == StoredLayout::chunked;
  if (chunked) {
    stored.grid.chunk = read_chunk_sizes(stored);
    read_filters(stored);
  }
  if (bytes == 0) return stored;
  const StoredFile& file = stored.dataset.file();
  std::int64_t kept = std::ssize(stored.layout.data);
  if (chunked)
    kept = find_chunks(stored);
  else if (const auto& all = stored.layout.all; all.address != kNowhere)
    kept = in_context(quoted(path), [&] {
      file.require_inside(all.address, all.bytes);
      return static_cast<std::int64_t>(all.bytes);
    });
  if (kept > file.size() || kept < bytes / (chunked ? kMostExpansion : 1))
    fail(ErrorCode::unreadable, quoted(path), " has ", kept, " stored bytes in a file of ",
         file.size(), ", and its sizes ", list_str(stored.grid.shape), " stand for ", bytes);
  if (chunked) require_every_chunk(stored);
  return stored;
}

RawBlock read_raw(const StoredArray& stored, const Sizes& start, const Sizes& extent) {
  const Grid& grid = stored.grid;
  RawBlock block{stored.path, start, grid.chunk, {}, {}};
  if (grid.chunk.empty() || element_count(extent) == 0) {
    block.array = read_unchunked(stored, start, extent);
    return block;
  }
  block.array.type = stored.type;
  block.array.shape = extent;
  // The chunks that the block touches, as a grid of its own.
  Grid touched{extent, grid.chunk};
  Sizes first = start;
  for (std::size_t i = 0; i < start.size(); ++i) {
    first[i] = start[i] / grid.chunk[i] * grid.chunk[i];
    touched.shape[i] = start[i] + extent[i] - first[i];
  }
  const std::int64_t count = touched.size();
  for (std::int64_t k = 0; k < count; ++k) {
    RawBlock::Piece piece{touched.start(k), {}, false, false};
    for (std::size_t i = 0; i < first.size(); ++i) piece.start[i] += first[i];
    piece.bytes = read_stored(stored, grid.number(piece.start), piece.shuffled, piece.deflated);
    block.pieces.push_back(std::move(piece));
  }
  return block;
}

RawBlock read_raw(const StoredArray& stored) {
  return read_raw(stored, Sizes(stored.grid.shape.size(), 0), stored.grid.shape);
}

Array decode(RawBlock block) {
  if (block.pieces.empty()) return std::move(block.array);
  Array array(block.array.type, block.array.shape);
  const std::int64_t element = type_bytes(array.type);
  parallel_for(static_cast<std::int64_t>(block.pieces.size()), [&](std::int64_t k, int) {
    const RawBlock::Piece& piece = block.pieces[k];
    Bytes plain(static_cast<std::size_t>(byte_count(array.type, block.chunk)));
    if (!decode_chunk(piece.bytes, piece.shuffled, piece.deflated, element, plain))
      fail(ErrorCode::unreadable, quoted(block.path), ": chunk at ", list_str(piece.start),
           " is damaged");
    const std::size_t rank = block.chunk.size();
    Sizes from(rank), to(rank), extent(rank);
    for (std::size_t i = 0; i < rank; ++i) {
      const std::int64_t begin = std::max(block.start[i], piece.start[i]);
      const std::int64_t end =
          std::min(block.start[i] + array.shape[i], piece.start[i] + block.chunk[i]);
      from[i] = begin - piece.start[i];
      to[i] = begin - block.start[i];
      extent[i] = end - begin;
    }
    copy_block(plain.data(), block.chunk, from, array.bytes.data(), array.shape, to, extent,
               element);
  });
  return array;
}

Bytes read_stored_chunk(const StoredArray& stored, std::int64_t k) {
  bool shuffled = false, deflated = false;
  Bytes bytes = read_stored(stored, k, shuffled, deflated);
  if (!shuffled || !deflated)
    fail(ErrorCode::unreadable, quoted(stored.path),
         " has a chunk that is not shuffled and deflated as the others");
  return bytes;
}

}  // namespace kvatlas::profile
