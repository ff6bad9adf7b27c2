// SPDX-License-Identifier: Apache-2.0
#include "analyzer/checkpoint/gguf.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/support/model_bytes.hpp"

namespace kvatlas::model {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing_support::bytes_of;
using testing_support::error_of;
using testing_support::gguf_string;
using testing_support::GgufBytes;
using namespace std::string_literals;

std::span<const std::byte> span_of(const std::string& bytes) {
  return std::as_bytes(std::span(bytes.data(), bytes.size()));
}

std::string parse_error(const std::string& bytes) {
  return error_of([&] { GgufFile::parse(span_of(bytes)); });
}
std::string parse_error(const GgufBytes& file) { return parse_error(file.build()); }

GgufBytes small_file() {
  GgufBytes file;
  file.text("general.architecture", "llama").number("a.count", 7u).number("a.rate", 0.5f);
  file.floats("x", {2, 3}, {1, 2, 3, 4, 5, 6}).floats("y", {1}, {9});
  return file;
}

TEST(Gguf, ReadsKeysAndTensorsOfBothVersions) {
  for (std::uint32_t version : {2u, 3u}) {
    auto written = small_file();
    written.version = version;
    const std::string bytes = written.build();
    const GgufFile file = GgufFile::parse(span_of(bytes));
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.require<std::string>("general.architecture"), "llama");
    EXPECT_EQ(file.require<std::int64_t>("a.count"), 7);
    EXPECT_EQ(file.get<double>("a.rate"), 0.5);
    EXPECT_EQ(file.get<double>("a.count"), 7.0);  // a whole number is a number
    EXPECT_EQ(file.get<double>("a.absent"), std::nullopt);
    const StoredTensor* x = file.find("x");
    ASSERT_NE(x, nullptr);
    EXPECT_EQ(x->shape, (std::vector<std::int64_t>{2, 3}));
    float values[6];
    dequantize(x->type, x->bytes.data(), 6, values);
    EXPECT_EQ(values[5], 6.0f);
    EXPECT_EQ(file.find("absent"), nullptr);
    EXPECT_EQ(file.file(), nullptr);
  }
}

