// SPDX-License-Identifier: Apache-2.0
// Datasets are made and written chunk by chunk by HDF5, whose filters never run. They are read
// without HDF5, and every size is checked against the bytes that are really there.
#pragma once

#include <string>
#include <vector>

#include "analyzer/profile/hdf5_impl.hpp"
#include "analyzer/profile/profile.hpp"
#include "analyzer/profile/stored_chunks_impl.hpp"

namespace kvatlas::profile {

/// Makes a dataset of a type, with the grid's shape and chunks. One without elements has no chunks.
H5Dataset make_dataset(hid_t place, const std::string& path, Type type, const Grid& grid);

/// Writes chunk number k of the dataset's grid.
void write_chunk(const H5Dataset& dataset, const Grid& grid, std::int64_t k, const Bytes& bytes);

/// An array in a file that is not trusted. All that is said of it has been checked, but its chunks
/// have not.
struct StoredArray {
  std::string path;
  StoredObject dataset;
  Type type = Type::f32;
  Grid grid;  // has no chunk sizes if the array is not chunked
  bool shuffled = false, deflated = false;
  std::vector<StoredChunk> chunks;  // of the grid
  StoredLayout layout;
};

/// Error(unreadable) if the dataset is absent, is no plain array (it has external or virtual
/// storage, or filters or types that kvatlas does not write), or is larger than the bytes stored in
/// its file can make it.
StoredArray open_array(const StoredObject& place, const std::string& path);

/// A part of an array as it is stored. It is read while the file is locked, and decoded afterwards.
struct RawBlock {
  struct Piece {
    Sizes start;  // in the whole array
    Bytes bytes;
    bool shuffled, deflated;
  };
  std::string path;
  Sizes start, chunk;
  Array array;  // complete if the dataset is not chunked; otherwise of the right shape, and zero
  std::vector<Piece> pieces;
};

/// Reads the stored bytes of the block of `extent` elements at `start`.
RawBlock read_raw(const StoredArray& stored, const Sizes& start, const Sizes& extent);
RawBlock read_raw(const StoredArray& stored);
/// Decodes the elements on all threads. Error(unreadable) names the chunk that is damaged.
Array decode(RawBlock block);

/// Chunk number k of a shuffled and deflated array, without decoding it.
Bytes read_stored_chunk(const StoredArray& stored, std::int64_t k);

}  // namespace kvatlas::profile
