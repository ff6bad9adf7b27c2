// SPDX-License-Identifier: Apache-2.0
// The one table of number formats that keys and values can be stored in (docs/precision.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/kv_round.hpp"

namespace kvatlas::calibrate {

enum class KvFormat : std::uint8_t {
  f16,
  fp8,
  q8_0,
  q4_0,
  int4,
  int2,
  fp8_cpu,
  fp8_e5m2,
  fp8_e5m2_cpu,
  int8_per_token_head,
  fp8_per_token_head,
  int4_per_token_head,
  turboquant_k8v4,
  turboquant_4bit_nc,
  turboquant_k3v4_nc,
  turboquant_3bit_nc,
  nvfp4,
  q4_1,
  q5_0,
  q5_1,
  iq4_nl
};

enum class KvSide : std::uint8_t { keys, values };

/// How a format stores keys, or values.
struct KvStored {
  double bits;       // of a number, those of scales of blocks included
  double head_bits;  // and so many for a head of a token
  /// What the kernel that rounds them calls it; none where nothing is rounded, or groups of tokens.
  std::optional<kernels::RowFormat> rows;
};

/// What is known of a format.
struct KvFormatFacts {
  /// In policies and documents.
  std::string_view word;
  const char* title;
  const char* engine;  // whose it is
  KvStored keys, values;
  /// Whether each token is rounded by itself, as soon as it is there. The other formats round 32
  /// tokens together.
  bool by_token;
  /// Keys in it go with values in it.
  bool pair;
  /// The first tokens of a prompt that a server reads at a time attend to exact keys and values.
  bool first_chunk_exact;
  /// llama.cpp rotates heads of a multiple of 64 numbers before it rounds them.
  bool rotated;
  const char* devices;

