// Learning-rate schedules: what a schedule is, and one with its settings, a number for each step that is evaluated
// between steps. Each schedule is a file of core/schedule.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "core/fields/limits.h"

namespace mslua {

struct Schedule;

// The values of a schedule's fields, by name. A field that is asked for is there: the reader has seen to it.
class ScheduleSettings {
 public:
  void Set(const std::string& name, std::vector<double> v) { values_[name] = std::move(v); }
  bool Has(const std::string& name) const { return values_.count(name) > 0; }
  double Number(const std::string& name) const { return values_.at(name)[0]; }
  int64_t Int(const std::string& name) const { return static_cast<int64_t>(Number(name)); }
  bool Flag(const std::string& name) const { return Number(name) != 0; }
  const std::vector<double>& List(const std::string& name) const { return values_.at(name); }

  // The schedule of the field of kind kRate.
  std::shared_ptr<const Schedule> inner;

 private:
  std::map<std::string, std::vector<double>> values_;
};

// An argument of the Lua function.
struct ScheduleField {
  enum class Kind { kNumber, kInteger, kBool, kNumbers, kIntegers, kRate /* a number or another schedule */ };
  std::string name;
  Kind kind = Kind::kNumber;
  std::string doc;
  Limits limits;                 // of the number, or of each number of a list
  std::vector<double> fallback;  // the default; empty: none
  bool optional = false;         // without a default it may be left out
  std::string unit;
};

struct ScheduleDef {
  explicit ScheduleDef(std::string function) : name(std::move(function)) {}

  std::string name;      // the Lua function: "cosine_decay_lr"
  std::string doc;       // the formula
  bool function = true;  // false: made by nn's optimizers alone
  std::vector<ScheduleField> fields;
  std::function<double(const ScheduleSettings&, int64_t step)> rate;  // steps count from 0
  std::function<double(const ScheduleSettings&)> highest;
  std::function<Status(const ScheduleSettings&)> check;  // conditions between fields; empty: none

  ScheduleDef& Doc(std::string v) {
    doc = std::move(v);
    return *this;
  }
  ScheduleDef& Field(ScheduleField v) {
    fields.push_back(std::move(v));
    return *this;
  }
  // Required numbers.
  ScheduleDef& Number(std::string field, Limits limits, std::string text) {
    return Field({std::move(field), ScheduleField::Kind::kNumber, std::move(text), limits, {}, false, ""});
  }
  ScheduleDef& Integer(std::string field, Limits limits, std::string text) {
    return Field({std::move(field), ScheduleField::Kind::kInteger, std::move(text), limits, {}, false, ""});
  }
  // With a default.
  ScheduleDef& Number(std::string field, double fallback, Limits limits, std::string text) {
    return Field({std::move(field), ScheduleField::Kind::kNumber, std::move(text), limits, {fallback}, false, ""});
  }
  ScheduleDef& Integer(std::string field, double fallback, Limits limits, std::string text) {
    return Field({std::move(field), ScheduleField::Kind::kInteger, std::move(text), limits, {fallback}, false, ""});
  }
  // The fields total_step and step_per_epoch = 1.
  ScheduleDef& Steps();
  ScheduleDef& Rate(std::function<double(const ScheduleSettings&, int64_t)> v) {
    rate = std::move(v);
    return *this;
  }
  ScheduleDef& Highest(std::function<double(const ScheduleSettings&)> v) {
    highest = std::move(v);
    return *this;
  }
  ScheduleDef& Highest(std::string field) {
    return Highest([field](const ScheduleSettings& s) { return s.Number(field); });
  }
  ScheduleDef& Check(std::function<Status(const ScheduleSettings&)> v) {
    check = std::move(v);
    return *this;
  }
};

// With the fields of Steps(): the epoch of a step. Where step_per_epoch is 1 an epoch is a step, and has no end; else
// the last of total_step steps stays.
int64_t EpochOf(const ScheduleSettings& s, int64_t step);
// From 0 to 1 over `decay_epoch` epochs, which by default are all.
double ShareOfEpochs(const ScheduleSettings& s, int64_t step);

// A schedule with its settings; by default a rate of 0.
struct Schedule {
  const ScheduleDef* def = nullptr;  // null: the constant
  ScheduleSettings settings;
  double constant = 0;

  static Schedule Constant(double rate) {
    Schedule s;
    s.constant = rate;
    return s;
  }
  double At(int64_t step) const { return def == nullptr ? constant : def->rate(settings, step); }
  double highest() const { return def == nullptr ? constant : def->highest(settings); }
  // Every condition on the numbers, by the user's names: kinds of values, limits, conditions between fields.
  Status Check() const;
};

}  // namespace mslua
