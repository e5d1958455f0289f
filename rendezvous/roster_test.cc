#include "rendezvous/roster.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using Kind = Roster::Decision::Kind;

MonotonicTime At(double seconds) { return MonotonicTime(absl::Seconds(seconds)); }
Status Killed(int rank) { return WithCause(absl::UnavailableError("it was killed"), {rank, kExitRankCrashed}); }
Status Mistake() { return WithCause(absl::AbortedError("device_num is 4"), {0, kExitUsage}); }

RosterOptions Recovering(int workers) {
  RosterOptions options;
  options.workers = workers;
  options.recover = true;
  options.replace_after = absl::Seconds(5);
  options.timeout = absl::Seconds(60);
  return options;
}

// Adds workers of these ids, whose keys are `first`, first + 1, ...
void AddAll(Roster& roster, const std::vector<std::string>& ids, int64_t first, double seconds) {
  for (const std::string& id : ids) {
    ASSERT_EQ(roster.Refusal(id), "") << id;
    roster.Add({first++, id, "host"}, 0, At(seconds));
  }
}

// The worker tells of the beginning, and of a turn after it.
void MakeTurns(Roster& roster, int64_t key) {
  const int64_t before = std::max<int64_t>(roster.Find(key)->turn, 0);
  roster.Progress(key, before + 1);
  roster.Progress(key, before + 2);
}

std::string RanksOf(const Roster& roster) {
  std::string text;
  for (const int64_t key : roster.by_rank()) absl::StrAppend(&text, roster.Find(key)->id, " ");
  return text;
}

TEST(Roster, NumbersAreRanksAndNamesFillTheGaps) {
  Roster roster(Recovering(4), At(0));
  AddAll(roster, {"w10", "2", "w9"}, 1, 0);
  EXPECT_EQ(roster.Look(At(1)).kind, Kind::kNothing);
  AddAll(roster, {"0"}, 9, 1);
  EXPECT_EQ(roster.Look(At(1)).kind, Kind::kWelcome);
  EXPECT_EQ(RanksOf(roster), "0 w9 2 w10 ");
  EXPECT_TRUE(absl::StrContains(roster.Refusal("7"), "complete with 4 workers"));
}

TEST(Roster, WithoutRecoveryALossEndsTheJob) {
  RosterOptions options = Recovering(2);
  options.recover = false;
  Roster roster(options, At(0));
  AddAll(roster, {"0", "1"}, 1, 0);
  EXPECT_EQ(roster.Look(At(0)).kind, Kind::kWelcome);
  EXPECT_EQ(roster.Lose(1, Killed(0), At(1)).kind, Kind::kEnd);
  EXPECT_EQ(roster.phase(), Roster::Phase::kOver);
}

TEST(Roster, TheJobWaitsForWhoIsGone) {
  Roster roster(Recovering(2), At(0));
  AddAll(roster, {"0", "1"}, 1, 0);
  roster.Look(At(0));
  EXPECT_EQ(roster.Lose(2, Killed(1), At(1)).kind, Kind::kRegroup);
  EXPECT_EQ(roster.epoch(), 2);
  AddAll(roster, {"0"}, 3, 1);
  EXPECT_EQ(roster.Look(At(50)).kind, Kind::kNothing);  // it may not become smaller
  const auto end = roster.Look(At(62));
  EXPECT_EQ(end.kind, Kind::kEnd);
  EXPECT_TRUE(absl::StrContains(end.cause.message(), "only 1 of 2 workers came within 1m; missing: MS_NODE_ID 1"));
}

TEST(Roster, ASpareTakesThePlaceAfterAWhile) {
  RosterOptions options = Recovering(2);
  options.spares = 1;
  Roster roster(options, At(0));
  AddAll(roster, {"0", "1"}, 1, 0);
  roster.Look(At(0));
  AddAll(roster, {"2"}, 3, 1);
  EXPECT_EQ(roster.Find(3)->rank, -1);
  EXPECT_EQ(roster.Look(At(9)).kind, Kind::kNothing);  // the job does not grow
  EXPECT_EQ(roster.Lose(3, Killed(-1), At(9)).kind, Kind::kNothing);
  AddAll(roster, {"2"}, 4, 9);
  EXPECT_EQ(roster.Lose(2, Killed(1), At(10)).kind, Kind::kRegroup);
  AddAll(roster, {"2", "0"}, 5, 10);
  EXPECT_EQ(roster.Look(At(14.9)).kind, Kind::kNothing);
  EXPECT_EQ(roster.Look(At(15)).kind, Kind::kWelcome);
  EXPECT_EQ(RanksOf(roster), "0 2 ");
}

