// Code of users that makes or changes samples on the loader's threads, such as a file of Lua. Each thread has a
// function of its own, so that the code needs no lock; what it gives depends on its arguments alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/shape.h"
#include "core/base/status.h"

namespace mslua::data {

// A call's arguments: tensors of a sample, or the number of the sample to make.
struct CodeArguments {
  std::vector<TensorView> columns;
  int64_t index = -1;   // of the sample, from 0; -1: the code gets columns
  uint64_t key = 0;     // of the random numbers that the code draws
  bool frozen = false;  // the result is used in every epoch: random numbers are an error
};

// The function of one thread.
class SampleFunction {
 public:
  virtual ~SampleFunction() = default;
  // Samples there are, where the code says so; else -1.
  virtual int64_t length() const = 0;
  // A column each; the memory stays the function's, valid until its next call.
  virtual Status Call(const CodeArguments& arguments, std::vector<TensorView>* results) = 0;
};

// What functions are made of. Immutable; any thread may call.
class SampleCode {
 public:
  virtual ~SampleCode() = default;
  // A function for the calling thread.
  virtual StatusOr<std::unique_ptr<SampleFunction>> Start() const = 0;
  // "augment.lua", for messages.
  virtual std::string name() const = 0;
  // Which code it is, as bytes: its text and arguments.
  virtual std::string identity() const = 0;
  // Where a call that does not come back is: "augment.lua:7". Takes seconds.
  virtual std::string Locate(const CodeArguments& arguments) const = 0;
  // Seconds after which a call counts as one that never returns.
  virtual double limit_seconds() const = 0;
};

// The functions of a thread, and what another thread may ask about the call that runs.
class CodeCalls {
 public:
  // Calls the thread's function of `code`, which is made on the first call. `where`: the sample, for errors.
  Status Call(const std::shared_ptr<const SampleCode>& code, CodeArguments arguments, const std::string& where,
              std::vector<TensorView>* results);
  // The thread's function of `code`.
  StatusOr<SampleFunction*> Function(const std::shared_ptr<const SampleCode>& code);

  // From any thread. The error of a call that has taken longer than its limit; else OK. Takes seconds where it is one.
  Status Overdue() const;

  // Runs body on a thread of its own. When a call of it takes longer than its limit, the thread is left alone and the
  // error of Overdue is the result. What `body` holds must not belong to the caller's frame.
  static Status RunWatched(std::function<Status(CodeCalls* calls)> body);

 private:
  absl::flat_hash_map<const SampleCode*, std::unique_ptr<SampleFunction>> functions_;
  mutable std::mutex mutex_;  // of what follows
  std::shared_ptr<const SampleCode> running_;
  std::chrono::steady_clock::time_point since_;
  CodeArguments arguments_;
  std::string where_;
};

}  // namespace mslua::data
