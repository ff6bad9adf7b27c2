// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <array>
#include <new>
#include <stdexcept>

#include <gtest/gtest.h>

#include "base/foreign_error.hpp"

namespace kvatlas {
namespace {

TEST(Error, ContextIsPutInFrontFromTheInsideOut) {
  try {
    in_context("model.gguf", [] {
      in_context("tensor 'a'", [] {
        fail(ErrorCode::unreadable, "shape ", list_str(std::array{4, 8}));
      });
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "model.gguf: tensor 'a': shape [4, 8]");
    EXPECT_EQ(exit_status(error.code()), 3);
  }
}

TEST(Error, WhatLibrariesThrowIsOneSentence) {
  const auto sentence = [](const std::exception& thrown, ErrorCode code) {
    const Error error = as_error(thrown);
    EXPECT_EQ(error.code(), code) << error.what();
    return std::string(error.what());
  };
  EXPECT_EQ(sentence(Error(ErrorCode::usage, "as it is"), ErrorCode::usage), "as it is");
  EXPECT_EQ(sentence(std::bad_alloc(), ErrorCode::resource),
            "memory ran out: use shorter prompts or a smaller --memory-budget");
  EXPECT_EQ(sentence(std::runtime_error("DefaultCPUAllocator: can't allocate memory\nat f()\n"),
                     ErrorCode::resource),
            "memory ran out (DefaultCPUAllocator: can't allocate memory): use shorter prompts or a "
            "smaller --memory-budget");
  EXPECT_EQ(sentence(std::runtime_error("CUDA out of memory. Tried to allocate 2 GiB"),
                     ErrorCode::resource),
            "the GPU's memory ran out (CUDA out of memory. Tried to allocate 2 GiB): use shorter "
            "prompts, a smaller --memory-budget or --device cpu");
  EXPECT_EQ(
      sentence(std::runtime_error("CUDA error: unspecified launch failure\nat f()"),
               ErrorCode::resource),
      "the GPU failed (CUDA error: unspecified launch failure): --device cpu does without it");
  EXPECT_EQ(sentence(std::runtime_error("\x1b[2J of a file"), ErrorCode::internal),
            "internal error: ?[2J of a file");
}

TEST(Error, ForeignTextIsMadeSafe) {
  EXPECT_EQ(quoted("a\x1b[2Jb\n"), "'a?[2Jb?'");
  EXPECT_EQ(quoted(std::string(100, 'x'), 5), "'xxxxx...'");
  EXPECT_EQ(printable("\xC2\x9B[2J \xC2\xA0\xC3\x9B"), "?[2J \xC2\xA0\xC3\x9B");
  EXPECT_EQ(printable("ab\xE2\x96\x81z", 4), "ab...") << "a character is not torn";
  EXPECT_EQ(printable("ab\xE2\x96\x81z", 5), "ab\xE2\x96\x81...");
  EXPECT_EQ(without_controls("a\tb\nc\x1b", "\n\t"), "a\tb\nc?");
}

}  // namespace
}  // namespace kvatlas
