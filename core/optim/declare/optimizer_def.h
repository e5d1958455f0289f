// The definition of an optimizer: one value that holds everything the rest of mslua knows about it. From it follow the
// class in Lua with its defaults, checks and help, the reader of its settings, what ranks compare, the names of its
// state in checkpoints, and its operators apply_* (docs/howto/add_an_optimizer.md).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "core/fields/limits.h"
#include "core/op/attrs.h"
#include "core/op/op_def.h"
#include "core/optim/declare/operands.h"

namespace mslua {

// An argument of the Lua class. Numbers and booleans are settings of the update, under the names `settings`.
struct OptimizerField {
  enum class Kind {
    kParams,       // which parameters, or groups of them
    kRate,         // the learning rate: a number, a list, a schedule or a function
    kNumber,       // one setting
    kNumbers,      // as many settings as numbers in the list
    kBool,         // one setting
    kWeightDecay,  // may differ between groups of parameters
    kLossScale,    // what gradients are divided by
    kOptimizer,    // of a wrapper: the optimizer whose gradients it changes
    kFilter,       // of a wrapper: which parameters it concerns; default: those without any of `words` in their names
  };
  Kind kind = Kind::kNumber;
  std::string name;
  std::string doc;
  std::vector<std::string> settings;
  std::vector<double> fallback;  // the default, a number for each setting; of kBool 0 or 1; empty: it is required
  Limits limits;
  std::vector<std::string> words;
};

// A tensor that the optimizer keeps for each parameter.
struct StateDef {
  std::string operand;                                 // the name in the operator's formulas: "m"
  std::string name;                                    // checkpoints call it "<name>.<parameter>": "moment1"
  std::string init;                                    // the setting that holds its first value; empty: 0
  bool wide = false;                                   // f32 for a parameter of 16 bits; else the parameter's type
  std::function<Shape(const Shape& parameter)> shape;  // empty: the parameter's

  TensorType TypeFor(const TensorType& parameter) const;
};

// One form of the update: an operator over param, grad, the state tensors and scalars, and when it is used.
struct UpdateDef {
  using When = std::function<bool(const Attrs& settings, const Shape& parameter)>;
  using Body = std::function<std::vector<Value>(UpdateOperands& u)>;

  std::string op, doc;
  std::string of;  // another optimizer, whose first update this is; then nothing above is set
  std::vector<StateDef> states;
  // Of "lr", "weight_decay", "step" (how many updates there are with this one) and names of settings.
  std::vector<std::string> scalars;
  std::vector<std::string> attrs;  // names of settings
  // The operator may get a slice of the flat parameter, and adds over the ranks `group` that have the others.
  bool sums = false;
  bool means = false;       // and it divides by the number of `elements` of the whole
  bool elementwise = true;  // false without `sums`: the operator needs the whole parameter
  When when;                // empty: always
  Body body;
  // Of test runs: the parameter's shape, the range of all values, attributes.
  Shape sample_shape = {3, 5};
  double sample_low = 0.5, sample_high = 1.5;
  std::vector<Attrs> samples = {{}};

