// SPDX-License-Identifier: Apache-2.0
// How the demo model is asked to repeat a prompt.
#include "calibrate/search/repeat_request.hpp"

#include <gmock/gmock.h>

#include "analyzer/jinja/chat.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/golden.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

constexpr const char* kText = "The oak stands behind the mill.";

class RepeatRequestTo : public testing::Test {
 protected:
  const std::shared_ptr<const model::ModelFile> model_ =
      model::ModelFile::open(testing_support::demo_model().string());
  const model::Tokenizer& tokenizer_ = *model_->tokenizer();

  Ids message(const char* chat) const {
    return tokenizer_.encode(model::Chat(chat, &tokenizer_).render({{"user", kText}}));
  }
};

TEST_F(RepeatRequestTo, AMessageInTheModelsFormat) {
  const Ids prompt = message("auto");
  for (const char* chat : {"none", "auto"}) {
    const RepeatRequest request = repeat_request(*model_, chat, prompt);
    const std::span<const std::int64_t> before(prompt.data(), request.before_text);
    EXPECT_THAT(tokenizer_.decode(before), testing::EndsWith("<|im_start|>user\n"));
    EXPECT_EQ(tokenizer_.decode(Ids(prompt.begin() + request.before_text, prompt.end())),
              std::string(kText) + tokenizer_.decode(request.end));
    EXPECT_EQ(tokenizer_.decode(request.end), "<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(tokenizer_.decode(request.all), "\n\nRepeat the previous context exactly.");
    EXPECT_EQ(tokenizer_.decode(request.part),
              "\n\nRepeat the part of the previous context exactly, starting with");
  }
  // Another format, which the prompt is not in.
  EXPECT_EQ(repeat_request(*model_, "llama3", prompt).before_text, 0);
}

TEST_F(RepeatRequestTo, ABareText) {
  for (const char* chat : {"none", "auto", "chatml"}) {
    const RepeatRequest request = repeat_request(*model_, chat, tokenizer_.encode(kText));
    EXPECT_EQ(request.before_text, 0);
    EXPECT_EQ(tokenizer_.decode(request.end), "\n");
  }
}

TEST_F(RepeatRequestTo, AModelWithoutWords) {
  const auto bare =
      model::ModelFile::open(testing_support::golden_checkpoint("llama3_gqa_f32").string());
  EXPECT_THAT(testing_support::error_of([&] {
                repeat_request(*bare, "none", Ids{1, 2});
              }),
              HasSubstr("the model has no tokenizer that could encode them"));
}

}  // namespace
}  // namespace kvatlas::calibrate