TEST(Roster, ALostWorkerIsMissedThoughASpareIsHere) {
  RosterOptions options = Recovering(2);
  options.spares = 1;
  Roster roster(options, At(0));
  AddAll(roster, {"0", "1"}, 1, 0);
  roster.Look(At(0));
  AddAll(roster, {"2"}, 3, 1);
  EXPECT_EQ(roster.Lose(2, Killed(1), At(10)).kind, Kind::kRegroup);
  AddAll(roster, {"2", "0"}, 5, 10);
  EXPECT_EQ(roster.Missing(), "MS_NODE_ID 1");
}

TEST(Roster, OfManyMissingWorkersTenAreNamed) {
  Roster roster(Recovering(20), At(0));
  AddAll(roster, {"0"}, 1, 0);
  EXPECT_EQ(roster.Missing(), "MS_NODE_ID 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 9 others");
}

TEST(Roster, WhoComesBackHasItsPlaceBeforeASpare) {
  RosterOptions options = Recovering(2);
  options.spares = 1;
  Roster roster(options, At(0));
  AddAll(roster, {"0", "1"}, 1, 0);
  roster.Look(At(0));
  AddAll(roster, {"2"}, 3, 1);
  roster.Lose(2, Killed(1), At(2));
  AddAll(roster, {"2", "0", "1"}, 4, 3);
  EXPECT_EQ(roster.Look(At(3)).kind, Kind::kWelcome);
  EXPECT_EQ(RanksOf(roster), "0 1 ");
  EXPECT_EQ(roster.Find(4)->rank, -1);
}

RosterOptions Elastic() {
  RosterOptions options = Recovering(4);
  options.least = 2;
  options.most = 4;
  return options;
}

TEST(Roster, AnElasticJobShrinksAndGrows) {
  Roster roster(Elastic(), At(0));
  AddAll(roster, {"0", "1", "2", "3"}, 1, 0);
  roster.Look(At(0));
  MakeTurns(roster, 1);
  roster.Lose(3, Killed(2), At(1));
  AddAll(roster, {"3", "0", "1"}, 5, 1);
  EXPECT_EQ(roster.Look(At(5.9)).kind, Kind::kNothing);
  EXPECT_EQ(roster.Look(At(6)).kind, Kind::kWelcome);
  EXPECT_EQ(RanksOf(roster), "0 1 3 ");
  MakeTurns(roster, 5);
  AddAll(roster, {"2"}, 8, 10);
  EXPECT_EQ(roster.Look(At(10.9)).kind, Kind::kNothing);  // others may come too
  const auto grown = roster.Look(At(11));
  EXPECT_EQ(grown.kind, Kind::kRegroup);
  EXPECT_EQ(grown.cause.message(), "worker 2 has come");
  AddAll(roster, {"0", "1", "3"}, 9, 11);
  EXPECT_EQ(roster.Look(At(12)).kind, Kind::kNothing);
  AddAll(roster, {"2"}, 12, 12);
  EXPECT_EQ(roster.Look(At(12)).kind, Kind::kWelcome);
  EXPECT_EQ(RanksOf(roster), "0 1 2 3 ");
}

TEST(Roster, AWorkerThatWasAwayDoesNotTakeAPlaceAtOnce) {
  RosterOptions options = Recovering(1);
  options.most = 2;
  Roster roster(options, At(0));
  AddAll(roster, {"0"}, 1, 0);
  EXPECT_EQ(roster.Look(At(0)).kind, Kind::kWelcome);
  EXPECT_EQ(roster.Lose(1, Killed(0), At(1)).kind, Kind::kRegroup);
  AddAll(roster, {"1"}, 2, 1.1);  // its state is older than what the killed one has kept
  EXPECT_EQ(roster.Look(At(2)).kind, Kind::kNothing);
  AddAll(roster, {"0"}, 3, 2);
  EXPECT_EQ(roster.Look(At(2)).kind, Kind::kWelcome);
  EXPECT_EQ(RanksOf(roster), "0 ");
}

