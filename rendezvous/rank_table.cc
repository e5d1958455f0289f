#include "rendezvous/rank_table.h"

#include <map>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/json/json.h"

namespace mslua {
namespace {

constexpr int kMaxRanks = 65536;

Status Wrong(const std::string& where, const std::string& expected, const std::string& got) {
  return absl::InvalidArgumentError(absl::StrCat("rank table: ", where, ": expected ", expected, ", got ", got));
}

StatusOr<const Json*> Member(const Json& object, const std::string& where, const char* key) {
  if (!object.is_object()) return Wrong(where, "an object", ShowJson(object));
  const auto it = object.find(key);
  if (it == object.end()) return Wrong(where, absl::StrCat("a key \"", key, "\""), "none");
  return &*it;
}

StatusOr<std::string> Text(const Json& object, const std::string& where, const char* key) {
  ASSIGN_OR_RETURN(const Json* value, Member(object, where, key));
  if (!value->is_string()) return Wrong(absl::StrCat(where, ".", key), "a string", ShowJson(*value));
  return value->get<std::string>();
}

// Numbers are written as strings; plain ones are understood too.
StatusOr<int> Number(const Json& object, const std::string& where, const char* key) {
  ASSIGN_OR_RETURN(const Json* value, Member(object, where, key));
  int number = -1;
  if (value->is_string() ? absl::SimpleAtoi(value->get<std::string>(), &number)
                         : value->is_number_unsigned() && value->get<uint64_t>() < kMaxRanks) {
    if (value->is_number_unsigned()) number = static_cast<int>(value->get<uint64_t>());
    if (number >= 0 && number < kMaxRanks) return number;
  }
  return Wrong(absl::StrCat(where, ".", key), absl::StrCat("a number from 0 to ", kMaxRanks - 1, " as a string"),
               ShowJson(*value));
}

}  // namespace

StatusOr<RankTable> ParseRankTable(absl::string_view json) {
  const auto parsed = ParseJson(json);
  if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrCat("rank table: ", parsed.status().message()));
  const Json& root = *parsed;
  ASSIGN_OR_RETURN(const std::string version, Text(root, "the file", "version"));
  if (version != "1.0") return Wrong("version", "\"1.0\"", absl::StrCat("\"", version, "\""));
  ASSIGN_OR_RETURN(const std::string status, Text(root, "the file", "status"));
  if (status != "completed") return Wrong("status", "\"completed\"", absl::StrCat("\"", status, "\""));
  ASSIGN_OR_RETURN(const int server_count, Number(root, "the file", "server_count"));
  ASSIGN_OR_RETURN(const Json* servers, Member(root, "the file", "server_list"));
  if (!servers->is_array()) return Wrong("server_list", "an array", ShowJson(*servers));
  if (static_cast<int>(servers->size()) != server_count) {
    return Wrong("server_count", absl::StrCat(servers->size(), ", the length of server_list"),
                 absl::StrCat(server_count));
  }
  std::map<int, RankTable::Device> by_rank;
  std::set<std::pair<std::string, int>> devices;
  for (size_t s = 0; s < servers->size(); ++s) {
    const Json& server = (*servers)[s];
    const std::string where = absl::StrCat("server_list[", s, "]");
    ASSIGN_OR_RETURN(const std::string server_id, Text(server, where, "server_id"));
    ASSIGN_OR_RETURN(const Json* list, Member(server, where, "device"));
    if (!list->is_array()) return Wrong(absl::StrCat(where, ".device"), "an array", ShowJson(*list));
    for (size_t d = 0; d < list->size(); ++d) {
      const Json& entry = (*list)[d];
      const std::string here = absl::StrCat(where, ".device[", d, "]");
      RankTable::Device device;
      device.server_id = server_id;
      ASSIGN_OR_RETURN(device.device_id, Number(entry, here, "device_id"));
      ASSIGN_OR_RETURN(device.device_ip, Text(entry, here, "device_ip"));
      ASSIGN_OR_RETURN(const int rank, Number(entry, here, "rank_id"));
      if (!devices.emplace(server_id, device.device_id).second) {
        return Wrong(absl::StrCat(here, ".device_id"), "each device of a server once",
                     absl::StrCat(device.device_id, " of ", server_id, " twice"));
      }
      if (!by_rank.emplace(rank, std::move(device)).second) {
        return Wrong(absl::StrCat(here, ".rank_id"), "each rank once", absl::StrCat(rank, " twice"));
      }
    }
  }
  if (by_rank.empty()) return Wrong("server_list", "at least one device", "none");
  RankTable table;
  for (auto& [rank, device] : by_rank) {
    if (rank != static_cast<int>(table.ranks.size())) {
      return Wrong("rank_id", absl::StrCat("ranks 0 to ", by_rank.size() - 1),
                   absl::StrCat("no rank ", table.ranks.size()));
    }
    table.ranks.push_back(std::move(device));
  }
  return table;
}

}  // namespace mslua
