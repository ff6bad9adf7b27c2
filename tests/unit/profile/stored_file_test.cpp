// SPDX-License-Identifier: Apache-2.0
// Our reader of HDF5's format against HDF5, which writes the files; and files whose metadata were
// forged, with their checksums put right.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include "analyzer/profile/dataset_impl.hpp"
#include "base/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/hdf5_checksums.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/unit/profile/samples.hpp"

namespace kvatlas::profile {
namespace {

namespace fs = std::filesystem;
using namespace testing_samples;
using testing::HasSubstr;
using testing_support::error_of;

class StoredFiles : public testing::Test {
 protected:
  fs::path path() const { return folder_.path() / "p.h5"; }

  /// Has HDF5 write a file, in its version's newest format.
  void make(const std::function<void(hid_t file)>& fill,
            const std::function<void(hid_t creation)>& create = {}) const {
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    if (create) create(creation);
    const hid_t file = H5Fcreate(path().c_str(), H5F_ACC_TRUNC, creation, access);
    ASSERT_GE(file, 0);
    fill(file);
    ASSERT_GE(H5Fclose(file), 0);
    H5Pclose(creation);
    H5Pclose(access);
  }

 private:
  testing_support::TemporaryFolder folder_;
};

void write_number(hid_t object, const std::string& name, std::int64_t value) {
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t attribute =
      H5Acreate2(object, name.c_str(), H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(H5Awrite(attribute, H5T_NATIVE_INT64, &value), 0);
  H5Aclose(attribute);
  H5Sclose(space);
}

void write_text(hid_t object, const std::string& name, const std::string& value) {
  const hid_t space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, value.size());
  const hid_t attribute = H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(H5Awrite(attribute, type, value.data()), 0);
  H5Aclose(attribute);
  H5Tclose(type);
  H5Sclose(space);
}

/// A dataset of ascending int32, in chunks of these sizes if there are any.
void write_ascending(hid_t place, const std::string& name, const std::vector<hsize_t>& sizes,
                     const std::vector<hsize_t>& chunk,
                     const std::function<void(hid_t creation)>& create = {}) {
  const hid_t space = H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  if (!chunk.empty()) H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
  if (create) create(creation);
  const hid_t dataset =
      H5Dcreate2(place, name.c_str(), H5T_STD_I32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  ASSERT_GE(dataset, 0);
  std::vector<std::int32_t> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
  ASSERT_GE(H5Dwrite(dataset, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  H5Dclose(dataset);
  H5Pclose(creation);
  H5Sclose(space);
}

/// How many elements of a block of such a dataset are not those that were written.
std::int64_t wrong_elements(const StoredArray& stored, const Sizes& start, const Sizes& extent) {
  const Array block = decode(read_raw(stored, start, extent));
  const Sizes& shape = stored.grid.shape;
  std::int64_t wrong = 0, i = 0;
  for (const std::int32_t value : block.values<std::int32_t>()) {
    std::int64_t left = i++, place = 0, step = 1;
    for (std::size_t axis = shape.size(); axis-- > 0; step *= shape[axis]) {
      place += (start[axis] + left % extent[axis]) * step;
      left /= extent[axis];
    }
    wrong += value != place;
  }
  return wrong + (i != element_count(extent));
}

std::string number_name(int i) { return "name-" + std::to_string(i); }

/// Few lie in the group's header, more in one leaf of its index, thousands in a tree of it, and
/// their heap has blocks within blocks.
TEST_F(StoredFiles, AnyNumberOfLinks) {
  for (const int count : {0, 3, 40, 300, 4000})
    for (const bool with_order : {false, true}) {
      make([&](hid_t file) {
        const hid_t creation = H5Pcreate(H5P_GROUP_CREATE);
        if (with_order)
          H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
        const hid_t group = H5Gcreate2(file, "all", H5P_DEFAULT, creation, H5P_DEFAULT);
        for (int i = 0; i < count; ++i) {
          const hid_t member =
              H5Gcreate2(group, number_name(i).c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
          if (i % 7 == 0) write_number(member, "i", i);
          H5Gclose(member);
        }
        H5Gclose(group);
        H5Pclose(creation);
      });
      const StoredFile file(path());
      const StoredObject root(file, file.root());
      for (int i = 0; i<count; i += count> 300 ? 49 : 7)
        ASSERT_EQ(read_integer(open_group(root, "all/" + number_name(i)), "i"), i) << count;
      EXPECT_FALSE(has_object(root, "all/" + number_name(count)));
      EXPECT_FALSE(has_object(root, "none/" + number_name(0)));
      EXPECT_EQ(has_object(root, "all/" + number_name(2)), count > 2);
      EXPECT_THAT(error_of([&] { open_group(root, "all/none"); }),
                  HasSubstr("'all/none' is missing"));
    }
}

/// Few attributes lie in the object's header, more in a heap, and a long text by itself.
TEST_F(StoredFiles, AnyNumberOfAttributesOfAnySize) {
  const std::string long_text(300'000, 'x');
  for (const int count : {1, 6, 30, 900})
    for (const bool with_order : {false, true}) {
      make(
          [&](hid_t file) {
            for (int i = 0; i < count; ++i) write_number(file, number_name(i), 3 * i);
            write_text(file, "long", long_text);
            write_text(file, "short", "s");
          },
          [&](hid_t creation) {
            if (with_order)
              H5Pset_attr_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
          });
      const StoredFile file(path());
      const StoredObject root(file, file.root());
      for (int i = 0; i < count; ++i)
        ASSERT_EQ(read_integer(root, number_name(i).c_str()), 3 * i) << count;
      EXPECT_EQ(read_string(root, "long", 1 << 20), long_text);
      EXPECT_EQ(read_string(root, "short", 1 << 20), "s");
      EXPECT_FALSE(has_attribute(root, "absent"));
      EXPECT_THAT(error_of([&] { read_string(root, "long", 1000); }),
                  HasSubstr("more than the 1000 bytes that it may have"));
      EXPECT_THAT(error_of([&] { read_integer(root, "long"); }), HasSubstr("'long'"));
    }
}

TEST_F(StoredFiles, AnyLayout) {
  const auto deflated = [](hid_t creation) {
    H5Pset_shuffle(creation);
    H5Pset_deflate(creation, 3);
  };
  const auto early = [](hid_t creation) { H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY); };
  make([&](hid_t file) {
    write_ascending(file, "plain", {20, 30, 7}, {});
    write_ascending(file, "compact", {4, 5, 6}, {},
                    [](hid_t creation) { H5Pset_layout(creation, H5D_COMPACT); });
    write_ascending(file, "one", {4, 5, 6}, {4, 5, 6});
    write_ascending(file, "one deflated", {4, 5, 6}, {4, 5, 6}, deflated);
    write_ascending(file, "neighbours", {20, 30, 7}, {3, 30, 2}, early);
    write_ascending(file, "array", {20, 30, 7}, {3, 4, 5});
    write_ascending(file, "array deflated", {20, 30, 7}, {3, 4, 5}, deflated);
    write_ascending(file, "pages", {61, 61, 2}, {1, 1, 2});
    write_ascending(file, "pages deflated", {50, 61, 2}, {1, 1, 2}, deflated);
  });
  const StoredFile file(path());
  const StoredObject root(file, file.root());
  for (const char* name : {"plain", "compact", "one", "one deflated", "neighbours", "array",
                           "array deflated", "pages", "pages deflated"}) {
    const StoredArray stored = open_array(root, name);
    const Sizes& shape = stored.grid.shape;
    EXPECT_EQ(wrong_elements(stored, {0, 0, 0}, shape), 0) << name;
    EXPECT_EQ(wrong_elements(stored, {1, 2, 1}, {shape[0] - 2, 2, 1}), 0) << name;
    EXPECT_EQ(wrong_elements(stored, {2, 0, 0}, {1, shape[1], shape[2]}), 0) << name;
    EXPECT_EQ(wrong_elements(stored, {0, 3, 0}, {2, 1, shape[2]}), 0) << name;
  }
}

TEST_F(StoredFiles, WhatIsNotReadIsSaid) {
  make([&](hid_t file) {
    write_ascending(file, "edges", {5, 5}, {2, 2}, [](hid_t creation) {
      H5Pset_deflate(creation, 1);
      H5Pset_chunk_opts(creation, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
    });
    const hid_t type = H5Tcopy(H5T_STD_I64LE), space = H5Screate(H5S_SCALAR);
    H5Tcommit2(file, "a type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Aclose(H5Acreate2(file, "of the type", type, space, H5P_DEFAULT, H5P_DEFAULT));
    const hsize_t two = 2;
    const hid_t line = H5Screate_simple(1, &two, nullptr);
    H5Dclose(H5Dcreate2(file, "of the type", type, line, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(line);
    H5Sclose(space);
    H5Tclose(type);
  });
  const StoredFile file(path());
  const StoredObject root(file, file.root());
  EXPECT_THAT(error_of([&] { open_array(root, "edges"); }), HasSubstr("chunks at its edges"));
  EXPECT_THAT(error_of([&] { open_array(root, "of the type"); }), HasSubstr("type of its own"));
  EXPECT_THAT(error_of([&] { open_array(root, "a type"); }), HasSubstr("is not a dataset"));
  EXPECT_THAT(error_of([&] { read_integer(root, "of the type"); }), HasSubstr("kept elsewhere"));
}

/// The older parts of the format have no checksums, whatever the superblock says.
TEST_F(StoredFiles, OlderPartsAreRefused) {
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18);
  const hid_t file = H5Fcreate(path().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
  write_ascending(file, "chunks", {20, 30}, {4, 4});
  H5Fclose(file);
  H5Pclose(access);
  const StoredFile stored(path());
  EXPECT_THAT(error_of([&] {
                open_array({stored, stored.root()}, "chunks");
              }),
              HasSubstr("an index without checksums (h5py: libver='latest')"));
}

std::vector<std::uint8_t> bytes_of(const fs::path& path) {
  const std::string text = file_bytes(path);
  return {text.begin(), text.end()};
}

void write_bytes(const fs::path& path, const std::vector<std::uint8_t>& bytes) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

/// "" if all of the profile can be read; else the sentence that it is refused with.
std::string refusal_of(const fs::path& path) {
  try {
    read_everything(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unreadable) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("p.h5"));
    return error.what();
  }
  return "";
}

/// Twelve samples, so that a group has a heap and an index; a text that has a place of its own.
Header header_of_every_kind() {
  Header header = make_header(15);
  header.prompts = R"({"text":")" + std::string(70'000, 'x') + R"("})";
  return header;
}

std::string kind_of(const std::vector<std::uint8_t>& bytes,
                    const testing_support::ChecksummedBlock& block) {
  return {reinterpret_cast<const char*>(bytes.data()) + block.begin, 4};
}

TEST_F(StoredFiles, EveryKindOfBlockIsForged) {
  write_range(path(), header_of_every_kind(), 3, 15);
  const auto good = bytes_of(path());
  const auto blocks = testing_support::checksummed_blocks(good);
  std::map<std::string, int> kinds;
  std::size_t refused = 0, tried = 0;
  for (const auto& block : blocks) {
    const std::string kind = kind_of(good, block);
    if (++kinds[kind] > 5) continue;  // there are many objects, much alike
    for (std::size_t at = block.begin; at < block.begin + block.size;
         at += 1 + block.size / 20, ++tried)
      for (const std::uint8_t value : {std::uint8_t{0xff}, std::uint8_t(good[at] + 1)}) {
        auto forged = good;
        forged[at] = value;
        testing_support::renew_checksum(forged, block);
        write_bytes(path(), forged);
        refused += !refusal_of(path()).empty();
      }
  }
  for (const char* kind :
       {"\x89HDF", "OHDR", "OCHK", "BTHD", "BTLF", "FRHP", "FHDB", "FAHD", "FADB"})
    EXPECT_GT(kinds[kind], 0) << kind;
  EXPECT_GT(refused, tried / 2);
}

/// Writes eight bytes into the first block of a kind, and puts its checksum right.
std::vector<std::uint8_t> forge(std::vector<std::uint8_t> bytes, const std::string& signature,
                                std::size_t at, std::uint64_t value, std::size_t size) {
  for (const auto& block : testing_support::checksummed_blocks(bytes)) {
    if (kind_of(bytes, block) != signature) continue;
    for (std::size_t i = 0; i < size; ++i)
      bytes[block.begin + at + i] = static_cast<std::uint8_t>(value >> (8 * i));
    testing_support::renew_checksum(bytes, block);
    return bytes;
  }
  ADD_FAILURE() << "no " << signature;
  return bytes;
}

TEST_F(StoredFiles, ForgedMetadataAreRefusedInASentence) {
  write_range(path(), header_of_every_kind(), 3, 15);
  const auto good = bytes_of(path());
  const auto refusal = [&](const std::string& signature, std::size_t at, std::uint64_t value,
                           std::size_t size) {
    write_bytes(path(), forge(good, signature, at, value, size));
    return refusal_of(path());
  };
  ASSERT_EQ(refusal("BTHD", 4, 0, 1), "");
  // Sizes of nodes, records and trees that no division survives, or that lead on and on.
  EXPECT_THAT(refusal("BTHD", 6, 0, 4), HasSubstr("sizes that cannot be"));
  EXPECT_THAT(refusal("BTHD", 6, 0xffffffff, 4), HasSubstr("sizes that cannot be"));
  EXPECT_THAT(refusal("BTHD", 10, 0, 2), HasSubstr("sizes that cannot be"));
  EXPECT_THAT(refusal("BTHD", 12, 0xffff, 2), HasSubstr("sizes that cannot be"));
  EXPECT_THAT(refusal("BTHD", 12, 3, 2), HasSubstr("damaged"));
  EXPECT_THAT(refusal("BTHD", 16, 1 << 20, 8), HasSubstr("a file of"));
  EXPECT_THAT(refusal("BTHD", 24, 0xffff, 2), HasSubstr("sizes that cannot be"));
  EXPECT_THAT(refusal("FRHP", 110, 0, 2), HasSubstr("sizes that cannot be"));
  EXPECT_THAT(refusal("FRHP", 112, 3, 8), HasSubstr("sizes that cannot be"));
  EXPECT_THAT(refusal("FRHP", 120, std::uint64_t{1} << 40, 8), HasSubstr("sizes that cannot be"));
  EXPECT_THAT(refusal("FRHP", 128, 64, 2), HasSubstr("sizes that cannot be"));
  EXPECT_THAT(refusal("FRHP", 132, 0, 8), HasSubstr("at byte 0"));
  EXPECT_THAT(refusal("FAHD", 6, 0, 1), HasSubstr("does not fit its sizes"));
  EXPECT_THAT(refusal("FAHD", 7, 0, 1), HasSubstr("does not fit its sizes"));
  EXPECT_THAT(refusal("FAHD", 8, std::uint64_t{1} << 62, 8), HasSubstr("does not fit its sizes"));
  EXPECT_THAT(refusal("FAHD", 16, 0, 8), HasSubstr("there is no 'FADB'"));
  EXPECT_THAT(refusal("FADB", 14, ~std::uint64_t{1}, 8), HasSubstr("a file of"));
  EXPECT_THAT(refusal("OHDR", 5, 0x22, 1), HasSubstr("has a header of"));
  EXPECT_THAT(refusal("\x89HDF", 36, 0, 8), HasSubstr("there is no object at byte 0"));
  EXPECT_THAT(refusal("\x89HDF", 12, 1, 8), HasSubstr("count from byte"));
  EXPECT_THAT(refusal("\x89HDF", 11, 1, 1), HasSubstr("has not closed it"));
}

/// An object's header that goes on with itself.
TEST_F(StoredFiles, CirclesEnd) {
  write_range(path(), header_of_every_kind(), 3, 15);
  const auto good = bytes_of(path());
  int circles = 0;
  for (const auto& block : testing_support::checksummed_blocks(good)) {
    auto forged = good;
    if (kind_of(good, block) != "OCHK") continue;
    // One message says that it goes on here; another one, of nothing, takes the rest.
    const std::uint64_t address = block.begin, size = block.size + 4;
    const std::uint64_t rest = block.size - 4 - 20 - 4;
    std::vector<std::uint8_t> message = {16, 16, 0, 0};
    for (const std::uint64_t value : {address, size})
      for (int i = 0; i < 8; ++i) message.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
    for (const std::uint64_t byte : {std::uint64_t{0}, rest & 0xff, rest >> 8, std::uint64_t{0}})
      message.push_back(static_cast<std::uint8_t>(byte));
    std::copy(message.begin(), message.end(),
              forged.begin() + static_cast<std::ptrdiff_t>(block.begin + 4));
    testing_support::renew_checksum(forged, block);
    write_bytes(path(), forged);
    EXPECT_THAT(refusal_of(path()), HasSubstr("header"));
    ++circles;
  }
  EXPECT_GT(circles, 0);
}

}  // namespace
}  // namespace kvatlas::profile
