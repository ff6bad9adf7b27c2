// SPDX-License-Identifier: Apache-2.0
// Files that are no profiles, or pretend to be: each is refused by name, none crashes or hangs.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include "analyzer/profile/profile.hpp"
#include "base/error.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/unit/profile/samples.hpp"

/// HDF5 1.10 itself loses a few hundred bytes for each object with a wrong checksum.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libhdf5";
}

namespace kvatlas::profile {
namespace {

namespace fs = std::filesystem;
using namespace testing_samples;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

class Hostile : public testing::Test {
 protected:
  Hostile() {
    write_range(path("good.h5"), make_header(8), 3, 6);
    good_ = file_bytes(path("good.h5"));
  }

  fs::path path(const std::string& name = "p.h5") const { return folder_.path() / name; }
  const std::string& good() const { return good_; }
  void write(const std::string& bytes) const {
    fs::remove(path());  // a file that is cut and written anew waits for the disk
    std::ofstream(path(), std::ios::binary) << bytes;
  }

  /// What reading everything of p.h5 is refused with; "" if it is not. It must be
  /// Error(unreadable).
  std::string refusal() const {
    try {
      read_everything(path());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unreadable) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("p.h5"));
      return error.what();
    }
    return "";
  }

  /// The refusal of the good file after a change through HDF5 itself.
  std::string refusal_after(const std::function<void(hid_t file)>& change) const {
    write(good_);
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    const hid_t file = H5Fopen(path().c_str(), H5F_ACC_RDWR, access);
    EXPECT_GE(file, 0);
    change(file);
    EXPECT_GE(H5Fclose(file), 0);
    H5Pclose(access);
    return refusal();
  }

 private:
  testing_support::TemporaryFolder folder_;
  std::string good_;
};

void set_integer(hid_t object, const char* name, std::int64_t value) {
  if (H5Aexists(object, name) > 0) H5Adelete(object, name);
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t attribute = H5Acreate2(object, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
  EXPECT_GE(H5Awrite(attribute, H5T_NATIVE_INT64, &value), 0);
  H5Aclose(attribute);
  H5Sclose(space);
}

void set_text(hid_t object, const char* name, const std::string& value) {
  if (H5Aexists(object, name) > 0) H5Adelete(object, name);
  const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
  H5Tset_size(type, value.size());
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  const hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  EXPECT_GE(H5Awrite(attribute, type, value.data()), 0);
  H5Aclose(attribute);
  H5Sclose(space);
  H5Tclose(type);
}

std::string get_text(hid_t object, const char* name) {
  const hid_t attribute = H5Aopen(object, name, H5P_DEFAULT), type = H5Aget_type(attribute);
  std::string text(H5Tget_size(type), '\0');
  EXPECT_GE(H5Aread(attribute, type, text.data()), 0);
  H5Tclose(type);
  H5Aclose(attribute);
  return text;
}

/// Puts a dataset in the place of the one that is there.
void replace_dataset(hid_t file, const char* name, hid_t type, const std::vector<hsize_t>& sizes,
                     const std::function<void(hid_t creation)>& create = {},
                     const std::function<void(hid_t dataset)>& fill = {},
                     const std::vector<hsize_t>& most = {}) {
  ASSERT_GE(H5Ldelete(file, name, H5P_DEFAULT), 0);
  const hid_t space = H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(),
                                       most.empty() ? nullptr : most.data());
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  if (create) create(creation);
  const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  ASSERT_GE(dataset, 0) << name;
  if (fill) fill(dataset);
  H5Dclose(dataset);
  H5Pclose(creation);
  H5Sclose(space);
}

void write_zeros(hid_t dataset) {
  const std::int32_t zeros[18] = {};
  H5Dwrite(dataset, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros);
}

TEST_F(Hostile, TheGoodFileIsRead) {
  EXPECT_EQ(refusal_after([](hid_t) {}), "");
}

