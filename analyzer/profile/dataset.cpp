// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "analyzer/profile/dataset_impl.hpp"
namespace kvatlas::profile {
namespace {

constexpr int kMostStoredAxes = 8;
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

void require_plain(const H5Properties& creation, const std::string& path) {
  const H5D_layout_t layout = check(H5Pget_layout(creation.get()), path);
  if (layout == H5D_VIRTUAL)
    fail(ErrorCode::unreadable, quoted(path), " is a virtual dataset, made of other files' parts");
  if (check(H5Pget_external_count(creation.get()), path) > 0)
    fail(ErrorCode::unreadable, quoted(path), " keeps its data in another file");
}

void read_filters(const H5Properties& creation, StoredArray& stored) {
  const int count = check(H5Pget_nfilters(creation.get()), stored.path);
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0, configuration = 0;
    std::size_t values = 0;
    const auto filter = check(H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags,
                                             &values, nullptr, 0, nullptr, &configuration),
                              stored.path);
    if (filter == H5Z_FILTER_SHUFFLE && !stored.shuffled && !stored.deflated)
      stored.shuffled = true;
    else if (filter == H5Z_FILTER_DEFLATE && !stored.deflated)
      stored.deflated = true;
    else
      fail(ErrorCode::unreadable, quoted(stored.path), " has filter ", filter, " at place ", i,
           ", expected shuffle (", H5Z_FILTER_SHUFFLE, "), then deflate (", H5Z_FILTER_DEFLATE,
           ")");
  }
}

Type read_type(const H5Object& dataset, const std::string& path) {
  const H5Type found(H5Dget_type(dataset.get()), path);
  for (const Type type : kTypes)
    if (check(H5Tequal(found.get(), file_type(type).get()), path) > 0) return type;
  fail(ErrorCode::unreadable, quoted(path),
       " has a type of its own, expected float32, float16, int32, int64 or uint8");
}

Sizes read_shape(const H5Object& dataset, const std::string& path) {
  const H5Space space(H5Dget_space(dataset.get()), path);
  const int rank = check(H5Sget_simple_extent_ndims(space.get()), path);
  if (H5Sget_simple_extent_type(space.get()) != H5S_SIMPLE || rank > kMostStoredAxes)
    fail(ErrorCode::unreadable, quoted(path), " has ", rank, " axes, expected 1 to ",
         kMostStoredAxes);
  std::array<hsize_t, kMostStoredAxes> sizes{}, most{};
  check(H5Sget_simple_extent_dims(space.get(), sizes.data(), most.data()), path);
  // HDF5 1.10 looks chunks up by the sizes that could be, wherever their index ends.
  if (sizes != most) fail(ErrorCode::unreadable, quoted(path), " can grow, expected fixed sizes");
  Sizes shape;
  for (int i = 0; i < rank; ++i)
    shape.push_back(sizes[i] > hsize_t{1} << 62 ? -1 : static_cast<std::int64_t>(sizes[i]));
  return shape;
}

Sizes read_chunk_sizes(const H5Properties& creation, const StoredArray& stored) {
  std::array<hsize_t, kMostStoredAxes> sizes{};
  const int rank = check(H5Pget_chunk(creation.get(), kMostStoredAxes, sizes.data()), stored.path);
  Sizes chunk;
  for (int i = 0; i < rank; ++i) {
    chunk.push_back(static_cast<std::int64_t>(sizes[i]));
    if (chunk.back() <= 0)
      fail(ErrorCode::unreadable, quoted(stored.path), " has chunks without elements");
  }
  if (chunk.size() != stored.grid.shape.size())
    fail(ErrorCode::unreadable, quoted(stored.path), " has chunks of ", rank,
         " axes, expected as many as its own, ", stored.grid.shape.size());
  if (in_context(quoted(stored.path), [&] { return byte_count(stored.type, chunk); }) >
      kMostChunkBytes)
    fail(ErrorCode::unreadable, quoted(stored.path), " has chunks of ", list_str(chunk),
         ", expected at most ", kMostChunkBytes, " bytes");
  return chunk;
}

/// HDF5 1.10 looks a chunk up behind the end of an index that is shorter than the sizes ask for.
void require_every_chunk(const StoredArray& stored) {
  const H5Space space(H5Dget_space(stored.dataset.get()), stored.path);
  hsize_t chunks = 0;
  check(H5Dget_num_chunks(stored.dataset.get(), space.get(), &chunks), quoted(stored.path));
  const auto expected =
      in_context(quoted(stored.path), [&] { return static_cast<hsize_t>(stored.grid.size()); });
  if (chunks != expected)
    fail(ErrorCode::unreadable, quoted(stored.path), " has ", chunks, " chunks, and its sizes ",
         list_str(stored.grid.shape), " take ", expected);
}

