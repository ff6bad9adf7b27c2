// SPDX-License-Identifier: Apache-2.0
// The profile: what a run captured, in one HDF5 file (docs/profile-format.md).
//
//   Writing:  Writer writer("p.h5", header, {});       // takes the lock, refuses what is there
//             writer.add(sample);                      // durable when it returns
//             writer.finish();                         // all samples in p.h5, nothing beside it
//   Reading:  const Reader profile("p.h5");            // checks the file before it is believed
//             profile.statistic("js/divergence");      // [sample, head, layer, layer]
//             profile.array(3, "map/mean/0", {5, 2});  // the map of one head of sample 3
//
// HDF5's own types appear in no public header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/prompt_description.hpp"

namespace kvatlas::profile {

inline constexpr int kSchemaMajor = 1, kSchemaMinor = 0;

/// Element types of a profile's arrays. float16 is held as its 16 bits.
enum class Type : std::uint8_t { f32, f16, i32, i64, u8 };
std::int64_t type_bytes(Type type);
const char* type_name(Type type);

/// A dense array in row-major order.
struct Array {
  Type type = Type::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  Array() = default;
  /// Zeros.
  Array(Type element, std::vector<std::int64_t> sizes);
  /// The elements as T (float, std::uint16_t for float16, std::int32_t, std::int64_t,
  /// std::uint8_t).
  template <class T>
  std::span<T> values() {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <class T>
  std::span<const T> values() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

/// What an array is, the same in every sample; written beside it as attributes.
struct Description {
  std::string name;               // "js/divergence"; '/' makes groups
  std::vector<std::string> axes;  // "head", "layer", …, without the sample
  std::string unit;               // "share", "bit", "nat", "count", "log2 of a share", …
  std::string meaning;            // one sentence
  Type type = Type::f32;
  /// Sizes that hold for all samples: the array is a row of one dataset statistics/NAME [sample,
  /// …], and a sample without it is a row of NaN (-1 in integers). Empty: sizes differ from sample
  /// to sample, or only some samples have it, and it lies in samples/INDEX/NAME.
  std::vector<std::int64_t> sizes;
  /// For arrays of a sample: so many leading axes are read one index at a time (layer, head).
  int single_axes = 0;
};

/// The values that an axis of settings runs over: row i of `values` belongs to index i of the axis.
struct AxisTable {
  std::string axis;                  // "proximity"
  std::vector<std::string> columns;  // "initial", "recent"
  std::vector<std::int64_t> values;  // [labels.size(), columns.size()]
  std::vector<std::string> labels;   // "initial=4,recent=64"
};

/// What a profile is of and how it was taken: the root's attributes and tables.
struct Header {
  std::string tool_version;
  std::string model_name, architecture;
  std::string model_fingerprint, tokenizer_fingerprint;  // the latter may be empty
  std::int64_t n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, vocab_size = 0;
  std::int64_t context_length = 0;
  std::vector<std::int64_t> window;  // [n_layers] keys seen, 0 = all
  std::string backend;               // "cpu, float32, avx3"
  /// Canonical JSON objects. `capture` must be equal where profiles are resumed or merged;
  /// `prompts` where they are resumed.
  std::string capture, prompts;
  std::int64_t planned_samples = 0;
  std::vector<AxisTable> axes;
  std::vector<Description> arrays;
};

/// One prompt: where it came from, its tokens, and what was captured.
struct Sample : PromptDescription {
  std::int64_t index = 0;  // in the plan
  std::vector<std::int32_t> tokens;
  std::int64_t n_tokens = 0;  // filled by Reader, which leaves `tokens` to Reader::tokens()
  std::map<std::string, Array> arrays;  // by Description::name; which are absent was not captured
};

struct WriterOptions {
  bool resume = false;  // go on with an unfinished file, or find that nothing is left to do
  bool force = false;   // begin anew, whatever is there
};

/// Writes a profile so that a crash at any moment loses no finished sample. A sample is first a
/// file of its own in "p.h5.parts/", itself a profile; from time to time, and at the end, p.h5 is
/// written anew from all that is there, and takes its name in one step. So p.h5, if it is there, is
/// always whole, and the same whatever interruptions came before.
class Writer {
 public:
  /// Takes the lock. Error(usage): the file is there (without force or resume), an unfinished one
  /// is (likewise), settings differ (names which, and both values), another process writes it.
  Writer(const std::filesystem::path& path, const Header& header, const WriterOptions& options);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// For further processes of the same run: adds samples beside the one that holds the lock, and
  /// never assembles. Its finish() does nothing.
  static std::unique_ptr<Writer> join(const std::filesystem::path& path, const Header& header);

  /// The samples that need not be computed again.
  std::set<std::int64_t> finished() const;
  /// Checks the arrays against the header's descriptions, and writes; Error(resource) if the disk
  /// does not take it, and what was added before stays. A sample that is finished already is left
  /// as it is. Thread safe.
  void add(const Sample& sample);
  /// Writes p.h5 with every finished sample, complete if that is all, and removes the parts it
  /// holds. Without it the destructor does so, as far as it can.
  void finish();
  /// What happened that a user should know and that stopped nothing, a sentence each.
  std::vector<std::string> warnings() const;

 private:
  struct State;
  explicit Writer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Whether a file is meant as a profile: it begins as an HDF5 file does, or it is not there and an
/// unfinished run's samples lie beside it.
bool is_profile(const std::filesystem::path& path);

/// An opened profile. Error(unreadable) for what is no profile, is damaged, or is of a newer major
/// version; not thread safe.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path);
  ~Reader();

  const Header& header() const;
  bool complete() const;  // as many samples as were planned
  /// What is known of the samples but their tokens and arrays, by index in the plan.
  const std::vector<Sample>& samples() const;
  std::vector<std::int32_t> tokens(std::size_t position) const;

  /// Whether it was captured (for any sample; for this one).
  bool has(const std::string& name) const;
  bool has(std::size_t position, const std::string& name) const;
  /// A fixed-size statistic over all samples, in the order of samples(): [n_samples, …].
  Array statistic(const std::string& name) const;
  /// An array of the sample at `position` in samples(), or the part of it with the leading indices
  /// `at`.
  Array array(std::size_t position, const std::string& name,
              std::span<const std::int64_t> at = {}) const;
  Array array(std::size_t position, const std::string& name,
              std::initializer_list<std::int64_t> at) const {
    return array(position, name, std::span(at.begin(), at.size()));
  }
  /// The sizes of an array of a sample; nothing of it is read.
  std::vector<std::int64_t> shape(std::size_t position, const std::string& name) const;
  /// The block of `extent` elements at `start` of such an array: reads the chunks it touches alone.
  Array block(std::size_t position, const std::string& name, std::span<const std::int64_t> start,
              std::span<const std::int64_t> extent) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Writes the samples of all inputs, in order, into one profile: those of one and the same index
/// plan (shards) by index, otherwise renumbered. Error(usage) if their models or capture settings
/// differ, naming the difference.
void merge(std::span<const std::filesystem::path> inputs, const std::filesystem::path& output,
           bool force);

}  // namespace kvatlas::profile