  constexpr const KvStored& stored(KvSide side) const {
    return side == KvSide::keys ? keys : values;
  }
};

namespace kv_formats {

using enum kernels::RowFormat;
constexpr KvStored stored(double bits, double head_bits = 0,
                          std::optional<kernels::RowFormat> rows = std::nullopt) {
  return {bits, head_bits, rows};
}
constexpr KvFormatFacts of_vllm(std::string_view word, const char* title, const KvStored& keys,
                                const KvStored& values, const char* devices) {
  return {word, title, "vLLM", keys, values, true, false, false, false, devices};
}
constexpr KvFormatFacts turboquant(std::string_view word, const char* title, const KvStored& keys,
                                   const KvStored& values) {
  return {word, title, "vLLM", keys, values, true, true, true, false, "CUDA, ROCm, XPU"};
}
constexpr KvFormatFacts of_llama_cpp(std::string_view word, const char* title,
                                     const KvStored& both) {
  return {word, title, "llama.cpp", both, both, true, false, false, true, "all"};
}
constexpr KvFormatFacts in_groups(std::string_view word, const char* title, const KvStored& both) {
  return {word, title, "transformers", both, both, false, false, false, false, "all"};
}

}  // namespace kv_formats

/// In the order of KvFormat.
inline constexpr auto kKvFormats = [] {
  using namespace kv_formats;
  constexpr const char *kOnGpus = "CUDA, ROCm, XPU",
                       *kOnCpus = "CPUs with AVX-512 or AMX, heads of a multiple of 32";
  return std::array<KvFormatFacts, 21>{
      {{"16", "16 bits", "all", stored(16), stored(16), true, false, false, false, "all"},
       {"fp8", "8-bit floating point (E4M3)", "vLLM, SGLang, TensorRT-LLM", stored(8, 0, e4m3),
        stored(8, 0, e4m3), true, false, false, false, "GPUs"},
       of_llama_cpp("q8_0", "8 bits, blocks of 32 channels", stored(8.5, 0, q8_0)),
       of_llama_cpp("q4_0", "4 bits, blocks of 32 channels", stored(4.5, 0, q4_0)),
       in_groups("int4", "4 bits, groups of 32", stored(5)),
       in_groups("int2", "2 bits, groups of 32", stored(3)),
       of_vllm("fp8_cpu", "E4M3 cut toward zero", stored(8, 0, e4m3_cut), stored(8, 0, e4m3_cut),
               kOnCpus),
       {"fp8_e5m2", "8-bit floating point (E5M2)", "vLLM, SGLang", stored(8, 0, e5m2),
        stored(8, 0, e5m2), true, false, false, false, "GPUs"},
       of_vllm("fp8_e5m2_cpu", "E5M2 cut toward zero", stored(8, 0, e5m2_cut),
               stored(8, 0, e5m2_cut), kOnCpus),
       of_vllm("int8_per_token_head", "8 bits, a scale a token and head", stored(8, 32, int8_row),
               stored(8, 32, int8_row), kOnGpus),
       of_vllm("fp8_per_token_head", "E4M3, a scale a token and head", stored(8, 32, e4m3_row),
               stored(8, 32, e4m3_row), "CUDA from SM89 on, ROCm, XPU"),
       of_vllm("int4_per_token_head", "4 bits, rotated, a scale a token and head",
               stored(4, 32, int4_row), stored(4, 32, int4_row), kOnGpus),
       turboquant("turboquant_k8v4", "keys E4M3, values 4 bits", stored(8, 0, e4m3),
                  stored(4, 32, range4_row)),
       turboquant("turboquant_4bit_nc", "keys 4 bits, rotated, values 4 bits",
                  stored(4, 16, lloyd4_row), stored(4, 32, range4_row)),
       turboquant("turboquant_k3v4_nc", "keys 3 bits, rotated, values 4 bits",
                  stored(3, 16, lloyd3_row), stored(4, 32, range4_row)),
       turboquant("turboquant_3bit_nc", "keys 3 bits, rotated, values 3 bits",
                  stored(3, 16, lloyd3_row), stored(3, 32, range3_row)),
       {"nvfp4", "4-bit floating point, blocks of 16 channels", "vLLM, SGLang, TensorRT-LLM",
        stored(4.5, 0, kernels::RowFormat::nvfp4), stored(4.5, 0, kernels::RowFormat::nvfp4), true,
        false, false, false, "NVIDIA, by FlashInfer"},
       of_llama_cpp("q4_1", "4 bits and a minimum, blocks of 32 channels", stored(5, 0, q4_1)),
       of_llama_cpp("q5_0", "5 bits, blocks of 32 channels", stored(5.5, 0, q5_0)),
       of_llama_cpp("q5_1", "5 bits and a minimum, blocks of 32 channels", stored(6, 0, q5_1)),
       of_llama_cpp("iq4_nl", "4 bits, uneven levels, blocks of 32 channels",
                    stored(4.5, 0, iq4_nl))}};
}();

constexpr const KvFormatFacts& facts_of(KvFormat format) {
  return kKvFormats[static_cast<std::size_t>(format)];
}
static_assert(facts_of(KvFormat::iq4_nl).word == "iq4_nl" &&
              facts_of(KvFormat::nvfp4).word == "nvfp4" && facts_of(KvFormat::int2).word == "int2");

/// The format of this word, if there is one.
std::optional<KvFormat> kv_format_called(std::string_view word);

/// Bytes of the key, or the value, of a token in one KV head.
constexpr double bytes_of_row(KvFormat format, KvSide side, std::int64_t head_dim) {
  const KvStored& stored = facts_of(format).stored(side);
  return (static_cast<double>(head_dim) * stored.bits + stored.head_bits) / 8;
}
/// Bits of a number of keys and values together, those of scales included.
constexpr double bits_of(KvFormat format, std::int64_t head_dim) {
  if (head_dim == 0) return (facts_of(format).keys.bits + facts_of(format).values.bits) / 2;
  return 8 *
         (bytes_of_row(format, KvSide::keys, head_dim) +
          bytes_of_row(format, KvSide::values, head_dim)) /
         static_cast<double>(2 * head_dim);
}

/// "" if heads of this size can have the format, else why not.
std::string lack_of_format(KvFormat format, std::int64_t head_dim);

/// The formats of one layer.
struct KvFormats {
  KvFormat keys = KvFormat::f16, values = KvFormat::f16;
  bool operator==(const KvFormats&) const = default;
  bool plain() const { return *this == KvFormats{}; }
};

}  // namespace kvatlas::calibrate
