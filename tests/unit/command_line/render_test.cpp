// SPDX-License-Identifier: Apache-2.0
// `kvatlas render` and `kvatlas report` as they are called, without a display.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/model_bytes.hpp"
#include "tests/support/small_profile.hpp"
#include "tests/unit/command_line/fixture.hpp"

namespace kvatlas {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using namespace testing_support;

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Render : public CommandLine {
 protected:
  Render() { calibrate::testing_profile::write_profile(profile()); }
  std::string profile() const { return (out_.path() / "p.h5").string(); }
  std::string path(const std::string& name) const { return (out_.path() / name).string(); }

  /// A document of the profile: a method with a setting given.
  std::string document(const std::string& method, const std::string& setting,
                       const std::string& value) const {
    auto file = path(method + ".json");
    const auto done = run_kvatlas({"calibrate", method, "-p", profile(), "--initial", "4",
                                   "--recent", "64", setting, value, "-o", file});
    EXPECT_EQ(done.status, 0) << done.err;
    return file;
  }
  std::string drawn(std::vector<std::string> words, const std::string& name) const {
    words.insert(words.begin(), "render");
    words.insert(words.end(), {"-o", path(name)});
    const auto done = run_kvatlas(words);
    EXPECT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(done.err, "");
    EXPECT_EQ(done.out, path(name) + "\n");
    return content(path(name));
  }
  static std::string refused(int status, std::vector<std::string> words) {
    words.insert(words.begin(), "render");
    return refusal(status, words);
  }

 private:
  TemporaryFolder out_;
};

TEST_F(Render, DrawsByTheEndingOfTheName) {
  const auto svg = drawn({profile(), "--what", "lazy-layers", "--initial", "4", "--recent", "64",
                          "--threshold", "0.6055"},
                         "a.svg");
  EXPECT_THAT(svg,
              AllOf(HasSubstr("2.5 of 4 layers lazy"), HasSubstr("threshold 0.6055"),
                    HasSubstr("fingerprint 0123456789abcdef"), HasSubstr("--threshold 0.6055")));
  const auto csv = drawn({profile(), "--what", "blocks", "--delta", "0.85"}, "a.csv");
  EXPECT_THAT(csv,
              AllOf(StartsWith("# Profile: p.h5, model small"), HasSubstr("delta 0.85"),
                    HasSubstr("\nKV head,layer,lowest layer of its block\n0,0,0\n0,1,1\n0,2,1\n")));
  const auto png = drawn({profile(), "--what", "budgets", "--budget", "64", "--size", "321x200",
                          "--scale", "2", "--dark", "--colours", "cividis"},
                         "a.png");
  ASSERT_GT(png.size(), 24u);
  // Width and height stand at byte 16, big end first.
  EXPECT_EQ(static_cast<unsigned char>(png[18]) * 256 + static_cast<unsigned char>(png[19]), 642);
  EXPECT_EQ(static_cast<unsigned char>(png[22]) * 256 + static_cast<unsigned char>(png[23]), 400);
}

TEST_F(Render, EqualInputGivesEqualFiles) {
  const std::vector<std::string> words = {profile(), "--what", "blocks-sweep"};
  EXPECT_EQ(drawn(words, "a.png"), drawn(words, "b.png"));
  EXPECT_EQ(drawn(words, "a.svg"), drawn(words, "b.svg"));
}

/// A figure for a paper: as wide as its column, without what the caption says.
TEST_F(Render, FiguresForPapers) {
  const std::vector<std::string> figure = {profile(),  "--what",     "lazy-layers", "--column",
                                           "1",        "--no-title", "--no-notes",  "--no-legend",
                                           "--recent", "64",         "--threshold", "0.6"};
  const auto svg = drawn(figure, "a.svg");
  const auto in_sight = svg.substr(svg.find("</desc>"));
  EXPECT_THAT(svg, AllOf(HasSubstr("width=\"88.9mm\""), HasSubstr("layers lazy")));
  EXPECT_THAT(in_sight, AllOf(Not(HasSubstr("layers lazy")), Not(HasSubstr("quartiles")),
                              HasSubstr("layer mass")));
  const auto pdf = drawn(figure, "a.pdf");
  EXPECT_THAT(pdf, AllOf(StartsWith("%PDF"), HasSubstr("/MediaBox [0 0 252.")));
  EXPECT_EQ(pdf, drawn(figure, "b.pdf"));
  const auto wide =
      drawn({profile(), "--what", "blocks", "--column", "2", "--font-size", "12"}, "wide.svg");
  EXPECT_THAT(wide, HasSubstr("width=\"181."));
  EXPECT_THAT(refused(2, {profile(), "--what", "blocks", "--column", "1", "--size", "10x10", "-o",
                          path("c.svg")}),
              HasSubstr("--size"));
}

TEST_F(Render, TakesTheDocumentsSettings) {
  const auto lazy = document("simlayerkv", "--threshold", "0.7");
  const auto pod = document("pod", "--delta", "0.6");
  EXPECT_THAT(drawn({profile(), lazy, pod, "--what", "lazy-layers"}, "a.svg"),
              AllOf(HasSubstr("threshold 0.7"), HasSubstr("Policy 2: pod.json")));
  EXPECT_THAT(drawn({profile(), lazy, pod, "--what", "blocks-sweep"}, "b.svg"),
              HasSubstr("delta 0.6"));
  EXPECT_THAT(drawn({profile(), pod, "--what", "blocks-sweep", "--delta", "0.3"}, "c.svg"),
              HasSubstr("delta 0.3"));
}

TEST_F(Render, OneHead) {
  EXPECT_THAT(drawn({profile(), "--what", "blocks", "--at", "L0.H3", "--per-head"}, "a.csv"),
              HasSubstr("PoD: head 3, "));
  EXPECT_THAT(refused(2, {profile(), "--what", "blocks", "--at", "L0.H4", "-o", path("b.svg")}),
              HasSubstr("4 layers and 4 heads"));
  EXPECT_THAT(refused(2, {profile(), "--what", "blocks", "--at", "here", "-o", path("b.svg")}),
              HasSubstr("expected layer and head as L12.H3"));
}

#if KVATLAS_HAS_TORCH
/// The axis of a hybrid model's only layer with attention counts layers, not parts of one.
TEST_F(Render, OneLayerIsOneTick) {
  const auto prompts =
      write_file("prompts.jsonl", R"({"tokens": [1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2]})");
  const auto done = run_kvatlas({"profile", "-m", model(), "--prompts", prompts, "--capture",
                                 "lazy", "--initial", "2", "--recent", "8", "-o", path("one.h5")});
  ASSERT_EQ(done.status, 0) << done.err;
  const auto svg = drawn({path("one.h5"), "--what", "lazy-layers", "--initial", "2", "--recent",
                          "8", "--threshold", "0.5"},
                         "one.svg");
  EXPECT_THAT(svg, AllOf(HasSubstr("of 1 layers lazy"), HasSubstr(">0<"), Not(HasSubstr(">-0."))));
}
#endif

TEST_F(Render, RefusesRegionsThatAreNone) {
  const auto refusal_of = [this](const std::string& what, const std::string& region) {
    return refused(2, {profile(), "--what", what, "--region", region, "-o", path("b.svg")});
  };
  for (const char* text : {"5", "0:4", "0:4,", "0:4,0:", "0:4;0:4", "a:4,0:4", "-1:4,0:4",
                           "0:4,0:4,", "0:99999999999999999999,0:4"})
    EXPECT_THAT(refusal_of("map", text), HasSubstr("expected queries and keys")) << text;
  EXPECT_THAT(refusal_of("map", "4:4,0:4"), HasSubstr("is empty"));
  EXPECT_THAT(refusal_of("map", "0:10,10:20"), HasSubstr("no query sees"));
  EXPECT_THAT(refusal_of("lazy", "0:4,0:4"), HasSubstr("goes with --what map"));
}

TEST_F(Render, ListsWhatThereIs) {
  EXPECT_THAT(run_kvatlas({"render", "--what", "list"}).out,
              AllOf(HasSubstr("\nlazy "), HasSubstr("\nsweep "), HasSubstr("\nprecision-curve "),
                    HasSubstr("--capture js")));
}

TEST_F(Render, EveryPictureIsDrawnOrSaysWhatItNeeds) {
  const auto second = path("second.h5");
  calibrate::testing_profile::write_profile(second);
  const auto lazy = document("simlayerkv", "--threshold", "0.7");
  const auto sweep = path("sweep.json");
  const auto made = run_kvatlas({"calibrate", "lagkv", "-p", profile(), "--lags", "32,64",
                                 "--ratios", "1/2,1/4", "-o", sweep});
  ASSERT_EQ(made.status, 0) << made.err;
  std::istringstream list(run_kvatlas({"render", "--what", "list"}).out);
  std::string line;
  std::getline(list, line);  // titles
  std::size_t drawn_ones = 0;
  while (std::getline(list, line)) {
    EXPECT_LE(line.size(), 100u) << line;
    if (line.starts_with(' ')) continue;  // what the line above began
    const std::string what = line.substr(0, line.find(' '));
    SCOPED_TRACE(what);
    for (const char* ending : {".csv", ".svg"}) {
      const auto done = run_kvatlas({"render", profile(), second, lazy, sweep, "--what", what,
                                     "--recent", "64", "-o", path(what + ending)});
      if (done.status == 0) {
        ++drawn_ones;
        EXPECT_GT(content(path(what + ending)).size(), 100u);
      } else {
        EXPECT_EQ(done.status, 2) << done.err;
        EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << done.err;
        EXPECT_FALSE(std::filesystem::exists(path(what + ending)));
      }
    }
  }
  // Not maps, rows and masses along the prompt, which the small profile lacks, and no scores.
  EXPECT_GE(drawn_ones, 2u * 14);
}

TEST_F(Render, WhatPoliciesKeepOfAPrompt) {
  const auto kept = write_file(
      "kept.jsonl", R"({"id": "a", "policy": "one", "tokens": [1, 2], "cache_lengths": [2],)"
                    R"( "prompt_tokens": 2, "cut_after": 2, "positions": [[[[1, 2]], []]]})"
                    "\n"
                    R"({"id": "a", "policy": "two", "tokens": [1, 2], "cache_lengths": [2],)"
                    R"( "prompt_tokens": 2, "cut_after": 2, "positions": [[[], [[0, 2]]]]})"
                    "\n");
  const auto drawn = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"render", kept, "--what", "kept"});
    words.insert(words.end(), {"--force", "-o", path("kept.csv")});
    const auto done = run_kvatlas(words);
    EXPECT_EQ(done.status, 0) << done.err;
    return content(path("kept.csv"));
  };
  EXPECT_THAT(
      drawn({"--policy", "two", "--policy", "one", "--generated", "0"}),
      HasSubstr(",0,0,0,0.5,,,\n\"Tokens held of a, 0 tokens after the prompt\",0,1,1,0,,,\n"));
  EXPECT_THAT(drawn({"--policy", "one", "--at", "L0.H0"}),
              AllOf(HasSubstr("\"one: layer 0, KV head 0\",,,,0,\"#0 \",0\n"),
                    HasSubstr("\"one: layer 0, KV head 0\",,,,2,\"#2 \",1\n")));
  const auto picture = [&](const char* policy) {
    return Render::drawn({kept, "--what", "kept", "--policy", policy, "--at", "L0.H0", "--force"},
                         "kept.svg");
  };
  EXPECT_THAT(picture("one"), HasSubstr("one: layer 0, KV head 0"));
  EXPECT_NE(picture("one"), picture("two"));  // other tokens are shaded
  EXPECT_THAT(refused(2, {kept, "--what", "kept", "--policy", "one", "--policy", "two", "--policy",
                          "one", "-o", path("a.csv")}),
              HasSubstr("given 3 times"));
  EXPECT_THAT(refused(2, {kept, "--what", "kept", "--policy", "no", "-o", path("a.csv")}),
              HasSubstr("no 'no' among the lines; there are: 'one' 'two'"));
  EXPECT_THAT(refused(2, {kept, "--what", "kept", "--at", "L0.H2", "-o", path("a.csv")}),
              HasSubstr("1 layers and 2 KV heads"));
  EXPECT_THAT(refused(2, {kept, "--what", "kept", "--sample", "1", "-o", path("a.csv")}),
              HasSubstr("no prompt 1 among 1"));
  EXPECT_THAT(refused(2, {profile(), "--what", "kept", "-o", path("a.csv")}),
              HasSubstr("evaluate --generations --positions"));
  EXPECT_THAT(refused(3, {write_file("bad.jsonl", R"({"cache_lengths": []})"), "--what", "kept",
                          "-o", path("a.csv")}),
              HasSubstr("bad.jsonl: line 1"));
}

