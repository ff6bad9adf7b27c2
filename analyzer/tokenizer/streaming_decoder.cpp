// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/tokenizer.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {

std::string Tokenizer::decode(std::span<const std::int64_t> ids, bool skip_special) const {
  return repaired_utf8(decode_bytes(ids, skip_special, true));
}

StreamingDecoder::StreamingDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string StreamingDecoder::push(std::int64_t id) {
  if (tokenizer_->is_special(id) && skip_special_) return {};
  ids_.push_back(id);
  const std::string text = tokenizer_->decode_bytes(ids_, skip_special_, at_start_);
  if (held_ > 0 && text.size() == shown_ + held_) {
    ids_.pop_back();  // it has no text
    return {};
  }
  held_ = unfinished_utf8(text);
  const std::size_t certain = text.size() - held_;
  std::string out = certain > shown_
                        ? repaired_utf8(std::string_view(text).substr(shown_, certain - shown_))
                        : "";
  shown_ = certain;
  // At the start tokens without text are kept, for they decide what is dropped there.
  if (at_start_ && shown_ == 0 && ids_.size() < 64) return out;
  if (held_ == 0) {
    ids_.clear();
    shown_ = 0;
    at_start_ = false;
  } else if (ids_.size() > 4) {  // enough for the bytes held back, at most three
    ids_.erase(ids_.begin(), ids_.end() - 4);
    at_start_ = false;
    shown_ = tokenizer_->decode_bytes(ids_, skip_special_, at_start_).size() - held_;
  }
  return out;
}

std::string StreamingDecoder::finish() {
  const std::string text = tokenizer_->decode_bytes(ids_, skip_special_, at_start_);
  std::string out = repaired_utf8(std::string_view(text).substr(shown_));
  *this = StreamingDecoder(tokenizer_, skip_special_);
  return out;
}

}  // namespace kvatlas::model