TEST(Gguf, ReadsEveryKindOfValue) {
  GgufBytes written;
  written.key("u8", 0, bytes_of<std::uint8_t>(200)).key("i8", 1, bytes_of<std::int8_t>(-3));
  written.key("u16", 2, bytes_of<std::uint16_t>(60000)).key("i16", 3, bytes_of<std::int16_t>(-7));
  written.key("i32", 5, bytes_of<std::int32_t>(-9)).key("yes", 7, "\1");
  written.key("u64", 10, bytes_of<std::uint64_t>(1u << 20))
      .key("i64", 11, bytes_of<std::int64_t>(-1));
  written.key("f64", 12, bytes_of(0.25));
  const auto array = [](std::uint32_t type, std::uint64_t count, const std::string& values) {
    return bytes_of(type) + bytes_of(count) + values;
  };
  written.key("numbers", 9, array(4, 2, bytes_of(5u) + bytes_of(6u)));
  written.key("rates", 9, array(6, 1, bytes_of(1.5f)));
  written.key("flags", 9, array(7, 2, "\0\1"s));
  written.key("words", 9, array(8, 2, gguf_string("a") + gguf_string("")));
  const std::string bytes = written.build();
  const GgufFile file = GgufFile::parse(span_of(bytes));
  EXPECT_EQ(file.get<std::int64_t>("u8"), 200);
  EXPECT_EQ(file.get<std::int64_t>("i8"), -3);
  EXPECT_EQ(file.get<std::int64_t>("u16"), 60000);
  EXPECT_EQ(file.get<std::int64_t>("i16"), -7);
  EXPECT_EQ(file.get<std::int64_t>("i32"), -9);
  EXPECT_EQ(file.get<bool>("yes"), true);
  EXPECT_EQ(file.get<std::int64_t>("u64"), 1 << 20);
  EXPECT_EQ(file.get<std::int64_t>("i64"), -1);
  EXPECT_EQ(file.get<double>("f64"), 0.25);
  EXPECT_EQ(file.get<std::vector<std::int64_t>>("numbers"), (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(file.get<std::vector<double>>("rates"), (std::vector<double>{1.5}));
  EXPECT_EQ(file.get<std::vector<bool>>("flags"), (std::vector<bool>{false, true}));
  EXPECT_EQ(file.get<std::vector<std::string>>("words"), (std::vector<std::string>{"a", ""}));
}

TEST(Gguf, ReadsListsOfEveryNumber) {
  const auto list_of = [](std::uint32_t type, const std::string& value) {
    GgufBytes written;
    written.key("list", 9, bytes_of(type) + bytes_of<std::uint64_t>(1) + value);
    const std::string bytes = written.build();
    const GgufFile file = GgufFile::parse(span_of(bytes));
    return file.require<std::vector<std::int64_t>>("list").at(0);
  };
  EXPECT_EQ(list_of(0, bytes_of<std::uint8_t>(200)), 200);
  EXPECT_EQ(list_of(1, bytes_of<std::int8_t>(-3)), -3);
  EXPECT_EQ(list_of(2, bytes_of<std::uint16_t>(60000)), 60000);
  EXPECT_EQ(list_of(3, bytes_of<std::int16_t>(-7)), -7);
  EXPECT_EQ(list_of(5, bytes_of<std::int32_t>(-9)), -9);
  EXPECT_EQ(list_of(10, bytes_of<std::uint64_t>(1u << 20)), 1 << 20);
  EXPECT_EQ(list_of(11, bytes_of<std::int64_t>(-1)), -1);
  EXPECT_THAT(error_of([&] { list_of(10, bytes_of(~std::uint64_t{0})); }), HasSubstr("list"));
  EXPECT_THAT(error_of([&] { list_of(13, "12345678"); }), HasSubstr("unknown element type 13"));
}

TEST(Gguf, NamesAKeyOfAnotherTypeOrAMissingOne) {
  const std::string bytes = small_file().build();
  const GgufFile file = GgufFile::parse(span_of(bytes));
  EXPECT_EQ(error_of([&] { file.get<std::string>("a.count"); }),
            "key 'a.count': expected a string");
  EXPECT_EQ(error_of([&] { file.require<bool>("a.absent"); }), "the key 'a.absent' is missing");
}

TEST(Gguf, RefusesWhatIsNoGguf) {
  EXPECT_THAT(parse_error("x"s), HasSubstr("the file ends inside its first four bytes"));
  EXPECT_THAT(parse_error("PK\3\4....................."s), HasSubstr("not a GGUF file"));
  auto file = small_file();
  file.version = 1;
  EXPECT_THAT(parse_error(file), HasSubstr("GGUF version 1; versions 2 and 3 are read"));
  file.version = 0x03000000;
  EXPECT_THAT(parse_error(file), HasSubstr("big-endian"));
}

// Whatever the byte at which a file is cut, it is an Error: no crash, no invented content.
TEST(Gguf, RefusesAFileCutAnywhere) {
  const std::string whole = small_file().build();
  ASSERT_EQ(parse_error(whole), "");
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(parse_error(whole.substr(0, length)), "") << length;
}

TEST(Gguf, NamesAFileThatIsCut) {
  const std::string path = testing::TempDir() + "cut of its end.gguf";
  std::ofstream(path, std::ios::binary) << small_file().build().substr(0, 3);
  try {
    GgufFile::open(path);
    ADD_FAILURE() << "not refused";
  } catch (const CutError& error) {
    EXPECT_THAT(error.what(), StartsWith("'" + path + "': "));
  }
  std::filesystem::remove(path);
}

TEST(Gguf, RefusesCountsAndLengthsBeyondTheFile) {
  auto file = small_file();
  file.stated_keys = std::uint64_t{1} << 60;
  EXPECT_THAT(parse_error(file), HasSubstr("more than the"));
  file = small_file();
  file.stated_tensors = ~std::uint64_t{0};
  EXPECT_THAT(parse_error(file), HasSubstr("more than the"));
  GgufBytes huge;
  huge.key("k", 8, bytes_of<std::uint64_t>(std::uint64_t{1} << 62));
  EXPECT_THAT(parse_error(huge), HasSubstr("key 'k': the file ends inside a string"));
  GgufBytes array;
  array.key("k", 9, bytes_of<std::uint32_t>(10) + bytes_of<std::uint64_t>(std::uint64_t{1} << 61));
  EXPECT_THAT(parse_error(array), HasSubstr("key 'k': the header counts"));
  GgufBytes strings;
  strings.key("k", 9, bytes_of<std::uint32_t>(8) + bytes_of<std::uint64_t>(1u << 30));
  EXPECT_THAT(parse_error(strings), HasSubstr("strings, more than the"));
}

TEST(Gguf, RefusesDamagedKeys) {
  EXPECT_THAT(parse_error(GgufBytes().number("k", 1u).number("k", 2u)),
              HasSubstr("'k' is there twice"));
  EXPECT_THAT(parse_error(GgufBytes().number("", 1u)), HasSubstr("has 0 bytes"));
  EXPECT_THAT(parse_error(GgufBytes().number(std::string(70000, 'k'), 1u)),
              HasSubstr("has 70000 bytes"));
  EXPECT_THAT(parse_error(GgufBytes().key("k", 99, "")),
              HasSubstr("key 'k': unknown value type 99"));
  EXPECT_THAT(parse_error(GgufBytes().key("k", 7, "\2")), HasSubstr("expected a truth value"));
  EXPECT_THAT(parse_error(GgufBytes().key("k", 10, bytes_of(~std::uint64_t{0}))),
              HasSubstr("too large"));
  EXPECT_THAT(parse_error(GgufBytes().key("k", 9, bytes_of(9u) + bytes_of<std::uint64_t>(1))),
              HasSubstr("array of arrays"));
  EXPECT_THAT(parse_error(GgufBytes().number("general.alignment", 24u)), HasSubstr("power of two"));
  EXPECT_THAT(parse_error(GgufBytes().number("general.alignment", 0u)), HasSubstr("power of two"));
}

TEST(Gguf, HonoursTheAlignmentKey) {
  GgufBytes written;
  written.alignment = 128;
  written.number("general.alignment", 128u).floats("x", {1}, {1}).floats("y", {1}, {2});
  const std::string bytes = written.build();
  const GgufFile file = GgufFile::parse(span_of(bytes));
  EXPECT_EQ(file.find("y")->bytes.data() - file.find("x")->bytes.data(), 128);
}

TEST(Gguf, RefusesDamagedTensors) {
  const std::string four(16, 'x');
  const auto with = [&](const std::vector<std::uint64_t>& shape, std::uint32_t type,
                        std::optional<std::uint64_t> offset = {}) {
    return parse_error(GgufBytes().tensor("t", shape, type, four, offset));
  };
  EXPECT_EQ(with({4}, 0), "");
  EXPECT_THAT(with({}, 0), HasSubstr("tensor 't': found 0 dimensions"));
  EXPECT_THAT(with({1, 1, 1, 1, 1}, 0), HasSubstr("found 5 dimensions"));
  EXPECT_THAT(with({0, 4}, 0), HasSubstr("impossible shape [0, 4]"));
  EXPECT_THAT(with({std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0),
              HasSubstr("impossible shape"));
  EXPECT_THAT(with({std::uint64_t{1} << 62}, 0), HasSubstr("impossible shape"));
  EXPECT_THAT(with({~std::uint64_t{0}}, 0), HasSubstr("too large"));
  EXPECT_THAT(with({4}, 2), HasSubstr("rows of type Q4_0 hold a multiple of 32 values"));
  EXPECT_THAT(with({5}, 0), HasSubstr("20 bytes at offset 0 do not fit in the 16 bytes"));
  EXPECT_THAT(with({4}, 0, 8), HasSubstr("offset 8 is no multiple of 32"));
  EXPECT_THAT(with({4}, 0, ~std::uint64_t{31}), HasSubstr("do not fit"));
  EXPECT_THAT(parse_error(GgufBytes().floats("t", {1}, {1}).floats("t", {1}, {1})),
              HasSubstr("tensor 't' is there twice"));
  const std::string sixty_four(64, 'x');
  EXPECT_THAT(parse_error(GgufBytes().tensor("a", {16}, 0, sixty_four).tensor("b", {8}, 0, "", 32)),
              HasSubstr("the tensors 'a' and 'b' overlap"));
}

TEST(Gguf, RefusesATensorOfAForeignTypeOnlyWhenAsked) {
  GgufBytes written;
  written.tensor("old", {256}, 15, std::string(292, 'x')).tensor("new", {3}, 999, "");
  const std::string bytes = written.build();
  const GgufFile file = GgufFile::parse(span_of(bytes));
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(type_name(file.tensors()[0]), "Q8_K");
  EXPECT_EQ(error_of([&] { file.find("old"); }),
            "tensor 'old' has the type Q8_K, which is not supported");
  EXPECT_THAT(error_of([&] { file.find("new"); }), HasSubstr("number 999"));
}

}  // namespace
}  // namespace kvatlas::model