TEST_F(Render, Refuses) {
  const auto out = path("a.svg");
  EXPECT_THAT(refused(2, {profile(), "-o", out}), HasSubstr("--what is missing"));
  EXPECT_THAT(refused(2, {profile(), "--what", "lazy"}), HasSubstr("-o is missing"));
  EXPECT_THAT(refused(2, {"--what", "lazy", "-o", out}), HasSubstr("needs a profile"));
  EXPECT_THAT(refused(2, {profile(), "--what", "cake", "-o", out}),
              AllOf(HasSubstr("no picture 'cake'"), HasSubstr("blocks")));
  EXPECT_THAT(refused(2, {profile(), "--what", "lazy", "--recent", "63", "-o", out}),
              HasSubstr("--recent 63"));
  EXPECT_THAT(refused(2, {profile(), "--what", "sweep", "-o", out}), HasSubstr("calibrate lagkv"));
  EXPECT_THAT(refused(2, {profile(), "--what", "precision", "-o", out}),
              HasSubstr("calibrate precision"));
  EXPECT_THAT(refused(2, {profile(), "--what", "blocks", "-o", path("a.jpg")}),
              HasSubstr("neither .png"));
  EXPECT_THAT(refused(2, {profile(), "--what", "blocks", "--size", "big", "-o", out}),
              HasSubstr("expected as 1280x720"));
  EXPECT_THAT(refused(2, {profile(), "--what", "blocks", "--size", "99999x9", "-o", out}),
              HasSubstr("99999 x 9 pixels"));
  EXPECT_THAT(refused(2, {profile(), "--what", "blocks", "--colours", "rainbow", "-o", out}),
              HasSubstr("viridis"));
  EXPECT_THAT(refused(2, {profile(), "--what", "blocks", "--task", "chess", "-o", out}),
              HasSubstr("the profile has needle"));
  EXPECT_THAT(refused(2, {profile(), "--what", "lazy", "--identify", "never", "-o", out}),
              HasSubstr("decode"));
  EXPECT_THAT(refused(2, {profile(), "--what", "lazy", "--sample", "99", "-o", out}),
              HasSubstr("the profile has no sample 99"));
  EXPECT_THAT(refused(3, {write_file("x.h5", "no profile"), "--what", "lazy", "-o", out}),
              HasSubstr("x.h5"));
  EXPECT_THAT(refused(3, {path("absent.json"), "--what", "sweep", "-o", out}),
              HasSubstr("absent.json"));
  EXPECT_FALSE(std::filesystem::exists(out));
  drawn({profile(), "--what", "blocks"}, "a.svg");
  EXPECT_THAT(refused(2, {profile(), "--what", "blocks", "-o", out}),
              HasSubstr("is there already; --force replaces it"));
}