TEST(Roster, AnElasticJobHasNotFewerRanksThanTheLeast) {
  Roster roster(Elastic(), At(0));
  AddAll(roster, {"0", "1", "2", "3"}, 1, 0);
  roster.Look(At(0));
  MakeTurns(roster, 1);
  roster.Lose(3, Killed(2), At(1));
  AddAll(roster, {"3"}, 5, 1);
  EXPECT_EQ(roster.Look(At(50)).kind, Kind::kNothing);
  AddAll(roster, {"0"}, 6, 50);
  EXPECT_EQ(roster.Look(At(50)).kind, Kind::kWelcome);
  EXPECT_EQ(roster.size(), 2);
}

TEST(Roster, ANumberOfRanksThatTheTrainingCannotHaveIsLeftOut) {
  Roster roster(Elastic(), At(0));
  AddAll(roster, {"0", "1", "2", "3"}, 1, 0);
  roster.Look(At(0));
  MakeTurns(roster, 1);
  roster.Lose(4, Killed(3), At(1));
  AddAll(roster, {"0", "1", "2"}, 5, 1);
  EXPECT_EQ(roster.Look(At(6)).kind, Kind::kWelcome);
  EXPECT_EQ(roster.size(), 3);
  const auto failed = roster.Fail(Mistake(), At(7));
  EXPECT_EQ(failed.kind, Kind::kRegroup);
  EXPECT_EQ(failed.cause.message(), "the training cannot continue on 3 ranks: device_num is 4");
  AddAll(roster, {"0", "1", "2"}, 8, 8);
  EXPECT_EQ(roster.Look(At(11)).kind, Kind::kNothing);  // the fourth may come back
  EXPECT_EQ(roster.Look(At(12)).kind, Kind::kWelcome);
  EXPECT_EQ(RanksOf(roster), "0 1 ");
  EXPECT_EQ(roster.Look(At(14)).kind, Kind::kNothing);  // it does not grow to 3 again
}

TEST(Roster, AMistakeOfTheRecipeEndsTheJob) {
  Roster roster(Elastic(), At(0));
  AddAll(roster, {"0", "1", "2", "3"}, 1, 0);
  roster.Look(At(0));
  EXPECT_EQ(roster.Fail(Mistake(), At(1)).kind, Kind::kEnd);
}

TEST(Roster, ASchedulerWithoutItsJournalLearnsTheEpochFromTheWorkers) {
  Roster roster(Recovering(2), At(0));
  roster.Add({1, "0", "host"}, 7, At(0));
  roster.Add({2, "1", "host"}, 7, At(0));
  EXPECT_EQ(roster.Look(At(0)).kind, Kind::kWelcome);
  EXPECT_EQ(roster.epoch(), 8);
}

TEST(Roster, WhereWorkersChangeALostJournalEndsTheJob) {
  RosterOptions options = Recovering(1);
  options.spares = 1;
  {
    // A spare comes before the worker that trains on, and alone.
    Roster roster(options, At(0));
    EXPECT_EQ(roster.Add({1, "spare", "b"}, 3, At(0)).kind, Kind::kEnd);
  }
  Roster roster(options, At(0));
  EXPECT_EQ(roster.Add({1, "spare", "b"}, 0, At(0)).kind, Kind::kNothing);
  EXPECT_EQ(roster.Look(At(1)).kind, Kind::kNothing);  // workers that know more may come
  const auto end = roster.Add({2, "0", "a"}, 3, At(1.5));
  EXPECT_EQ(end.kind, Kind::kEnd);
  EXPECT_EQ(CauseOf(end.cause).exit_code, kExitStorage);
  EXPECT_TRUE(absl::StrContains(end.cause.message(), "worker 0 on a has been in epoch 3")) << end.cause;
  // Also when it comes too late.
  Roster begun(options, At(0));
  begun.Add({1, "spare", "b"}, 0, At(0));
  EXPECT_EQ(begun.Look(At(2)).kind, Kind::kWelcome);
  EXPECT_EQ(begun.Add({2, "0", "a"}, 1, At(3)).kind, Kind::kNothing);
  EXPECT_EQ(begun.Add({3, "1", "c"}, 2, At(3)).kind, Kind::kEnd);
}

