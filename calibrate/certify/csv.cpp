// SPDX-License-Identifier: Apache-2.0
// CSV as pandas writes it, and the lists in its fields.
#include <algorithm>

#include "calibrate/certify/formats_impl.hpp"

namespace kvatlas::calibrate {

CsvReader::CsvReader(const std::filesystem::path& path, std::string_view text)
    : path_(printable(path.filename().string(), 200)), text_(text) {
  if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
}

std::string CsvReader::where() const { return str(path_, ':', row_line_); }

bool CsvReader::next(std::vector<std::string>& row) {
  constexpr std::size_t kMostColumns = 4096;
  row.clear();
  row_line_ = line_;
  if (at_ >= text_.size()) return false;
  const auto broken = [&](const char* what) {
    fail(ErrorCode::unreadable, "line ", row_line_, ": ", what);
  };
  for (;;) {
    std::string field;
    if (at_ < text_.size() && text_[at_] == '"') {
      for (++at_;; ++at_) {
        if (at_ >= text_.size()) broken("a field in quotes does not end: the file is cut");
        if (text_[at_] == '"') {
          if (text_.substr(at_ + 1, 1) != "\"") break;
          ++at_;
        }
        line_ += text_[at_] == '\n';
        field += text_[at_];
      }
      ++at_;
      if (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n' && text_[at_] != '\r')
        broken("a field goes on behind its quotes");
    } else {
      const auto end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
      field = text_.substr(at_, end - at_);
      at_ = end;
    }
    row.push_back(std::move(field));
    if (row.size() > kMostColumns) broken("has more columns than any table");
    if (at_ < text_.size() && text_[at_] == ',') {
      ++at_;
      continue;
    }
    if (text_.substr(at_, 2) == "\r\n") ++at_;
    ++at_;
    ++line_;
    return true;
  }
}

namespace {

void add_utf8(std::string& out, std::uint32_t code) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | (code >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0 | ((code >> 18) & 7));
    tail(12);
    tail(6);
    tail(0);
  }
}

/// Reads what follows a backslash in a text of Python; `at` stands behind it.
void add_escaped(std::string& out, std::string_view text, std::size_t& at) {
  const char c = text[at++];
  const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (digits > 0) {
    std::uint32_t code = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const auto place = at < text.size()
                             ? std::string_view("0123456789abcdef0123456789ABCDEF").find(text[at])
                             : std::string_view::npos;
      if (place == std::string_view::npos)
        fail(ErrorCode::unreadable, "a list has an escape that is cut");
      code = code * 16 + static_cast<std::uint32_t>(place % 16);
      ++at;
    }
    add_utf8(out, code);
    return;
  }
  constexpr std::string_view kNames = "nrt0abfv", kMeanings("\n\r\t\0\a\b\f\v", 8);
  const auto named = kNames.find(c);
  if (named != kNames.npos)
    out += kMeanings[named];
  else if (c == '\\' || c == '\'' || c == '"')
    out += c;
  else
    out += str('\\', c);
}

}  // namespace

std::vector<std::string> python_texts(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos || text[begin] != '[') return {std::string(text)};
  std::vector<std::string> out;
  std::size_t at = begin + 1;
  for (;;) {
    at = std::min(text.find_first_not_of(" \t\r\n,", at), text.size());
    if (at == text.size()) fail(ErrorCode::unreadable, "a list does not end");
    if (text[at] == ']') return out;
    if (text.substr(at, 3) == "...")
      fail(ErrorCode::unreadable, "a list was shortened to '...' when it was written");
    std::string one;
    if (text[at] != '\'' && text[at] != '"') {  // a number, or None
      const auto end = std::min(text.find_first_of(" \t\r\n,]", at), text.size());
      out.emplace_back(text.substr(at, end - at));
      at = end;
      continue;
    }
    const char quote = text[at++];
    while (at < text.size() && text[at] != quote)
      if (text[at] != '\\')
        one += text[at++];
      else if (++at < text.size())
        add_escaped(one, text, at);
    if (at == text.size()) fail(ErrorCode::unreadable, "a list has a text that does not end");
    ++at;
    out.push_back(std::move(one));
  }
}

}  // namespace kvatlas::calibrate