TEST_F(Render, TheWindowRefusesPlacesThatAreNone) {
  EXPECT_THAT(refusal(2, {"view", profile(), "--screen", "cake"}),
              AllOf(HasSubstr("no screen 'cake'"), HasSubstr("overview")));
  EXPECT_THAT(refusal(2, {"view", profile(), "--at", "here"}), HasSubstr("here"));
}

TEST_F(Render, TheWindowClosesAtASignal) {
  const Finished closed =
      // --foreground: else it signals its process group too, and a second signal ends the program.
      run_program({"/usr/bin/env", "QT_QPA_PLATFORM=offscreen", "timeout", "--foreground",
                   "--preserve-status", "--kill-after=60", "10", kvatlas_program(), "view"});
  EXPECT_EQ(closed.status, 130);
  EXPECT_THAT(closed.err, HasSubstr("kvatlas: interrupted\n"));
}

TEST_F(Render, ADisplayOutOfReachIsSaidInOneSentence) {
  const Finished refused =
      run_program({"/usr/bin/env", "-u", "QT_QPA_PLATFORM", "-u", "WAYLAND_DISPLAY",
                   "DISPLAY=:4711", kvatlas_program(), "view"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, AllOf(StartsWith("kvatlas: no window can be opened on the display "
                                            "':4711': 'kvatlas render' draws"),
                                 EndsWith("a page without one\n")));
}

TEST_F(Render, TwoProfiles) {
  const auto second = path("second.h5");
  calibrate::testing_profile::write_profile(second, {.raised_layer = 1, .raised_by = 0.05});
  EXPECT_THAT(drawn({profile(), second, "--what", "difference"}, "a.csv"),
              HasSubstr("# Baseline: second.h5, model small"));
  EXPECT_THAT(refusal(2, {"report", profile(), second, "-o", path("r.html")}),
              HasSubstr("report takes one profile"));
}

TEST_F(Render, AProfileWithoutSamplesIsSaid) {
  const auto empty = path("empty.h5");
  calibrate::testing_profile::write_profile(empty, {.samples = 0});
  EXPECT_THAT(refused(2, {empty, "--what", "mass", "-o", path("a.png")}),
              HasSubstr("the profile has no samples yet"));
}

TEST_F(Render, ReportIsOnePage) {
  const auto page = path("r.html");
  const std::vector<std::string> words = {"report",
                                          profile(),
                                          document("simlayerkv", "--threshold", "0.7"),
                                          "-o",
                                          page,
                                          "--title",
                                          "A <b>bold</b> title"};
  const auto done = run_kvatlas(words);
  EXPECT_EQ(done.status, 0) << done.err;
  const auto html = content(page);
  EXPECT_THAT(html, AllOf(StartsWith("<!DOCTYPE html>\n<html lang=\"en\">"),
                          HasSubstr("A &lt;b&gt;bold&lt;/b&gt; title"), Not(HasSubstr("<b>bold")),
                          HasSubstr("prefers-color-scheme: dark"), HasSubstr("<h3>SimLayerKV</h3>"),
                          HasSubstr("threshold 0.7"), HasSubstr("<details class=\"table\">")));
  // Nothing is fetched, and only the page's own script runs; every image has words.
  EXPECT_THAT(html, AllOf(HasSubstr("default-src 'none'"), Not(HasSubstr("http://")),
                          Not(HasSubstr("https://")), Not(HasSubstr("alt=\"\""))));
  // What is missing is said: there is no sweep.
  EXPECT_THAT(html, HasSubstr("&#39;kvatlas calibrate lagkv&#39;"));
  EXPECT_THAT(refusal(2, words), HasSubstr("is there already; --force replaces it"));
  EXPECT_THAT(refusal(2, {"report", path("simlayerkv.json"), "-o", path("s.html")}),
              HasSubstr("needs a profile"));
}

}  // namespace
}  // namespace kvatlas