  // Of the parameter's shape, begins at 0, and f32 for a parameter of 16 bits, which lose means of squares.
  UpdateDef& State(std::string operand, std::string name) {
    states.push_back({std::move(operand), std::move(name), "", true, {}});
    return *this;
  }
  UpdateDef& State(StateDef v) {
    states.push_back(std::move(v));
    return *this;
  }
  UpdateDef& Scalars(std::vector<std::string> v) {
    scalars = std::move(v);
    return *this;
  }
  UpdateDef& Settings(std::vector<std::string> v) {
    attrs = std::move(v);
    return *this;
  }
  UpdateDef& Sums() {
    sums = true;
    return *this;
  }
  UpdateDef& Means() {
    sums = means = true;
    return *this;
  }
  UpdateDef& NeedsWhole() {
    elementwise = false;
    return *this;
  }
  UpdateDef& Used(When v) {
    when = std::move(v);
    return *this;
  }
  UpdateDef& Formula(Body v) {
    body = std::move(v);
    return *this;
  }
  UpdateDef& SampleShape(Shape v) {
    sample_shape = std::move(v);
    return *this;
  }
  UpdateDef& SampleRange(double low, double high) {
    sample_low = low;
    sample_high = high;
    return *this;
  }
  UpdateDef& Sample(Attrs v) {
    samples.push_back(std::move(v));
    return *this;
  }
};

// What may change a gradient before the update.
struct GradientCall {
  GraphBuilder& g;
  const Attrs& settings;
  double weight_decay;
  Value parameter, gradient;
  const std::function<Value()>& updates;  // how many updates were made before, i64
};

// What an update does to the rows of a table of embeddings that no index of the step names: rows of a parameter that
// the network reads by ops.gather along the first dimension alone (core/step/table_rows.h).
enum class UnnamedRows : uint8_t {
  kUpdated,  // they are updated as the others
  kSame,     // the update of a zero gradient changes nothing: to leave them out is a matter of time
  kLeft,     // they stay as they are, whatever the update of a zero gradient is
};

// The gradient after such a change, and the weight decay that is left for the update.
struct ChangedGradient {
  Value gradient, weight_decay;
};

struct OptimizerDef {
  OptimizerDef(std::string kind, std::string lua_class) : name(std::move(kind)), class_name(std::move(lua_class)) {}

  std::string name;        // "adam"
  std::string class_name;  // "Adam" of nn.Adam
  std::string doc;         // what it computes, with its source
  std::vector<OptimizerField> fields;
  std::vector<UpdateDef> updates;  // the first one whose `when` holds
  // Changes the gradient before the update; empty, or null where the settings ask for no change.
  std::function<absl::optional<ChangedGradient>(const GradientCall&)> gradient;
  // Empty: all rows of tables are updated.
  std::function<UnnamedRows(const Attrs& settings, double weight_decay)> unnamed_rows;
  std::function<Status(const Attrs& settings)> check;  // conditions between fields
  bool wraps = false;  // it changes the gradients of another optimizer: the result of its update is a gradient

  OptimizerDef& Doc(std::string v) {
    doc = std::move(v);
    return *this;
  }
  OptimizerDef& Params();
  // The learning rate; the second form is required.
  OptimizerDef& Rate(double fallback);
  OptimizerDef& Rate();
  OptimizerDef& Number(std::string field, double fallback, Limits limits, std::string doc);
  OptimizerDef& Number(std::string field, Limits limits, std::string doc);  // required
  OptimizerDef& Numbers(std::string field, std::vector<std::string> settings, std::vector<double> fallback,
                        Limits limits, std::string doc);
  OptimizerDef& Bool(std::string field, bool fallback, std::string doc, std::string setting = "");
  OptimizerDef& WeightDecay(std::string doc = "times the parameter is added to the gradient");
  OptimizerDef& LossScale();
  OptimizerDef& Wraps();  // the field optimizer
  OptimizerDef& Filter(std::string field, std::vector<std::string> words, std::string doc);
  OptimizerDef& Gradient(std::function<absl::optional<ChangedGradient>(const GradientCall&)> v) {
    gradient = std::move(v);
    return *this;
  }
  OptimizerDef& Unnamed(std::function<UnnamedRows(const Attrs&, double)> v) {
    unnamed_rows = std::move(v);
    return *this;
  }
  OptimizerDef& Check(std::function<Status(const Attrs&)> v) {
    check = std::move(v);
    return *this;
  }
  // Adds a form of the update. The reference holds until the next one is added.
  UpdateDef& Update(std::string op, std::string doc);
  // The update of another optimizer, for which this one has all settings.
  void UpdateOf(std::string optimizer);

  // The field that has a setting; null: none.
  const OptimizerField* FieldOf(absl::string_view setting) const;
  // The default of a setting, as its attribute; of a required one 0.
  AttrValue Default(absl::string_view setting) const;
  // The form of the update for a parameter.
  const UpdateDef& UpdateFor(const Attrs& settings, const Shape& parameter) const;
};

// The operators of an optimizer's updates.
std::vector<OpDef> UpdateOperators(const OptimizerDef& def);

// All optimizers, with the updates that they take from one another; sorted by name.
std::vector<OptimizerDef> Linked(std::vector<OptimizerDef> all);

}  // namespace mslua
