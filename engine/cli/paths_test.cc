#include "engine/cli/paths.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace tally {
namespace {

TEST(PathsTest, RelativePathsAreMeantFromTheUsersFolder) {
  ASSERT_EQ(setenv("BUILD_WORKING_DIRECTORY", "/home/user", 1), 0);
  EXPECT_EQ(ResolvePath("a/b.jsonl"), "/home/user/a/b.jsonl");
  EXPECT_EQ(ResolvePath("/a/b.jsonl"), "/a/b.jsonl");
  EXPECT_EQ(ResolvePath(""), "");
  ASSERT_EQ(unsetenv("BUILD_WORKING_DIRECTORY"), 0);
  EXPECT_EQ(ResolvePath("a/b.jsonl"), "a/b.jsonl");
}

}  // namespace
}  // namespace tally
