// SPDX-License-Identifier: Apache-2.0
#include "analyzer/checkpoint/safetensors.hpp"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/model_bytes.hpp"

namespace kvatlas::model::safetensors_tests {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_support::bytes_of;
using testing_support::counting;
using testing_support::error_of;
using testing_support::safetensors_bytes;
using testing_support::safetensors_of;
using testing_support::TemporaryFolder;

std::vector<StoredTensor> parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes.data(), bytes.size())));
}
std::string parse_error(const std::string& bytes) {
  return error_of([&] { parse(bytes); });
}
/// The error of one tensor "t" whose entry is `entry`, over 16 bytes of data.
std::string entry_error(const std::string& entry) {
  return parse_error(safetensors_bytes(R"({"t":)" + entry + "}", std::string(16, 'x')));
}
std::string folder_error(const TemporaryFolder& folder) {
  return error_of([&] { SafetensorsFolder::open(folder.path()); });
}

TEST(Safetensors, ReadsTensorsAndSkipsMetadata) {
  const std::string bytes = safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[4,12]},)"
      R"("a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"},)"
      R"("none":{"dtype":"F16","shape":[0,3],"data_offsets":[12,12]}}   )",
      std::string(12, 'x'));
  const auto tensors = parse(bytes);
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].shape.size(), 0u);
  EXPECT_EQ(tensors[1].type, TensorType::bf16);
  EXPECT_EQ(tensors[1].shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(tensors[1].bytes.size(), 8u);
  EXPECT_EQ(tensors[2].bytes.size(), 0u);
}

TEST(Safetensors, RefusesDamagedHeaders) {
  EXPECT_THAT(parse_error("abc"), HasSubstr("it has 3 bytes"));
  EXPECT_THAT(parse_error(bytes_of(~std::uint64_t{0}) + "{}"),
              HasSubstr("expected at most 100000000"));
  EXPECT_THAT(parse_error(bytes_of<std::uint64_t>(1000) + "{}"), HasSubstr("the file is cut"));
  EXPECT_THAT(parse_error(safetensors_bytes("", "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error(safetensors_bytes("{\"a", "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error(safetensors_bytes("{} {}", "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error(safetensors_bytes("{\"\xff\":{}}", "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error(safetensors_bytes("[]", "")), HasSubstr("holds an array"));
  EXPECT_THAT(parse_error(safetensors_bytes("7", "")), HasSubstr("holds a number"));
  EXPECT_THAT(parse_error(safetensors_bytes(R"({"t":null})", "")), HasSubstr("holds null"));
  EXPECT_THAT(parse_error(safetensors_bytes(R"({"__metadata__":{"a":[]}})", "")),
              HasSubstr("'__metadata__' 'a': found an array, expected a string"));
  const std::string deep(100'000, '[');
  EXPECT_THAT(parse_error(safetensors_bytes(R"({"t":{"shape":)" + deep, "")),
              HasSubstr("an array"));
  EXPECT_EQ(parse_error(safetensors_bytes("{}", "")), "");
  EXPECT_THAT(parse_error(safetensors_bytes("{}", "x")), HasSubstr("its tensors take 0"));
}

TEST(Safetensors, RefusesDamagedEntries) {
  EXPECT_EQ(entry_error(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})"), "");
  EXPECT_THAT(entry_error(R"({"shape":[4],"data_offsets":[0,16]})"),
              HasSubstr("tensor 't': dtype is missing"));
  EXPECT_THAT(entry_error(R"({"dtype":"F32","data_offsets":[0,16]})"),
              HasSubstr("shape is missing"));
  EXPECT_THAT(entry_error(R"({"dtype":"F32","shape":[4]})"), HasSubstr("data_offsets is missing"));
  EXPECT_THAT(entry_error(R"({"dtype":"F32","shape":[4],"shape":[4],"data_offsets":[0,16]})"),
              HasSubstr("a second one"));
  EXPECT_THAT(entry_error(R"({"dtype":"F32","shape":[4],"color":1,"data_offsets":[0,16]})"),
              HasSubstr("an unknown key"));
  EXPECT_THAT(entry_error(R"({"dtype":7,"shape":[4],"data_offsets":[0,16]})"),
              HasSubstr("found a number"));
  EXPECT_THAT(entry_error(R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})"),
              HasSubstr("a negative number"));
  EXPECT_THAT(entry_error(R"({"dtype":"F32","shape":[4.0],"data_offsets":[0,16]})"),
              HasSubstr("a fraction"));
  EXPECT_THAT(entry_error(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16]})"),
              HasSubstr("a ninth dimension"));
  EXPECT_THAT(
      entry_error(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,16]})"),
      HasSubstr("too large"));
  EXPECT_THAT(
      entry_error(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]})"),
      HasSubstr("impossible shape"));
  EXPECT_THAT(entry_error(R"({"dtype":"F32","shape":[5],"data_offsets":[0,16]})"),
              HasSubstr("16 bytes, expected 20 for shape [5] of F32"));
  EXPECT_THAT(entry_error(R"({"dtype":"F32","shape":[4],"data_offsets":[16]})"),
              HasSubstr("expected begin and end"));
  EXPECT_THAT(entry_error(R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})"),
              HasSubstr("expected begin and end"));
  EXPECT_THAT(entry_error(R"({"dtype":"F32","shape":[4],"data_offsets":[0,8,16]})"),
              HasSubstr("a third offset"));
  EXPECT_THAT(entry_error(R"({"dtype":"F32","shape":[4],"data_offsets":[8,24]})"),
              HasSubstr("it is cut"));
}