TEST_F(Hostile, NotProfiles) {
  EXPECT_THAT(refusal(), HasSubstr("no such file"));
  fs::create_directory(path());
  EXPECT_THAT(refusal(), HasSubstr("not a regular file"));
  fs::remove(path());
  write("");
  EXPECT_THAT(refusal(), HasSubstr("not a profile"));
  write("GGUF and more of it");
  EXPECT_THAT(refusal(), HasSubstr("not a profile"));
  const hid_t file = H5Fcreate(path().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  EXPECT_THAT(refusal(), HasSubstr("superblock is of version 0"));
  EXPECT_THAT(refusal_after([](hid_t f) { H5Adelete(f, "schema"); }), HasSubstr("'schema'"));
  EXPECT_THAT(refusal_after([](hid_t f) { set_text(f, "schema", "other"); }),
              HasSubstr("not a profile"));
}

TEST_F(Hostile, Versions) {
  EXPECT_THAT(refusal_after([](hid_t f) {
                set_integer(f, "schema_major", 2);
                set_integer(f, "schema_minor", 5);
                H5Adelete(f, "arrays");
              }),
              AllOf(HasSubstr("schema 2.5"), HasSubstr("(1.2)"), HasSubstr("newer kvatlas")));
  EXPECT_THAT(refusal_after([](hid_t f) { set_integer(f, "schema_major", 0); }),
              HasSubstr("schema 0.2"));
  // A newer minor version may have more of everything.
  const auto newer = [](hid_t f) {
    set_text(f, "of_later", "x");
    std::string arrays = get_text(f, "arrays");
    arrays.insert(1, R"({"name":"new","axes":["a"],"unit":"1","meaning":"N.","type":"complex7"},)");
    arrays.insert(2, R"("later":[1],)");
    set_text(f, "arrays", arrays);
  };
  EXPECT_EQ(refusal_after([&](hid_t f) {
              newer(f);
              set_integer(f, "schema_minor", 3);
            }),
            "");
  EXPECT_THAT(Reader(path()).header().arrays, SizeIs(make_header(1).arrays.size()));
  EXPECT_THAT(refusal_after(newer), HasSubstr("complex7"));
}

TEST_F(Hostile, Links) {
  const auto move_away = [](hid_t f, const char* name) {
    ASSERT_GE(H5Lmove(f, name, f, "moved", H5P_DEFAULT, H5P_DEFAULT), 0);
  };
  EXPECT_THAT(refusal_after([&](hid_t f) {
                move_away(f, "sample_index");
                H5Lcreate_external("other.h5", "/sample_index", f, "sample_index", H5P_DEFAULT,
                                   H5P_DEFAULT);
              }),
              AllOf(HasSubstr("'sample_index'"), HasSubstr("link to another file")));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                move_away(f, "statistics");
                H5Lcreate_soft("/moved", f, "statistics", H5P_DEFAULT, H5P_DEFAULT);
              }),
              AllOf(HasSubstr("'statistics'"), HasSubstr("soft link")));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                move_away(f, "samples");
                H5Lcreate_soft("/samples", f, "samples", H5P_DEFAULT, H5P_DEFAULT);
              }),
              HasSubstr("soft link"));
  // A group that holds itself.
  EXPECT_THAT(refusal_after([&](hid_t f) {
                H5Ldelete(f, "statistics/js/divergence", H5P_DEFAULT);
                H5Lcreate_hard(f, "statistics/js", f, "statistics/js/divergence", H5P_DEFAULT,
                               H5P_DEFAULT);
              }),
              HasSubstr("'divergence' is not a dataset"));
}

TEST_F(Hostile, DatasetsOfForeignKinds) {
  const char* name = "statistics/mass";
  const auto chunked = [](hid_t creation) {
    const hsize_t chunk[] = {1, 2, 3};
    H5Pset_chunk(creation, 3, chunk);
  };
  EXPECT_THAT(refusal_after([&](hid_t f) {
                replace_dataset(f, name, H5T_STD_I32LE, {3, 2, 3}, [&](hid_t creation) {
                  chunked(creation);
                  H5Pset_nbit(creation);
                });
              }),
              AllOf(HasSubstr("'statistics/mass'"), HasSubstr("filter 5")));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                replace_dataset(f, name, H5T_IEEE_F32LE, {3, 2, 3}, [&](hid_t creation) {
                  chunked(creation);
                  H5Pset_deflate(creation, 1);
                  H5Pset_shuffle(creation);
                });
              }),
              HasSubstr("filter 2 at place 1"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                replace_dataset(f, name, H5T_IEEE_F32LE, {3, 2, 3}, [](hid_t creation) {
                  H5Pset_external(creation, "other.raw", 0, 72);
                });
              }),
              HasSubstr("in another file"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                replace_dataset(f, name, H5T_IEEE_F32LE, {3, 2, 3}, [](hid_t creation) {
                  const hsize_t sizes[] = {3, 2, 3};
                  const hid_t space = H5Screate_simple(3, sizes, nullptr);
                  H5Pset_virtual(creation, space, "other.h5", "x", space);
                  H5Sclose(space);
                });
              }),
              HasSubstr("virtual"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                const hid_t pair = H5Tcreate(H5T_COMPOUND, 8);
                H5Tinsert(pair, "a", 0, H5T_IEEE_F32LE);
                H5Tinsert(pair, "b", 4, H5T_IEEE_F32LE);
                replace_dataset(f, name, pair, {3, 2, 3});
                H5Tclose(pair);
              }),
              HasSubstr("a type of its own"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                const hid_t text = H5Tcopy(H5T_C_S1);
                H5Tset_size(text, H5T_VARIABLE);
                replace_dataset(f, name, text, {3, 2, 3});
                H5Tclose(text);
              }),
              HasSubstr("a type of its own"));
}

