// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/token_decoder.hpp"

#include <charconv>

#include "analyzer/tokenizer/byte_alphabet.hpp"
#include "analyzer/tokenizer/text_growth.hpp"

namespace kvatlas::model {

namespace {

std::string joined(const std::vector<std::string>& tokens, std::string_view separator) {
  std::string out;
  for (std::size_t k = 0; k < tokens.size(); ++k) {
    if (k > 0) out += separator;
    out += tokens[k];
  }
  return out;
}

std::size_t total_bytes(const std::vector<std::string>& tokens) {
  std::size_t total = 0;
  for (const auto& token : tokens) total += token.size();
  return total;
}

}  // namespace

std::string TokenDecoder::apply(std::vector<std::string> tokens, bool at_start) const {
  if (steps_.empty()) return (at_start ? "" : " ") + joined(tokens, " ");
  const std::size_t most = most_bytes(total_bytes(tokens));
  Text text{std::move(tokens), at_start};
  for (const Step& step : steps_) {
    step(text);
    require_size(total_bytes(text.tokens), most, "decoder");
  }
  return joined(text.tokens, "");
}

namespace decoding {

TokenDecoder::Step byte_level() {
  return [&alphabet = ByteAlphabet::get()](TokenDecoder::Text& text) {
    std::string out;
    for (const auto& token : text.tokens) out += alphabet.bytes_of(token);
    text.tokens.assign(1, out);
    text.fused = true;
  };
}

TokenDecoder::Step byte_fallback() {
  return [](TokenDecoder::Text& text) {
    for (auto& token : text.tokens) {
      if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') continue;
      unsigned byte = 0;
      const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
      if (error == std::errc() && end == token.data() + 5) {
        token.assign(1, static_cast<char>(static_cast<unsigned char>(byte)));
      }
    }
  };
}

TokenDecoder::Step fuse() {
  return [](TokenDecoder::Text& text) {
    text.tokens.assign(1, joined(text.tokens, ""));
    text.fused = true;
  };
}

TokenDecoder::Step replace(Regex pattern, std::string content) {
  return [pattern = std::move(pattern), content = std::move(content)](TokenDecoder::Text& text) {
    std::size_t left = most_bytes(total_bytes(text.tokens));
    for (auto& token : text.tokens) {
      token = pattern.replaced(token, content, left);
      left -= token.size();
    }
  };
}

TokenDecoder::Step strip(std::string content, std::size_t start, std::size_t stop) {
  return [content = std::move(content), start, stop](TokenDecoder::Text& text) {
    for (auto& token : text.tokens) {
      std::string_view rest = token;
      const std::size_t most = text.fused && !text.at_start ? 0 : start;
      for (std::size_t k = 0; k < most && rest.starts_with(content); ++k) {
        rest.remove_prefix(content.size());
      }
      for (std::size_t k = 0; k < stop && rest.ends_with(content); ++k) {
        rest.remove_suffix(content.size());
      }
      token = std::string(rest);
    }
  };
}

TokenDecoder::Step metaspace(const std::string& replacement, bool drop_first) {
  return [pattern = Regex::literal(replacement), drop_first](TokenDecoder::Text& text) {
    for (std::size_t k = 0; k < text.tokens.size(); ++k) {
      const bool dropped = k == 0 && drop_first && text.at_start;
      text.tokens[k] = pattern.replaced(text.tokens[k], dropped ? "" : " ", text.tokens[k].size());
    }
  };
}

}  // namespace decoding

}  // namespace kvatlas::model
