// Settings of a class that is chosen by name.
#include "models/settings/any_settings.h"

#include <doctest/doctest.h>

#include "tests/support/message.h"

using namespace orrery;
using orrery::testing::expect_error;

namespace {

struct Curve {
  double slope = 1;
  template <class V>
  void visit(V& v) {
    v("slope", slope, "of the line", between(-2, 2));
  }
};
struct Grid {
  int64_t rows = 3;
  template <class V>
  void visit(V& v) {
    v("rows", rows, "lines", between(1, 9));
  }
};
struct Drawing {  // its own settings, and those of a class chosen by name
  std::string name = "drawing";
  AnySettings chosen{Curve()};
  template <class V>
  void visit(V& v) {
    v("name", name, "of the file");
    chosen.visit(v);
  }
};

}  // namespace

TEST_CASE("any settings: a copy has its own settings, with equal values") {
  const AnySettings first{Curve()};
  AnySettings second = first;
  second.as<Curve>().slope = 2;
  CHECK(first.as<Curve>().slope == 1);
  CHECK(second.as<Curve>().slope == 2);
  second = AnySettings(Grid());
  CHECK(second.as<Grid>().rows == 3);
  expect_error([&] { second.as<Curve>(); }).names("settings").value("class");
}

TEST_CASE("any settings: their names are listed among those of the struct that contains them") {
  Drawing drawing;
  set_setting(drawing, "draw", "slope", "0.5");
  CHECK(drawing.chosen.as<Curve>().slope == 0.5);
  CHECK(list_settings(drawing) == Assignments{{"name", "drawing"}, {"slope", "0.5"}});
  expect_error([&] { set_setting(drawing, "draw", "slope", "3"); }).names("slope").value(3).offers(2);
  expect_error([&] { set_setting(drawing, "draw", "slpe", "1"); }).value("slpe").offers("slope");
  drawing.chosen = AnySettings(Grid());
  CHECK(list_settings(drawing) == Assignments{{"name", "drawing"}, {"rows", "3"}});
}
