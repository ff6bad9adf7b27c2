// SPDX-License-Identifier: Apache-2.0
// Datasets: made, and written chunk by chunk; read with every size checked against the bytes that
// are really there. HDF5's filters never run.
#pragma once

#include <string>
#include <vector>

#include "analyzer/profile/hdf5_impl.hpp"
#include "analyzer/profile/profile.hpp"

namespace kvatlas::profile {

/// A new dataset of a type and shape; with no elements, it has no chunks. `chunk` as the grid's.
H5Dataset make_dataset(hid_t place, const std::string& path, Type type, const Grid& grid);

/// Writes chunk number k of the dataset's grid.
void write_chunk(const H5Dataset& dataset, const Grid& grid, std::int64_t k, const Bytes& bytes);

/// An array in a file that is not trusted, after everything about it was checked but its chunks.
struct StoredArray {
  std::string path;
  H5Object dataset;
  Type type = Type::f32;
  Grid grid;  // no chunk sizes: not chunked
  bool shuffled = false, deflated = false;
};

/// Error(unreadable): not there, not a plain array (external storage, virtual, foreign filters or
/// types), or larger than its stored bytes, of a file of `file_bytes`, can be.
StoredArray open_array(hid_t place, const std::string& path, std::int64_t file_bytes);

/// A part of an array as it is stored: read under HDF5's lock, decoded without it.
struct RawBlock {
  struct Piece {
    Sizes start;  // in the whole array
    Bytes bytes;
    bool shuffled, deflated;
  };
  std::string path;
  Sizes start, chunk;
  Array array;  // whole already where the dataset is not chunked, else still zeros' shape
  std::vector<Piece> pieces;
};

/// The block of `extent` at `start`.
RawBlock read_raw(const StoredArray& stored, const Sizes& start, const Sizes& extent);
RawBlock read_raw(const StoredArray& stored);
/// Its elements, on all threads. Error(unreadable) names the damaged chunk.
Array decode(RawBlock block);

/// Chunk number k of a shuffled and deflated array, without decoding it.
Bytes read_stored_chunk(const StoredArray& stored, std::int64_t k);

}  // namespace kvatlas::profile
