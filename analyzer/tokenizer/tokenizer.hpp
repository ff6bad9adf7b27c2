// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvatlas::model {

class GgufFile;

/// Text to token ids and back, as the model's own tokenizer does. Immutable and thread-safe.
class Tokenizer {
 public:
  /// From a folder: tokenizer.json, else tokenizer.model (SentencePiece). nullptr if it has
  /// neither.
  static std::shared_ptr<const Tokenizer> from_folder(const std::filesystem::path& folder);
  /// From the tokenizer.ggml.* keys (kinds gpt2 and llama). nullptr if there are none.
  static std::shared_ptr<const Tokenizer> from_gguf(const GgufFile& file);
  /// From one file's text or bytes, for tests and fuzzing.
  static std::shared_ptr<const Tokenizer> from_json(std::string_view text);
  static std::shared_ptr<const Tokenizer> from_sentencepiece(std::string_view bytes);

  virtual ~Tokenizer() = default;

  struct EncodeOptions {
    bool add_special = true;    // what the tokenizer puts around a prompt (BOS, …)
    bool parse_special = true;  // "<|im_end|>" written in the text becomes its one token
  };
  /// Any bytes are taken; what is not UTF-8 is encoded as U+FFFD.
  virtual std::vector<std::int64_t> encode(std::string_view text, EncodeOptions options) const = 0;
  std::vector<std::int64_t> encode(std::string_view text) const {
    return encode(text, EncodeOptions{});
  }

  /// The text of the ids; ids out of range are an Error(unreadable). `skip_special` leaves out
  /// control tokens.
  std::string decode(std::span<const std::int64_t> ids, bool skip_special = false) const;
  /// The bytes of the text, in which a token may end inside a character. `at_start` says that the
  /// ids begin the text, where some tokenizers drop a space.
  virtual std::string decode_bytes(std::span<const std::int64_t> ids, bool skip_special,
                                   bool at_start) const = 0;

  virtual std::int64_t vocab_size() const = 0;
  virtual std::optional<std::int64_t> id_of(std::string_view token) const = 0;
  virtual std::string token_text(std::int64_t id) const = 0;  // the vocabulary's own spelling
  virtual bool is_special(std::int64_t id) const = 0;         // a control token
  virtual std::optional<std::int64_t> bos_id() const = 0;
  virtual std::vector<std::int64_t> end_ids() const = 0;  // tokens that end a generation
  /// The chat template that the files carry (Jinja text), if any.
  virtual std::optional<std::string> chat_template() const = 0;
  /// Special tokens by what they are for, as templates name them: "bos_token", "eos_token" …
  virtual const std::map<std::string, std::string>& special_tokens() const = 0;
  /// A hash of what decides the ids: vocabulary, merges, normalisation. 16 hex digits.
  virtual std::string fingerprint() const = 0;
};

/// Turns ids that come one by one into text: holds bytes back until they are whole UTF-8
/// characters. The time of a push does not grow with what came before.
class StreamingDecoder {
 public:
  explicit StreamingDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = true);
  std::string push(std::int64_t id);  // the text that became certain, maybe empty
  std::string finish();               // what was still held back

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::vector<std::int64_t> ids_;  // those whose text is not all out
  std::size_t shown_ = 0;          // bytes of their text that are out
  std::size_t held_ = 0;           // and that are held back after them
  bool at_start_ = true;           // nothing came before ids_
};

}  // namespace kvatlas::model
