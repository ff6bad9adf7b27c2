// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/sidecar.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"
#include "viewer/models/link.hpp"

namespace kvatlas::viewer {
namespace {

using testing::HasSubstr;
using testing_support::error_of;

const Place kPlace{"maps",
                   3,
                   12,
                   5,
                   120,
                   17,
                   std::array<std::int64_t, 4>{1, 2, 30, 40},
                   true,
                   std::array<std::int64_t, 2>{100, 201},
                   "not lazy, sink>0.5"};

TEST(Link, RoundTrip) {
  for (const Place& place : {kPlace, Place{}, Place{"la zy&", -1, 0, 0, 0, 0, {}, false}}) {
    const Link link{"/data/with space/ü#.h5", place};
    const Link back = parse_link(link_text(link));
    EXPECT_EQ(back.file, link.file);
    EXPECT_EQ(back.place, place);
  }
  EXPECT_EQ(link_text({"/p.h5", {"lazy", -1, 12, 3, -1, -1, {}, false}}),
            "kvatlas:/p.h5#screen=lazy&at=L12.H3");
}

TEST(Link, SaysWhatIsWrong) {
  EXPECT_THAT(error_of([] { parse_link("http://x"); }), HasSubstr("begins with 'kvatlas:'"));
  EXPECT_THAT(error_of([] { parse_link("kvatlas:p#at=12"); }), HasSubstr("at=L12.H3"));
  EXPECT_THAT(error_of([] { parse_link("kvatlas:p#q=x"); }), HasSubstr("'q=x'"));
  EXPECT_THAT(error_of([] { parse_link("kvatlas:p#q=-3"); }), HasSubstr("whole number"));
  EXPECT_THAT(error_of([] { parse_link("kvatlas:p%zz"); }), HasSubstr("'%zz'"));
  EXPECT_THAT(error_of([] { parse_link("kvatlas:p%00"); }), HasSubstr("hexadecimal"));
  EXPECT_THAT(error_of([] { parse_link(std::string("kvatlas:p\0q", 11)); }),
              HasSubstr("zero byte"));
  EXPECT_THAT(error_of([] { parse_link("kvatlas:p#screen=%ff"); }), HasSubstr("of a screen"));
  EXPECT_THAT(error_of([] { parse_link("kvatlas:p#region=1,2"); }), HasSubstr("4 numbers"));
  EXPECT_THAT(error_of([] { parse_link("kvatlas:p#tokens=7,7"); }), HasSubstr("lesser"));
  EXPECT_THAT(error_of([] { parse_link("kvatlas:p#filter=hazy"); }), HasSubstr("no word 'hazy'"));
  EXPECT_EQ(parse_link("kvatlas:p#new=1&screen=lazy").place.screen, "lazy");  // newer parts
}

TEST(Sidecar, RoundTripBesideTheProfile) {
  const testing_support::TemporaryFolder folder;
  const auto path = sidecar_path(folder.path() / "p.h5");
  EXPECT_EQ(path.filename(), "p.h5.view.json");
  EXPECT_EQ(read_sidecar(path), Sidecar{});
  const Sidecar sidecar{{{kPlace, "the needle"}, {Place{}, ""}}, {{kPlace, "why? \"so\"\n"}}};
  write_sidecar(sidecar, path);
  EXPECT_EQ(read_sidecar(path), sidecar);
  write_sidecar({}, path);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Sidecar, RefusesWhatIsNone) {
  const testing_support::TemporaryFolder folder;
  const auto refusal = [&](const std::string& text) {
    const auto path = folder.write("p.view.json", text);
    return error_of([&] { read_sidecar(path); });
  };
  EXPECT_THAT(refusal("{"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(std::string(1 << 20, '[')), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("not a file of pins and notes"));
  EXPECT_THAT(refusal(R"({"schema":"kvatlas.view/2"})"), HasSubstr("does not know"));
  EXPECT_THAT(refusal(R"({"schema":"kvatlas.view/1","pins":3})"), HasSubstr("'pins'"));
  EXPECT_THAT(refusal(R"({"schema":"kvatlas.view/1","pins":[3]})"), HasSubstr("JSON object"));
  EXPECT_THAT(refusal(R"({"schema":"kvatlas.view/1","pins":[{"at":[1,-2]}]})"),
              HasSubstr("whole number"));
  EXPECT_THAT(refusal(R"({"schema":"kvatlas.view/1","pins":[{"at":[1,[[2]]]}]})"),
              HasSubstr("'at' is 'array'"));
  EXPECT_THAT(refusal(R"({"schema":"kvatlas.view/1","pins":[{"at":[1,1e300]}]})"),
              HasSubstr("whole number"));
  EXPECT_THAT(refusal(R"({"schema":"kvatlas.view/1","pins":[{"at":[1,2],"tokens":[9,2]}]})"),
              HasSubstr("'tokens'"));
  EXPECT_THAT(refusal(R"({"schema":"kvatlas.view/1","notes":[{"at":[1,2],"filter":"not"}]})"),
              HasSubstr("ends with 'not'"));
  EXPECT_EQ(refusal(R"({"schema":"kvatlas.view/1.3","pins":[{"at":[1,2],"new":1}]})"), "");
}

}  // namespace
}  // namespace kvatlas::viewer
