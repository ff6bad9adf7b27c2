// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/token_texts.hpp"

#include <gmock/gmock.h>

#include "analyzer/profile/statistics.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/viewer_models/open_profile.hpp"

namespace kvatlas::viewer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::error_of;

/// A profile of one prompt of three tokens, with these texts.
class TextProfile {
 public:
  TextProfile(const std::string& bytes, const std::vector<std::int32_t>& ends) {
    profile::Header header;
    header.tool_version = "0.1.0";
    header.planned_samples = 1;
    header.n_heads = header.n_kv_heads = 1;
    header.capture = header.prompts = "{}";
    header.arrays = profile::text_descriptions();
    profile::Sample sample;
    sample.tokens = {7, 8, 9};
    profile::Array text(profile::Type::u8, {static_cast<std::int64_t>(bytes.size())});
    std::copy(bytes.begin(), bytes.end(), text.values<std::uint8_t>().begin());
    profile::Array offsets(profile::Type::i32, {static_cast<std::int64_t>(ends.size())});
    std::copy(ends.begin(), ends.end(), offsets.values<std::int32_t>().begin());
    sample.arrays[profile::name::kTextBytes] = text;
    sample.arrays[profile::name::kTextEnds] = offsets;
    profile::Writer writer(path(), header, {});
    writer.add(sample);
    writer.finish();
  }
  std::vector<std::string> texts() const { return read_token_texts(profile::Reader(path()), 0); }

 private:
  std::filesystem::path path() const { return folder_.path() / "p.h5"; }
  testing_support::TemporaryFolder folder_;
};

TEST(TokenTexts, BytesOfEachToken) {
  // A token may be empty, or end inside a character.
  EXPECT_THAT(TextProfile("Hi\xE2\x82", {2, 2, 4}).texts(), ElementsAre("Hi", "", "\xE2\x82"));
  EXPECT_THAT(TextProfile("", {0, 0, 0}).texts(), ElementsAre("", "", ""));
}

TEST(TokenTexts, AbsentInOlderProfiles) {
  const OpenProfile profile;
  EXPECT_THAT(read_token_texts(profile.reader(), 0), IsEmpty());
}

TEST(TokenTexts, WrongOffsetsAreRefused) {
  EXPECT_THAT(error_of([] { TextProfile("abc", {1, 2}).texts(); }), HasSubstr("expected 3"));
  EXPECT_THAT(error_of([] { TextProfile("abc", {2, 1, 3}).texts(); }), HasSubstr("ends at byte 1"));
  EXPECT_THAT(error_of([] { TextProfile("abc", {1, 2, 4}).texts(); }), HasSubstr("byte 4"));
  EXPECT_THAT(error_of([] { TextProfile("abc", {-1, 2, 3}).texts(); }), HasSubstr("byte -1"));
}

TEST(TokenTexts, ShownOnOneLine) {
  EXPECT_EQ(shown_text(" the"), " the");
  EXPECT_EQ(shown_text("é→😀"), "é→😀");
  EXPECT_EQ(shown_text("a\n\tb\r"), "a⏎⇥b\\x0D");
  EXPECT_EQ(shown_text("\xE2\x82"), "\\xE2\\x82");
  EXPECT_EQ(shown_text("\xFFx\x7F"), "\\xFFx\\x7F");
  EXPECT_EQ(shown_text("\u202e!"), "\\xE2\\x80\\xAE!");
  EXPECT_EQ(shown_text(std::string_view("\0", 1)), "\\x00");
}

}  // namespace
}  // namespace kvatlas::viewer
