// SPDX-License-Identifier: Apache-2.0
// A small profile's header and samples, the same for the same index, with arrays of every type.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "analyzer/profile/profile.hpp"
#include "base/half.hpp"

namespace kvatlas::profile::testing_samples {

inline Header make_header(std::int64_t planned) {
  Header header;
  header.tool_version = "0.1.0";
  header.model_name = "tiny";
  header.architecture = "llama";
  header.model_fingerprint = "0123abcd";
  header.tokenizer_fingerprint = "";
  header.n_layers = 3;
  header.n_heads = 4;
  header.n_kv_heads = 2;
  header.head_dim = 8;
  header.vocab_size = 1000;
  header.context_length = 2048;
  header.window = {0, 128, 0};
  header.backend = "cpu, float32";
  header.capture = R"({"maps":{"block":64,"samples":4},"rows":64})";
  header.prompts = R"({"lengths":[512,1024],"seed":1,"tasks":["needle"]})";
  header.planned_samples = planned;
  header.axes = {{"proximity", {"initial", "recent"}, {4, 64, 16, 240}, {"i=4", "i=16, ü"}},
                 {"nothing", {}, {}, {"only", "labels"}}};
  header.arrays = {
      {"mass", {"proximity", "layer"}, "share", "Mass on near keys.", Type::f32, {2, 3}, 0},
      {"js/divergence", {"head", "layer", "layer"}, "nat", "JS.", Type::f16, {4, 3, 3}, 0},
      {"counts/top", {"layer", "budget"}, "count", "Counts.", Type::i32, {3, 5}, 0},
      {"counts/wide", {"layer"}, "count", "Wide counts.", Type::i64, {3}, 0},
      {"flags", {"layer"}, "1", "Flags.", Type::u8, {3}, 0},
      {"sometimes", {"layer"}, "share", "In odd samples only.", Type::f32, {3}, 0},
      {"never", {"layer"}, "share", "In no sample.", Type::f32, {3}, 0},
      {"map/mean/0", {"layer", "head", "row", "column"}, "log2 of a share", "M.", Type::f16, {}, 2},
      {"keys", {"layer", "token"}, "1", "Norms.", Type::f32, {}, 0},
      {"bytes", {"token"}, "1", "Bytes.", Type::u8, {}, 0},
      {"never_here", {"token"}, "1", "Nothing.", Type::i64, {}, 0}};
  return header;
}

template <class T, class Value>
Array filled(Type type, std::vector<std::int64_t> shape, const Value& value) {
  Array array(type, std::move(shape));
  for (T& element : array.values<T>()) element = static_cast<T>(value());
  return array;
}

inline Sample make_sample(std::int64_t index, std::int64_t n_tokens = 300) {
  std::mt19937 random(static_cast<unsigned>(index) + 17);
  const auto real = [&] { return std::uniform_real_distribution<float>(0, 1)(random); };
  const auto half = [&] { return float_to_f16(real()); };
  const auto whole = [&] { return std::uniform_int_distribution<int>(0, 999)(random); };
  Sample sample;
  sample.index = index;
  sample.id = "needle-" + std::to_string(index) + "-é";
  sample.task = index % 2 == 0 ? "needle" : "passkey";
  sample.length = n_tokens;
  sample.depth = 0.25;
  sample.seed = index;
  for (std::int64_t i = 0; i < n_tokens + index; ++i) sample.tokens.push_back(whole());
  if (index % 3 != 0) sample.answers = {"one", "", "the second answer"};
  sample.group = "text-" + std::to_string(index / 2);
  if (index % 2 == 1) {
    sample.metric = "classification";
    sample.all_classes = {"one", "zwölf"};
    sample.language = "zh";
    sample.max_new_tokens = 40;
    sample.cut_tokens = 40;
  }
  sample.arrays["mass"] = filled<float>(Type::f32, {2, 3}, real);
  sample.arrays["js/divergence"] = filled<std::uint16_t>(Type::f16, {4, 3, 3}, half);
  sample.arrays["counts/top"] = filled<std::int32_t>(Type::i32, {3, 5}, whole);
  sample.arrays["counts/wide"] = filled<std::int64_t>(Type::i64, {3}, whole);
  sample.arrays["flags"] = filled<std::uint8_t>(Type::u8, {3}, [&] { return whole() % 2; });
  if (index % 2 == 1) sample.arrays["sometimes"] = filled<float>(Type::f32, {3}, real);
  if (index < 3) {
    const std::int64_t side = 270 + 20 * index;
    sample.arrays["map/mean/0"] = filled<std::uint16_t>(Type::f16, {3, 4, side, side}, half);
    sample.arrays["keys"] = filled<float>(Type::f32, {3, n_tokens + index}, real);
    sample.arrays["bytes"] = filled<std::uint8_t>(Type::u8, {index}, whole);  // none in sample 0
  }
  return sample;
}

inline std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Writes samples first, first + 1, … below last, one after the other.
inline void write_range(const std::filesystem::path& path, const Header& header, std::int64_t first,
                        std::int64_t last) {
  Writer writer(path, header, {});
  for (std::int64_t index = first; index < last; ++index) writer.add(make_sample(index));
  writer.finish();
}

/// Reads all that a profile has.
inline void read_everything(const std::filesystem::path& path) {
  const Reader profile(path);
  for (const Description& array : profile.header().arrays) {
    if (!profile.has(array.name)) continue;
    if (!array.sizes.empty()) profile.statistic(array.name);
    for (std::size_t i = 0; i < profile.samples().size(); ++i)
      if (profile.has(i, array.name)) profile.array(i, array.name);
  }
  for (std::size_t i = 0; i < profile.samples().size(); ++i) profile.tokens(i);
}

}  // namespace kvatlas::profile::testing_samples
