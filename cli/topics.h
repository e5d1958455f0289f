// Pages of help that belong to no verb: `mslua help environment`, `mslua help exit-codes`, `mslua help last`.
#pragma once

#include <string>
#include <vector>

namespace mslua::cli {

struct TopicRow {
  std::string name;  // "OMP_NUM_THREADS", "75"
  std::string doc;   // one line, without a full stop
};

struct Topic {
  std::string name;  // "exit-codes"
  std::string doc;   // one line, begins in lower case, without a full stop
  std::vector<TopicRow> rows;
};

// All topics of `mslua help`, in the order in which it lists them.
const std::vector<Topic>& Topics();
// Null when there is no such topic.
const Topic* FindTopic(const std::string& name);
// The page of a topic: its rows, wrapped at 100 columns.
std::string TopicText(const Topic& topic);

}  // namespace mslua::cli
