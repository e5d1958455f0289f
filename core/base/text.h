// Text for people: how far two names are apart, what a mistyped one was meant to be, and lists and counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mslua {

// The number of edits that turn `a` into `b`: insert, delete or replace a byte, swap two neighbours
// (optimal string alignment). O(a.size() * b.size()) time.
int EditDistance(std::string_view a, std::string_view b);

// The candidate nearest to `name`, upper and lower case taken as equal. A candidate that begins with `name`, of 3 bytes
// or more, is as near as one that differs in a letter. Of equally near ones: one in the same case, then one that begins
// with more of `name`, then one that `name` begins with, then one with fewer edits, then the first.
// Empty when none is near: more edits than a third of the longer name (at least one), or `name` over 64 bytes.
std::string Closest(std::string_view name, const std::vector<std::string>& candidates);

// " (did you mean 'epochs'?)" for 'epohcs', ready to end a message; empty when no candidate is near.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates);

// "1 tensor", "2 tensors", of a noun whose plural ends in s.
std::string Counted(int64_t n, std::string_view noun);

// "a, b and 3 more": at most `most` of the names.
std::string SomeOf(const std::vector<std::string>& names, size_t most);

}  // namespace mslua