TEST(Safetensors, TensorsMustTileTheData) {
  const auto two = [](const std::string& first, const std::string& second, std::size_t bytes) {
    return parse_error(
        safetensors_bytes(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
                              R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}",
                          std::string(bytes, 'x')));
  };
  EXPECT_EQ(two("[4,8]", "[0,4]", 8), "");
  EXPECT_THAT(two("[0,4]", "[2,6]", 6), HasSubstr("tensor 'b' begins at byte 2 and overlaps"));
  EXPECT_THAT(two("[0,4]", "[0,4]", 4), HasSubstr("overlaps"));
  EXPECT_THAT(two("[0,4]", "[6,10]", 10), HasSubstr("leaves a hole"));
  EXPECT_THAT(two("[0,4]", "[4,8]", 9), HasSubstr("9 bytes of data, its tensors take 8"));
  EXPECT_THAT(
      parse_error(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                    R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                    "xx")),
      HasSubstr("tensor 'a' is there twice"));
}

TEST(Safetensors, RefusesAFileCutAnywhere) {
  const std::string whole = safetensors_of({{"a", counting({2, 3})}, {"b", counting({4})}});
  ASSERT_EQ(parse_error(whole), "");
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(parse_error(whole.substr(0, length)), "") << length;
}

TEST(SafetensorsFolder, OpensOneFile) {
  const TemporaryFolder folder;
  folder.write("model.safetensors", safetensors_of({{"a", counting({2})}}));
  const auto files = SafetensorsFolder::open(folder.path());
  EXPECT_EQ(files.files().size(), 1u);
  EXPECT_NE(files.find("a"), nullptr);
  EXPECT_EQ(files.find("b"), nullptr);
}

TEST(SafetensorsFolder, RefusesAForeignTypeOnlyWhenAsked) {
  const TemporaryFolder folder;
  folder.write("model.safetensors",
               safetensors_bytes(R"({"t":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}})",
                                 std::string(16, 'x')));
  const auto files = SafetensorsFolder::open(folder.path());
  EXPECT_EQ(files.tensors().size(), 1u);
  EXPECT_EQ(error_of([&] { files.find("t"); }),
            "tensor 't' has the type I64, which is not supported");
}

