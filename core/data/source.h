// Sources of samples. A file of core/data/sources declares one: its name in Lua, its fields, how it is opened, how
// `mslua data` recognises it, and how its stand-in is made. The folder is the list: Lua classes, help, `mslua data` and
// messages follow from it.
//
//   Source train("mnist", {{"dataset_dir", path}, {"usage", "test"}});
//   ASSIGN_OR_RETURN(const auto reader, OpenSource(train));
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/shape.h"
#include "core/base/status.h"
#include "core/data/reader.h"
#include "core/data/sample_code.h"
#include "core/fields/limits.h"

namespace mslua::data {

// ---- Values of fields ----------------------------------------------------------------------------------------------

// An array in memory; sample i is row i.
struct NamedArray {
  std::string name;
  TensorType type;                   // rank >= 1
  std::shared_ptr<const void> data;  // dense, row-major, type.bytes() bytes
};

// Samples that foreign code makes, a Lua function for one. Called on the thread that calls Pipeline::Open and
// Loader::Next only, never on a worker.
class Generator {
 public:
  // A column each; memory stays the generator's, valid until its next call.
  using Row = std::vector<TensorView>;

  virtual ~Generator() = default;
  // Samples there are. -1: a sequence whose end is found by running it. Where it has no random access, Pipeline::Open
  // runs it once to count them, up to what the operations use.
  virtual int64_t size() const = 0;
  // True: Get works for any i in [0, size()). False: Rewind and Next do.
  virtual bool random_access() const = 0;
  virtual Status Get(int64_t i, Row* row);
  // Starts the sequence again; Restart calls it.
  virtual Status Rewind();
  // Starts the sequence at the start of each epoch. Who reads it compares `starts` with what it was then: another
  // reader may have started it again.
  Status Restart() {
    ++starts_;
    return Rewind();
  }
  int64_t starts() const { return starts_; }
  // False at the end of the sequence.
  virtual StatusOr<bool> Next(Row* row);
  // Called while a sequence is run to count its samples, with how many there are so far.
  virtual void Counted(int64_t /*samples*/) {}
  // Who speaks in a message: "recipe.lua:12: GeneratorDataset", where its code is and what it was given to.
  virtual std::string name() const { return "GeneratorDataset"; }
  // Equal where the code is the same.
  virtual std::string identity() const { return ""; }

 private:
  int64_t starts_ = 0;
};

using FieldValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<double>,
                                std::vector<std::string>, std::map<std::string, std::string>, std::vector<NamedArray>,
                                std::shared_ptr<Generator>, std::shared_ptr<const SampleCode>>;
using FieldMap = std::map<std::string, FieldValue>;

// What a field takes; the alternative of FieldValue that holds it.
enum class FieldType {
  kBool,
  kInt,
  kNumber,     // double
  kString,     //
  kNumbers,    // a number or a list of numbers; held as a list
  kInts,       // the same of integers; held as numbers
  kStrings,    // a list
  kPaths,      // a string or a list of strings; held as a list
  kTexts,      // a table from names to texts; numbers become texts
  kArrays,     // arrays in memory
  kGenerator,  // a function that makes samples: a Generator, or SampleCode
};

struct FieldDef {
  std::string name;
  FieldType type = FieldType::kString;
  std::string doc = {};                   // one sentence for help
  FieldValue fallback = {};               // monostate: none
  bool required = false;                  //
  Limits limits = {};                     // of a number, or of each number of a list
  std::vector<std::string> choices = {};  // legal values of a string; empty: any
  std::string unit = {};                  // "tokens"
  bool path = false;                      // the file or folder that the source reads; must not be ""
};

// Checked values of a source's fields, defaults filled in. Asking for a field with another type than its definition's
// ends the process.
class Fields {
 public:
  bool Has(const std::string& name) const { return values_.count(name) != 0; }
  bool Bool(const std::string& name) const { return Get<bool>(name); }
  int64_t Int(const std::string& name) const { return Get<int64_t>(name); }
  double Number(const std::string& name) const { return Get<double>(name); }
  const std::vector<double>& Numbers(const std::string& name) const { return Get<std::vector<double>>(name); }
  // Without a value: "", an empty list.
  std::string String(const std::string& name) const { return Has(name) ? Get<std::string>(name) : std::string(); }
  std::vector<std::string> Strings(const std::string& name) const {
    return Has(name) ? Get<std::vector<std::string>>(name) : std::vector<std::string>();
  }
  std::map<std::string, std::string> Texts(const std::string& name) const {
    return Has(name) ? Get<std::map<std::string, std::string>>(name) : std::map<std::string, std::string>();
  }
  const std::vector<NamedArray>& Arrays(const std::string& name) const { return Get<std::vector<NamedArray>>(name); }
  // Of a field kGenerator that holds one.
  const std::shared_ptr<const SampleCode>& Code(const std::string& name) const {
    return Get<std::shared_ptr<const SampleCode>>(name);
  }