TEST_F(Hostile, SizesThatCannotBe) {
  const auto with_chunks = [](const std::vector<hsize_t>& chunk) {
    return [chunk](hid_t creation) {
      H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
      H5Pset_shuffle(creation);
      H5Pset_deflate(creation, 1);
    };
  };
  EXPECT_THAT(refusal_after([&](hid_t f) {
                replace_dataset(f, "statistics/mass", H5T_IEEE_F32LE, {3, 2}, {}, write_zeros);
              }),
              HasSubstr("is float32 [3, 2], expected float32 [3, 2, 3]"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                replace_dataset(f, "statistics/mass", H5T_STD_I32LE, {3, 2, 3}, {}, write_zeros);
              }),
              HasSubstr("is int32 [3, 2, 3], expected float32"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                replace_dataset(f, "samples/000004/tokens", H5T_STD_I32LE, {hsize_t{1} << 40},
                                with_chunks({65536}));
              }),
              HasSubstr("0 stored bytes"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                replace_dataset(f, "samples/000004/tokens", H5T_STD_I32LE, {hsize_t{1} << 62},
                                with_chunks({65536}));
              }),
              HasSubstr("tokens"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                replace_dataset(f, "sample_index", H5T_STD_I64LE, {hsize_t{1} << 40},
                                with_chunks({65536}));
              }),
              HasSubstr("sample_index"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                replace_dataset(f, "samples/000004/tokens", H5T_STD_I32LE, {1 << 28},
                                with_chunks({1 << 28}));
              }),
              HasSubstr("has chunks of [268435456]"));
  EXPECT_THAT(
      refusal_after([&](hid_t f) {
        replace_dataset(f, "samples/000004/tokens", H5T_STD_I32LE, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
      }),
      HasSubstr("10 axes"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                const hid_t group = H5Gopen2(f, "samples/000004", H5P_DEFAULT);
                set_integer(group, "n_tokens", 303);
                H5Gclose(group);
              }),
              HasSubstr("tokens' is int32 [304]"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                const hid_t group = H5Gopen2(f, "samples/000004", H5P_DEFAULT);
                set_integer(group, "n_tokens", std::int64_t{1} << 40);
                H5Gclose(group);
              }),
              HasSubstr("'n_tokens' is 1099511627776"));
  EXPECT_THAT(refusal_after([](hid_t f) { set_integer(f, "n_kv_heads", 0); }),
              HasSubstr("'n_kv_heads' is 0, expected 1 to 4"));
  EXPECT_THAT(refusal_after([](hid_t f) { set_integer(f, "head_dim", 1 << 20); }),
              HasSubstr("'head_dim' is 1048576, expected 0 to 16384"));
  EXPECT_EQ(refusal_after([](hid_t f) { set_integer(f, "context_length", std::int64_t{1} << 32); }),
            "");
  EXPECT_THAT(refusal_after([](hid_t f) { set_integer(f, "planned_samples", 5); }),
              HasSubstr("'sample_index' has 5 after 4"));
  EXPECT_THAT(refusal_after([](hid_t f) {
                replace_dataset(f, "sample_index", H5T_STD_I32LE, {3}, {}, write_zeros);
              }),
              HasSubstr("'sample_index' is int32 [3], expected int64 of one axis"));
  EXPECT_THAT(refusal_after([](hid_t f) {
                replace_dataset(f, "sample_index", H5T_STD_I64LE, {3, 1}, {}, write_zeros);
              }),
              HasSubstr("'sample_index' is int64 [3, 1]"));
  EXPECT_THAT(refusal_after([&](hid_t f) {
                replace_dataset(f, "sample_index", H5T_STD_I64LE, {9}, with_chunks({9}),
                                write_zeros);
              }),
              HasSubstr("'sample_index' has 9 samples, with 8 planned"));
  EXPECT_THAT(refusal_after([](hid_t f) {
                const hid_t group = H5Gopen2(f, "samples/000004", H5P_DEFAULT);
                set_integer(group, "index", 3);
                H5Gclose(group);
              }),
              AllOf(HasSubstr("sample 4"), HasSubstr("its attribute 'index' is 3")));
  EXPECT_THAT(refusal_after([](hid_t f) { set_integer(f, "n_layers", -1); }),
              HasSubstr("'n_layers' is -1"));
  EXPECT_THAT(refusal_after([](hid_t f) { set_integer(f, "n_layers", 1 << 10); }),
              HasSubstr("'window' has 3 values"));
}

