// What holds for every definition of this folder: names that fit together, and operators that exist.
#include <limits>
#include <set>

#include "core/op/registry.h"
#include "core/optim/registry.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

TEST(Optimizers, NamesAreUniqueAndSorted) {
  std::set<std::string> kinds, classes;
  for (const OptimizerDef& def : Optimizers()) {
    EXPECT_TRUE(kinds.empty() || *kinds.rbegin() < def.name) << def.name;
    EXPECT_TRUE(kinds.insert(def.name).second) << def.name;
    EXPECT_TRUE(classes.insert(def.class_name).second) << def.class_name;
    EXPECT_EQ(FindOptimizer(def.name), &def);
    EXPECT_FALSE(def.doc.empty()) << def.name;
    std::set<std::string> settings;
    for (const OptimizerField& field : def.fields) {
      EXPECT_FALSE(field.doc.empty()) << def.name << " " << field.name;
      for (const std::string& s : field.settings) EXPECT_TRUE(settings.insert(s).second) << def.name << " " << s;
      if (!field.fallback.empty() && !field.settings.empty()) {
        EXPECT_EQ(field.fallback.size(), field.settings.size()) << def.name << " " << field.name;
      }
      for (double v : field.fallback) EXPECT_EQ(LimitProblem(field.limits, v), "") << def.name << " " << field.name;
    }
  }
}

TEST(Optimizers, UpdatesAskForFieldsThatExist) {
  for (const OptimizerDef& def : Optimizers()) {
    EXPECT_FALSE(def.updates.empty()) << def.name;
    for (const UpdateDef& update : def.updates) {
      EXPECT_NE(Operators().Find(update.op), nullptr) << def.name << " " << update.op;
      for (const std::string& setting : update.attrs) EXPECT_NE(def.FieldOf(setting), nullptr) << setting;
      for (const std::string& scalar : update.scalars) {
        const bool given = scalar == "lr" || scalar == "weight_decay" || scalar == "step";
        EXPECT_TRUE(given || def.FieldOf(scalar) != nullptr) << def.name << " " << scalar;
      }
      for (const StateDef& state : update.states) {
        EXPECT_EQ(state.name.find('.'), std::string::npos) << state.name;
        EXPECT_TRUE(state.init.empty() || def.FieldOf(state.init) != nullptr) << def.name << " " << state.init;
      }
    }
  }
}

TEST(Optimizers, StateHasTheNamesOfOlderCheckpoints) {
  const auto names = [](const char* kind) {
    std::vector<std::string> list;
    for (const StateDef& s : FindOptimizer(kind)->updates.back().states) list.push_back(s.name);
    return list;
  };
  EXPECT_EQ(names("sgd"), (std::vector<std::string>{"moments"}));
  EXPECT_EQ(names("momentum"), (std::vector<std::string>{"moments"}));
  for (const char* kind : {"adam", "adam_weight_decay", "adamw", "lamb"})
    EXPECT_EQ(names(kind), (std::vector<std::string>{"moment1", "moment2"})) << kind;
}

TEST(Limits, SayWhatWasExpected) {
  EXPECT_EQ(LimitProblem(AtLeast(0), -1), "expected 0 or more");
  EXPECT_EQ(LimitProblem(Above(0), 0), "expected more than 0");
  EXPECT_EQ(LimitProblem(Fraction(), 1), "expected at least 0 and below 1");
  EXPECT_EQ(LimitProblem(AtMost(0), 1), "expected at most 0");
  EXPECT_EQ(LimitProblem(Between(0, 1), 1), "");
  EXPECT_EQ(LimitProblem({}, std::numeric_limits<double>::quiet_NaN()), "expected a number");
}

}  // namespace
}  // namespace mslua