TEST(Roster, ASchedulerWithItsJournalKnowsThePast) {
  RosterOptions options = Recovering(1);
  options.spares = 1;
  options.epoch = 4;
  options.size = 1;
  Roster roster(options, At(0));
  EXPECT_EQ(roster.Add({1, "0", "a"}, 3, At(0)).kind, Kind::kNothing);
  EXPECT_EQ(roster.Look(At(0)).kind, Kind::kWelcome);
  EXPECT_EQ(roster.epoch(), 4);
}

TEST(Roster, TurnsThatCountFromTheBeginningAgainAreProgress) {
  Roster roster(Recovering(1), At(0));
  int64_t key = 1;
  const auto fails_after = [&](int64_t kept, const std::vector<int64_t>& turns) {
    roster.Add({key, "0", "host", -1, kept}, 0, At(100 * key));
    EXPECT_EQ(roster.Look(At(100 * key + 9)).kind, Kind::kWelcome);
    for (const int64_t turn : turns) roster.Progress(key, turn);
    const auto kind = roster.Lose(key, Killed(0), At(100 * key + 10)).kind;
    ++key;
    return kind;
  };
  EXPECT_EQ(fails_after(441, {441, 1, 2}), Kind::kRegroup);  // from a checkpoint: the image is a new one
  for (int i = 0; i < 5; ++i) EXPECT_EQ(fails_after(-1, {1, 2}), Kind::kRegroup);
  for (int i = 3; i < 9; ++i) EXPECT_EQ(fails_after(i, {}), Kind::kRegroup);  // too short for a heartbeat
  // Without a step there is none.
  EXPECT_EQ(fails_after(-1, {1}), Kind::kRegroup);
  EXPECT_EQ(fails_after(-1, {1}), Kind::kEnd);
}

TEST(Roster, AHeartbeatThatDoesNotKnowItsTurnIsNoProgress) {
  Roster roster(Recovering(1), At(0));
  const auto fails = [&](int64_t key) {
    roster.Add({key, "0", "host", -1, 500}, 0, At(100 * key));
    EXPECT_EQ(roster.Look(At(100 * key + 9)).kind, Kind::kWelcome);
    for (const int64_t turn : {-1, 500, -1, 500}) roster.Progress(key, turn);
    return roster.Lose(key, Killed(0), At(100 * key + 10)).kind;
  };
  int64_t starts = 1;
  while (starts < 9 && fails(starts) == Kind::kRegroup) ++starts;
  EXPECT_EQ(starts, 3);
}

TEST(Roster, NumbersOfRanksMayBecomeKnownLater) {
  Roster roster(Recovering(2), At(0));
  AddAll(roster, {"0", "1"}, 1, 0);
  roster.Look(At(0));
  EXPECT_NE(roster.Refusal("2"), "");
  EXPECT_FALSE(roster.Allow(3, 4).ok());
  EXPECT_FALSE(roster.Allow(1, 1).ok());
  EXPECT_TRUE(roster.Allow(1, 3).ok());
  AddAll(roster, {"2"}, 3, 1);
  EXPECT_EQ(roster.Look(At(2)).kind, Kind::kRegroup);
  EXPECT_EQ(roster.size(), 3);
}

TEST(Roster, SparesDoNotKeepAJobThatIsDone) {
  RosterOptions options = Recovering(2);
  options.spares = 1;
  Roster roster(options, At(0));
  AddAll(roster, {"0", "1"}, 1, 0);
  roster.Look(At(0));
  AddAll(roster, {"2"}, 3, 0);
  EXPECT_EQ(roster.Leave(1, 0).kind, Kind::kNothing);
  EXPECT_EQ(roster.Leave(2, 9).kind, Kind::kEnd);
  EXPECT_EQ(roster.FirstExitCode(), 9);
}

}  // namespace
}  // namespace mslua