/// A chunk's bytes as they are stored. Empty: it is not there.
Bytes read_stored(const StoredArray& stored, const Sizes& start, bool& shuffled, bool& deflated) {
  const auto offset = to_hdf5(start);
  hsize_t size = 0;
  const auto what = [&] { return str(quoted(stored.path), ": chunk at ", list_str(start)); };
  if (H5Dget_chunk_storage_size(stored.dataset.get(), offset.data(), &size) < 0) fail_hdf5(what());
  if (size == 0) fail(ErrorCode::unreadable, what(), " is missing");
  const std::int64_t plain = byte_count(stored.type, stored.grid.chunk);
  const std::int64_t most = plain + plain / 100 + 1024;
  if (static_cast<std::int64_t>(size) < plain / kMostExpansion || size > static_cast<hsize_t>(most))
    fail(ErrorCode::unreadable, what(), " has ", size, " stored bytes, which ", plain,
         " bytes cannot have");
  Bytes bytes(size);
  std::uint32_t skipped = 0;  // a bit for each filter in turn
  if (H5Dread_chunk(stored.dataset.get(), H5P_DEFAULT, offset.data(), &skipped, bytes.data()) < 0)
    fail_hdf5(what());
  shuffled = stored.shuffled && (skipped & 1U) == 0;
  deflated = stored.deflated && (skipped & (stored.shuffled ? 2U : 1U)) == 0;
  return bytes;
}

Array read_contiguous(const StoredArray& stored, const Sizes& start, const Sizes& extent) {
  Array array(stored.type, extent);
  if (array.bytes.empty()) return array;
  const H5Space file(H5Dget_space(stored.dataset.get()), stored.path);
  const auto first = to_hdf5(start), count = to_hdf5(extent);
  check(
      H5Sselect_hyperslab(file.get(), H5S_SELECT_SET, first.data(), nullptr, count.data(), nullptr),
      stored.path);
  const H5Space memory(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr),
                       stored.path);
  check(H5Dread(stored.dataset.get(), file_type(stored.type).get(), memory.get(), file.get(),
                H5P_DEFAULT, array.bytes.data()),
        quoted(stored.path));
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

StoredArray open_array(hid_t place, const std::string& path, std::int64_t file_bytes) {
  StoredArray stored;
  stored.path = path;
  stored.dataset = open_object(place, path, H5I_DATASET);
  const H5Properties creation(H5Dget_create_plist(stored.dataset.get()), path);
  require_plain(creation, path);
  stored.type = read_type(stored.dataset, path);
  stored.grid.shape = read_shape(stored.dataset, path);
  const std::int64_t bytes =
      in_context(quoted(path), [&] { return byte_count(stored.type, stored.grid.shape); });
  const bool chunked = H5Pget_layout(creation.get()) == H5D_CHUNKED;
  if (chunked) {
    stored.grid.chunk = read_chunk_sizes(creation, stored);
    read_filters(creation, stored);
  }
  if (bytes == 0) return stored;
  const hsize_t kept = H5Dget_storage_size(stored.dataset.get());
  const auto limit = static_cast<hsize_t>(file_bytes);
  if (kept > limit || static_cast<std::int64_t>(kept) < bytes / (chunked ? kMostExpansion : 1))
    fail(ErrorCode::unreadable, quoted(path), " has ", kept, " stored bytes in a file of ",
         file_bytes, ", and its sizes ", list_str(stored.grid.shape), " stand for ", bytes);
  if (chunked) require_every_chunk(stored);
  return stored;
}

RawBlock read_raw(const StoredArray& stored, const Sizes& start, const Sizes& extent) {
  const Grid& grid = stored.grid;
  RawBlock block{stored.path, start, grid.chunk, {}, {}};
  if (grid.chunk.empty() || element_count(extent) == 0) {
    block.array = read_contiguous(stored, start, extent);
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
    piece.bytes = read_stored(stored, piece.start, piece.shuffled, piece.deflated);
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
  Bytes bytes = read_stored(stored, stored.grid.start(k), shuffled, deflated);
  if (!shuffled || !deflated)
    fail(ErrorCode::unreadable, quoted(stored.path),
         " has a chunk that is not shuffled and deflated as the others");
  return bytes;
}

}  // namespace kvatlas::profile