TEST_F(Hostile, HeadersAndSamples) {
  for (const char* name : {"arrays", "capture", "planned_samples", "window", "axes"})
    EXPECT_THAT(refusal_after([&](hid_t f) { H5Adelete(f, name); }),
                HasSubstr(std::string("'") + name + "' is missing"));
  EXPECT_THAT(refusal_after([](hid_t f) { set_text(f, "capture", std::string(2000, '[')); }),
              HasSubstr("nested deeper"));
  EXPECT_THAT(refusal_after([](hid_t f) { set_text(f, "arrays", "{}"); }), HasSubstr("'arrays'"));
  EXPECT_THAT(refusal_after([](hid_t f) { set_text(f, "arrays", R"([{"name":7}])"); }),
              HasSubstr("'name'"));
  EXPECT_THAT(refusal_after([](hid_t f) {
                set_text(f, "arrays",
                         R"([{"name":"../x","axes":["a"],"unit":"","meaning":"","type":"int32"}])");
              }),
              HasSubstr("'../x'"));
  EXPECT_THAT(refusal_after([](hid_t f) {
                set_text(f, "arrays",
                         R"([{"name":"mass","axes":["a"],"unit":"","meaning":"","type":"float32",)"
                         R"("sizes":[9223372036854775807]}])");
              }),
              HasSubstr("expected float32 [3, 9223372036854775807]"));
  EXPECT_THAT(refusal_after([](hid_t f) {
                H5Adelete(f, "capture");
                const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
                H5Tset_size(type, H5T_VARIABLE);
                const hid_t attribute =
                    H5Acreate2(f, "capture", type, space, H5P_DEFAULT, H5P_DEFAULT);
                const char* text = "{}";
                H5Awrite(attribute, type, &text);
                H5Aclose(attribute);
                H5Sclose(space);
                H5Tclose(type);
              }),
              HasSubstr("not a string of fixed length"));
  EXPECT_THAT(refusal_after([](hid_t f) { set_text(f, "planned_samples", "8"); }),
              HasSubstr("'planned_samples'"));
  EXPECT_THAT(refusal_after([](hid_t f) { H5Ldelete(f, "samples/000004", H5P_DEFAULT); }),
              AllOf(HasSubstr("sample 4"), HasSubstr("missing")));
  EXPECT_THAT(refusal_after([](hid_t f) { H5Ldelete(f, "axes/proximity", H5P_DEFAULT); }),
              HasSubstr("proximity"));
}

