// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/selection.hpp"

#include <gtest/gtest.h>

namespace kvatlas::viewer {
namespace {

SelectionBounds two_samples() { return {4, 8, {300, 200}}; }

TEST(SelectionModel, BringsAllToWhatTheProfileHas) {
  SelectionModel model;
  model.reset({}, two_samples());
  Selection wanted;
  wanted.sample = 7;
  wanted.layer = 9;
  wanted.head = -3;
  wanted.query = 299;
  wanted.key = 200;
  wanted.region = TokenRectangle{150, 10, 100, 20};
  wanted.tokens = {50, 250};
  model.set(wanted);
  Selection nearest;
  nearest.sample = 1;
  nearest.layer = 3;
  nearest.query = nearest.key = 199;
  nearest.region = TokenRectangle{150, 10, 50, 20};
  nearest.tokens = {50, 200};
  EXPECT_EQ(model.current(), nearest);
  model.back();
  EXPECT_EQ(model.current(), Selection{});
  model.forward();
  EXPECT_EQ(model.current(), nearest);
}

TEST(SelectionModel, DropsPartsBeyondTheSample) {
  SelectionModel model;
  Selection wanted;
  wanted.region = TokenRectangle{250, 10, 10, 10};
  wanted.tokens = {200, 300};
  model.reset(wanted, two_samples());
  EXPECT_EQ(model.current(), wanted);
  wanted.sample = 1;
  model.set(wanted);
  EXPECT_EQ(model.current().sample, 1U);
  EXPECT_FALSE(model.current().region);
  EXPECT_FALSE(model.current().tokens);
}

TEST(SelectionModel, NothingChosenStaysSo) {
  SelectionModel model;
  model.reset({}, two_samples());
  Selection wanted;
  wanted.sample = 1;
  model.set(wanted);
  EXPECT_EQ(model.current().query, -1);
  EXPECT_EQ(model.current().key, -1);
  model.reset({}, {});  // a profile without samples
  wanted.query = wanted.key = 5;
  model.set(wanted);
  EXPECT_EQ(model.current(), Selection{});
}

}  // namespace
}  // namespace kvatlas::viewer
