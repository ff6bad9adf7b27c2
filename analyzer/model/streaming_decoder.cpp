// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/tokenizer.hpp"
#include "analyzer/model/unicode_text.hpp"

namespace kvatlas::model {

std::string Tokenizer::decode(std::span<const std::int64_t> ids, bool skip_special) const {
  return repaired_utf8(decode_bytes(ids, skip_special));
}

StreamingDecoder::StreamingDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string StreamingDecoder::push(std::int64_t id) {
  if (tokenizer_->is_special(id) && skip_special_) return {};
  ids_.push_back(id);
  const std::string text = tokenizer_->decode_bytes(ids_, skip_special_);
  if (held_ > 0 && text.size() == shown_ + held_) {
    ids_.pop_back();  // it has no text
    return {};
  }
  held_ = unfinished_utf8(text);
  const std::size_t certain = text.size() - held_;
  std::string out;
  if (certain > shown_)
    out = repaired_utf8(std::string_view(text).substr(shown_, certain - shown_));
  shown_ = certain;
  // What comes next depends on the bytes held back and, at the start of a text, on there being a
  // token before it: the last few tokens are enough.
  const std::size_t needed = held_ == 0 ? 1 : 4;
  if (ids_.size() > needed) {
    ids_.erase(ids_.begin(), ids_.end() - static_cast<std::ptrdiff_t>(needed));
    shown_ = tokenizer_->decode_bytes(ids_, skip_special_).size() - held_;
  }
  return out;
}

std::string StreamingDecoder::finish() {
  const std::string text = tokenizer_->decode_bytes(ids_, skip_special_);
  const std::string out =
      shown_ < text.size() ? repaired_utf8(std::string_view(text).substr(shown_)) : std::string();
  ids_.clear();
  shown_ = held_ = 0;
  return out;
}

}  // namespace kvatlas::model