TEST_F(Hostile, DamagedChunksFailWhereTheyAreRead) {
  const auto overwrite = [](hid_t f, const std::vector<char>& bytes) {
    const hid_t dataset = H5Dopen2(f, "statistics/mass", H5P_DEFAULT);
    const hsize_t second[] = {1, 0, 0};
    EXPECT_GE(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, second, bytes.size(), bytes.data()), 0);
    H5Dclose(dataset);
  };
  EXPECT_THAT(refusal_after([&](hid_t f) { overwrite(f, std::vector<char>(30, 'x')); }),
              AllOf(HasSubstr("'statistics/mass'"), HasSubstr("chunk at [1, 0, 0] is damaged")));
  {
    const Reader profile(path());
    EXPECT_THAT(profile.array(0, "mass").shape, SizeIs(2));
    EXPECT_THAT(profile.array(2, "mass").shape, SizeIs(2));
    EXPECT_THAT(profile.statistic("flags").shape, SizeIs(2));
  }
  EXPECT_THAT(refusal_after([&](hid_t f) { overwrite(f, std::vector<char>(5000, 'x')); }),
              HasSubstr("5000 stored bytes"));
  // Space that was promised and never filled.
  EXPECT_THAT(refusal_after([](hid_t f) {
                replace_dataset(
                    f, "statistics/mass", H5T_IEEE_F32LE, {3, 2, 3},
                    [](hid_t creation) {
                      const hsize_t chunk[] = {2, 2, 3};
                      H5Pset_chunk(creation, 3, chunk);
                    },
                    [](hid_t dataset) {
                      const std::vector<char> bytes(48);
                      const hsize_t first[] = {0, 0, 0};
                      H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, first, bytes.size(), bytes.data());
                    });
              }),
              AllOf(HasSubstr("'statistics/mass' has 1 chunks"), HasSubstr("[3, 2, 3] take 2")));
}

/// HDF5 1.10 reads behind the end of the index of chunks where that was made for other sizes.
TEST_F(Hostile, SizesThatCanGrow) {
  for (const hsize_t most : {hsize_t{3}, hsize_t{1} << 20, H5S_UNLIMITED}) {
    const std::string refused = refusal_after([&](hid_t f) {
      replace_dataset(f, "statistics/mass", H5T_IEEE_F32LE, {3, 2, 3},
                      [](hid_t creation) {
                        const hsize_t chunk[] = {1, 2, 3};
                        H5Pset_chunk(creation, 3, chunk);
                        H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
                      },
                      {}, {most, 2, 3});
    });
    if (most == 3)
      EXPECT_EQ(refused, "");
    else
      EXPECT_THAT(refused, AllOf(HasSubstr("'statistics/mass'"), HasSubstr("can grow")));
  }
}

/// HDF5 writes alone, and needs no code of others for that.
TEST_F(Hostile, NoPluginIsLoaded) {
  EXPECT_EQ(refusal_after([](hid_t) {}), "");
  unsigned loading = 1;
  ASSERT_GE(H5PLget_loading_state(&loading), 0);
  EXPECT_EQ(loading, 0u);
}

TEST_F(Hostile, OtherChunksAndNoneAreRead) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
  const auto fill = [&](hid_t dataset) {
    EXPECT_GE(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  };
  const std::vector<std::function<void(hid_t)>> layouts = {
      [](hid_t) {}, [](hid_t creation) { H5Pset_layout(creation, H5D_COMPACT); },
      [](hid_t creation) {
        const hsize_t chunk[] = {2, 2, 2};
        H5Pset_chunk(creation, 3, chunk);
        H5Pset_deflate(creation, 9);
      }};
  for (const auto& layout : layouts) {
    EXPECT_EQ(refusal_after([&](hid_t f) {
                replace_dataset(f, "statistics/mass", H5T_IEEE_F32LE, {3, 2, 3}, layout, fill);
              }),
              "");
    const Array read = Reader(path()).statistic("mass");
    EXPECT_TRUE(std::equal(values.begin(), values.end(), read.values<float>().begin()));
    // Merging cuts them anew.
    const std::vector<fs::path> inputs = {path()};
    merge(inputs, path("merged.h5"), true);
    EXPECT_TRUE(Reader(path("merged.h5")).statistic("mass").bytes == read.bytes);
  }
}

TEST_F(Hostile, CutAnywhere) {
  for (std::size_t size = 0; size < good().size(); size += 61) {
    write(good().substr(0, size));
    EXPECT_NE(refusal(), "") << size;
  }
}

TEST_F(Hostile, AnyByteFlipped) {
  const auto open_files = [] {
    const fs::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto open_before = open_files();
  std::size_t refused = 0, tried = 0;
  for (std::size_t at = 0; at < good().size(); at += 7, ++tried) {
    std::string bytes = good();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    write(bytes);
    refused += !refusal().empty();
  }
  // What is not noticed lies in space that nothing uses.
  EXPECT_GT(refused, tried / 2);
  EXPECT_EQ(open_files(), open_before);
}

}  // namespace
}  // namespace kvatlas::profile