 private:
  friend StatusOr<Fields> CheckFields(const std::string& name, const std::vector<FieldDef>& defs,
                                      const FieldMap& values);
  template <class T>
  const T& Get(const std::string& name) const {
    return std::get<T>(values_.at(name));
  }
  FieldMap values_;
};

// "a, b or c"
std::string JoinOr(const std::vector<std::string>& words);

// ---- Declarations --------------------------------------------------------------------------------------------------

struct MakeOptions {
  int64_t train = 10000, test = 2000;  // samples; text: characters of train and test together
  uint64_t seed = 1;
};

struct SourceDef {
  SourceDef(std::string kind_name, std::string class_of_lua)
      : kind(std::move(kind_name)), class_name(std::move(class_of_lua)) {}

  std::string kind;              // "mnist", the name of its file; for `mslua data verify mnist`
  std::string class_name;        // "MnistDataset"
  std::string title;             // "MNIST", in comparisons of ranks
  std::string doc;               // help: what is read, and the columns with their types
  std::vector<FieldDef> fields;  // in the order of positional arguments
  bool pictures = false;         // the first column is one of pictures, u8 [h, w, channels]
  // Errors name the path, what was expected there, where to get it and, where there is one, the `mslua data make` that
  // writes a stand-in. NOT_FOUND: the files, or those of this usage, are absent.
  std::function<StatusOr<std::unique_ptr<Reader>>(const Fields& fields)> open;

  // For `mslua data ls` and `verify`. Whether the path may hold it; null: it lies in no file.
  std::function<bool(const std::string& path)> fits;
  std::string expects;    // "the files of MNIST", for the message about a path that holds nothing
  int order = 0;          // sources are tried in this order: 0 by fixed names, 1 by ending, 2 and above any file
  FieldMap inspect = {};  // fields beside path and usage
  // Further fields, which follow from what is at the path; null: none.
  std::function<FieldMap(const std::string& path)> inspect_at;

  // For `mslua data make`: writes a stand-in into the folder `path`; null: there is none.
  std::function<Status(const std::string& path, const MakeOptions& options)> make;

  const FieldDef* Find(const std::string& name) const;
  const FieldDef* PathField() const;  // null: it lies in no file
};

// Every source, sorted by kind.
const std::vector<SourceDef>& Sources();
// The one of this kind; INVALID_ARGUMENT with the nearest kind when there is none.
StatusOr<const SourceDef*> FindSource(const std::string& kind);

// The values with defaults for those that are absent. INVALID_ARGUMENT "MnistDataset: usage: expected ..., got ..." for
// an unknown field, a missing one, a wrong type or a value out of range.
StatusOr<Fields> CheckFields(const std::string& name, const std::vector<FieldDef>& defs, const FieldMap& values);

class Dataset;

// A description of a source; nothing is checked or opened before OpenSource.
class Source {
 public:
  using OpenFunction = StatusOr<std::unique_ptr<Reader>> (*)(const Source& source);

  // `parts`: the datasets that a source of core/data/derived.h is made of, which `open` opens.
  Source(std::string kind, FieldMap fields, std::vector<std::shared_ptr<const Dataset>> parts = {},
         OpenFunction open = nullptr)
      : kind_(std::move(kind)), fields_(std::move(fields)), parts_(std::move(parts)), open_(open) {}

  const std::string& kind() const { return kind_; }
  const FieldMap& fields() const { return fields_; }
  const std::vector<std::shared_ptr<const Dataset>>& parts() const { return parts_; }
  OpenFunction open() const { return open_; }  // null: the declaration of its kind opens it
  // What makes the samples; null: a reader does.
  std::shared_ptr<Generator> generator() const;

 private:
  std::string kind_;
  FieldMap fields_;
  std::vector<std::shared_ptr<const Dataset>> parts_;
  OpenFunction open_ = nullptr;
};

// Not for a source with a generator.
StatusOr<std::unique_ptr<Reader>> OpenSource(const Source& source);

}  // namespace mslua::data
