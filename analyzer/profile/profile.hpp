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

/// The unit of maps and rows of attention. Where they are uint8 they hold the codes of
/// base/share_code.hpp, and the file says beside them how codes become logarithms.
inline constexpr const char* kLog2OfAShare = "log2 of a share";

inline constexpr const char* kSchema = "kvatlas.profile";
inline constexpr int kSchemaMajor = 1, kSchemaMinor = 2;

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

/// What an array is. It is the same in every sample and is written with the array as attributes.
struct Description {
  std::string name;               // "js/divergence"; '/' makes groups
  std::vector<std::string> axes;  // "head", "layer", …; the axis of samples is not among them
  std::string unit;               // "share", "bit", "nat", "count", "log2 of a share", …
  std::string meaning;            // one sentence
  Type type = Type::f32;
  /// The sizes, if all samples have the same. Then the array is a row of one dataset
  /// statistics/NAME [sample, …], and the row of a sample without it is NaN (-1 in integers). Empty
  /// if sizes differ from sample to sample, or if only some samples have the array; then it lies in
  /// samples/INDEX/NAME.
  std::vector<std::int64_t> sizes;
  /// For arrays in samples/INDEX: how many of the leading axes, such as layer and head, are read
  /// one index at a time.
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
  /// As in model::Config: which of the model's layers these are, for others have no attention; and
  /// [n_layers] how many numbers a token takes in the cache. Empty: all; a key and a value a KV
  /// head.
  std::vector<std::int64_t> layer_numbers = {}, cached_values = {};
  std::int64_t latent_rank = 0;  // numbers of what all heads of a layer make keys and values from
  std::string backend;           // "cpu, float32, avx3"
  /// Canonical JSON objects. `capture` must be equal where profiles are resumed or merged;
  /// `prompts` where they are resumed.
  std::string capture, prompts;
  std::int64_t planned_samples = 0;
  std::vector<AxisTable> axes;
  std::vector<Description> arrays;
};

/// How many of so many tokens a layer with this window (0: none) can still attend to, and therefore
/// holds.
inline std::int64_t held_tokens(std::int64_t window, std::int64_t tokens) {
  return window > 0 && window < tokens ? window : tokens;
}

/// One prompt: where it came from, its tokens, and what was captured.
struct Sample : PromptDescription {
  std::int64_t index = 0;  // its place in the plan
  std::vector<std::int32_t> tokens;
  std::int64_t n_tokens = 0;    // filled by Reader, which leaves `tokens` to Reader::tokens()
  std::int64_t cut_tokens = 0;  // how many tokens the prompt lost from its middle
  // Whether group, metric, classes, language and cut_tokens are known. Samples of files of
  // schema 1.0 lack them.
  bool has_scoring = true;
  std::map<std::string, Array> arrays;  // by Description::name; only those that were captured
};

struct WriterOptions {
  bool resume = false;  // go on with an unfinished file; a finished one is left as it is
  bool force = false;   // begin anew and replace what is there
};

/// Writes a profile so that a crash at any moment loses no finished sample. A sample is first a
/// file of its own in "p.h5.parts/", itself a profile; from time to time, and at the end, p.h5 is
/// written anew from all that is there, and takes its name in one step. So p.h5, if it is there, is
/// always whole, and the same whatever interruptions came before.
class Writer {
 public:
  /// Takes the lock. Error(usage) if a finished or unfinished file is there and neither force nor
  /// resume is set, if another process writes it, or if it was begun with other settings; then the
  /// message names them with both values.
  Writer(const std::filesystem::path& path, const Header& header, const WriterOptions& options);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// For the other processes of the same run: adds samples while one process holds the lock. Only
  /// that process assembles the file, so finish() does nothing here.
  static std::unique_ptr<Writer> join(const std::filesystem::path& path, const Header& header);

  /// The samples that need not be computed again.
  std::set<std::int64_t> finished() const;
  /// Checks the arrays against the header's descriptions, and writes the sample. Error(resource) if
  /// the disk does not take it; what was added before stays. A sample that is finished already is
  /// left as it is. Several threads may call it.
  void add(const Sample& sample);
  /// Writes p.h5 with every finished sample, marks it as complete if these are all samples, and
  /// removes their parts. If it was not called, the destructor does this as far as it can.
  void finish();
  /// What a user should know of, although it stopped nothing; one sentence each.
  std::vector<std::string> warnings() const;

 private:
  struct State;
  explicit Writer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Whether a file is meant as a profile: it begins like an HDF5 file, or it is not there yet and
/// samples of an unfinished run lie beside it.
bool is_profile(const std::filesystem::path& path);

/// An opened profile. Error(unreadable) if it is no profile, is damaged, or has a newer major
/// version. Only one thread at a time may use it.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path);
  ~Reader();

  const Header& header() const;
  bool complete() const;  // as many samples as were planned
  /// The samples in the order of the plan, without their tokens and arrays.
  const std::vector<Sample>& samples() const;
  std::vector<std::int32_t> tokens(std::size_t position) const;

  /// Whether an array was captured for any sample, or for the sample at `position`.
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
  /// The sizes of an array of a sample. Its content is not read.
  std::vector<std::int64_t> shape(std::size_t position, const std::string& name) const;
  /// The block of `extent` elements at `start` of such an array. Only the chunks that it touches
  /// are read.
  Array block(std::size_t position, const std::string& name, std::span<const std::int64_t> start,
              std::span<const std::int64_t> extent) const;

  /// Error(unreadable) if the system failed to read the file at any time since it was opened. A
  /// report shows what can be read of a damaged profile; a disk that fails is another matter.
  void require_all_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Writes the samples of all inputs into one profile. Shards of one plan keep their indices and are
/// put in that order; other samples come one input after the other and are numbered anew.
/// Error(usage) names the difference if models or capture settings differ.
void merge(std::span<const std::filesystem::path> inputs, const std::filesystem::path& output,
           bool force);

}  // namespace kvatlas::profile