/// A folder of two shards, a in the first and b in the second.
void write_shards(const TemporaryFolder& folder, const std::string& at = "") {
  folder.write(at + "one.safetensors", safetensors_of({{"a", counting({2})}}));
  folder.write(at + "two.safetensors", safetensors_of({{"b", counting({3})}}));
}
void write_index(const TemporaryFolder& folder, const std::string& map,
                 const std::string& at = "") {
  folder.write(at + "model.safetensors.index.json", R"({"metadata":{},"weight_map":)" + map + "}");
}
std::string index_error(const std::string& map) {
  const TemporaryFolder folder;
  write_shards(folder);
  fs::create_directory(folder.path() / "folder.safetensors");
  fs::create_symlink("loop.safetensors", folder.path() / "loop.safetensors");
  fs::create_symlink("/etc/hostname", folder.path() / "out.safetensors");
  fs::create_symlink("one.safetensors", folder.path() / "in.safetensors");
  write_index(folder, map);
  return folder_error(folder);
}

TEST(SafetensorsFolder, OpensShardsOfAnIndex) {
  EXPECT_EQ(index_error(R"({"a":"one.safetensors","b":"two.safetensors"})"), "");
  EXPECT_EQ(index_error(R"({"a":"in.safetensors"})"), "");  // a link inside the folder
}

TEST(SafetensorsFolder, RefusesADamagedIndex) {
  EXPECT_THAT(index_error("[]"), HasSubstr("expected an object 'weight_map'"));
  EXPECT_THAT(index_error("{}"), HasSubstr("expected an object 'weight_map'"));
  EXPECT_THAT(index_error(R"({"a":1})"), HasSubstr("tensor 'a': expected the name of a file"));
  EXPECT_THAT(index_error(R"({"a":"absent.safetensors"})"), HasSubstr("there is no file"));
  EXPECT_THAT(index_error(R"({"a":"two.safetensors"})"),
              HasSubstr("tensor 'a' should lie in 'two.safetensors', which does not hold it"));
  EXPECT_THAT(index_error(R"({"a":"one.safetensors","b":"in.safetensors"})"), HasSubstr("lies in"));
  EXPECT_THAT(index_error("{\"a\":"), HasSubstr("not valid JSON"));
  EXPECT_THAT(index_error(R"({"a":{"b":{"c":{"d":{}}}}})"),
              HasSubstr("nested deeper than 4 levels"));
}

TEST(SafetensorsFolder, RefusesPathsThatLeadElsewhere) {
  for (const char* path : {"../one.safetensors", "/etc/one.safetensors", "a/../one.safetensors",
                           "..\\\\one.safetensors", "model.safetensors.index.json", "", "..",
                           "one.safetensors\\u0000.safetensors"})
    EXPECT_THAT(index_error(R"({"a":")" + std::string(path) + "\"}"),
                HasSubstr("is not the plain name of a .safetensors file"))
        << path;
  EXPECT_THAT(index_error(R"({"a":"folder.safetensors"})"), HasSubstr("is a folder"));
  EXPECT_THAT(index_error(R"({"a":"loop.safetensors"})"), HasSubstr("leads back to itself"));
  EXPECT_THAT(index_error(R"({"a":"out.safetensors"})"), HasSubstr("leads out of its folder"));
}

TEST(SafetensorsFolder, FollowsTheLinksOfTheHubCache) {
  const TemporaryFolder folder;
  folder.write("models--o--n/blobs/0123", safetensors_of({{"a", counting({2})}}));
  folder.write("elsewhere/blobs/0123", safetensors_of({{"a", counting({2})}}));
  const fs::path snapshot = folder.path() / "models--o--n/snapshots/abc";
  fs::create_directories(snapshot);
  const auto open_by = [&](const char* target) {
    fs::remove(snapshot / "model.safetensors");
    fs::create_symlink(target, snapshot / "model.safetensors");
    return error_of([&] { SafetensorsFolder::open(snapshot); });
  };
  EXPECT_EQ(open_by("../../blobs/0123"), "");
  EXPECT_THAT(open_by("../../../elsewhere/blobs/0123"), HasSubstr("leads out of its folder"));
  EXPECT_THAT(open_by("../../blobs/gone"), HasSubstr("there is no file"));
}

}  // namespace
}  // namespace kvatlas::model::safetensors_tests
