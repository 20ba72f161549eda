#include "engine/workload/csv_row.h"

#include <gtest/gtest.h>

#include <string>

namespace tally {
namespace {

std::string Text(const std::optional<RowError>& error) {
  return error ? std::to_string(error->column) + ": " + error->message : "ok";
}

std::string Integer(std::string_view line, std::size_t index, std::int64_t& value) {
  CsvRow row;
  row.Split(line);
  return Text(row.Integer(index, "n", 1, 99, value));
}

TEST(CsvRowTest, SplitsAtCommas) {
  CsvRow row;
  row.Split("a,,cd");
  ASSERT_EQ(row.size(), 3U);
  EXPECT_EQ(row[0].text, "a");
  EXPECT_EQ(row[1].text, "");
  EXPECT_EQ(row[2].text, "cd");
  EXPECT_EQ(row[2].column, 4U);
}

TEST(CsvRowTest, NumberOfFields) {
  CsvRow row;
  row.Split("1,2,3");
  EXPECT_EQ(Text(row.CheckSize("x,y,z")), "ok");
  EXPECT_EQ(Text(row.CheckSize("x,y")), "5: 3 fields, wanted 2: x,y");
  EXPECT_EQ(Text(row.CheckSize("x,y,z,u")), "6: 3 fields, wanted 4: x,y,z,u");
}

TEST(CsvRowTest, Integers) {
  std::int64_t value = 0;
  EXPECT_EQ(Integer("7,42", 1, value), "ok");
  EXPECT_EQ(value, 42);
  EXPECT_EQ(Integer("7,100", 1, value), "3: n: 100, wanted an integer from 1 to 99");
  EXPECT_EQ(Integer("-7,1", 0, value), "1: n: -7, wanted an integer from 1 to 99");
  EXPECT_EQ(Integer("7, 1", 1, value), "3: n:  1, wanted an integer from 1 to 99");
  EXPECT_EQ(Integer("7,1.0", 1, value), "3: n: 1.0, wanted an integer from 1 to 99");
  EXPECT_EQ(Integer("7,", 1, value), "3: n: nothing, wanted an integer from 1 to 99");
  EXPECT_EQ(Integer("7,9999999999999999999999", 1, value),
            "3: n: 9999999999999999999999, wanted an integer from 1 to 99");
}

}  // namespace
}  // namespace tally
