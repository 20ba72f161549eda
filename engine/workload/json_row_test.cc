#include "engine/workload/json_row.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tally {
namespace {

class JsonRowTest : public testing::Test {
 protected:
  JsonRowTest() {
    inner_ = {{.name = "deep", .integer = &deep_}};
    fields_ = {{.name = "count", .integer = &count_, .least = 1, .most = 1000},
               {.name = "time", .required = false, .number = &time_},
               {.name = "ids", .required = false, .ids = &ids_},
               {.name = "tokens", .required = false, .tokens = &tokens_},
               {.name = "name", .required = false, .text = &name_},
               {.name = "flag", .required = false, .flag = &flag_},
               {.name = "inner", .required = false, .object = &inner_}};
  }

  // "ok", or "column: message".
  std::string Read(std::string_view line) {
    const std::optional<RowError> error = reader_.Read(line, fields_);
    return error ? std::to_string(error->column) + ": " + error->message : "ok";
  }

  std::int64_t count_ = 0, deep_ = 0;
  double time_ = 0;
  std::string name_;
  bool flag_ = false;
  std::vector<std::uint64_t> ids_;
  std::vector<TokenId> tokens_;
  std::vector<JsonField> inner_;
  std::vector<JsonField> fields_;
  JsonRowReader reader_;
};

TEST_F(JsonRowTest, FillsWhatIsWanted) {
  EXPECT_EQ(Read(R"({"count": 12, "other": [1, {"count": 3}], "time": 2.5, "ids": [1, -2, )"
                 R"(18446744073709551615, "x"], "tokens": [4, 5], "name": "a\nb", "flag": true, )"
                 R"("inner": {"deep": 7, "x": null}})"),
            "ok");
  EXPECT_EQ(count_, 12);
  EXPECT_EQ(time_, 2.5);
  ASSERT_EQ(ids_.size(), 4U);
  EXPECT_EQ(ids_[0], 1U);
  EXPECT_EQ(ids_[1], static_cast<std::uint64_t>(-2));
  EXPECT_EQ(ids_[2], 18446744073709551615U);
  EXPECT_EQ(tokens_, (std::vector<TokenId>{4, 5}));
  EXPECT_EQ(name_, "a\nb");
  EXPECT_TRUE(flag_);
  EXPECT_EQ(deep_, 7);
  // A reader is used for line after line.
  EXPECT_EQ(Read(R"({"count":1})"), "ok");
  EXPECT_EQ(count_, 1);
}

TEST_F(JsonRowTest, SameTextIsTheSameId) {
  EXPECT_EQ(Read(R"({"count":1,"ids":["a","b","a"]})"), "ok");
  ASSERT_EQ(ids_.size(), 3U);
  EXPECT_EQ(ids_[0], ids_[2]);
  EXPECT_NE(ids_[0], ids_[1]);
}

TEST_F(JsonRowTest, ValuesOfAnotherKind) {
  EXPECT_EQ(Read(R"({"count": "12"})"), R"(11: count: "12", wanted an integer from 1 to 1000)");
  EXPECT_EQ(Read(R"({"count": 1.5})"), "11: count: 1.5, wanted an integer from 1 to 1000");
  EXPECT_EQ(Read(R"({"count": null})"), "11: count: null, wanted an integer from 1 to 1000");
  EXPECT_EQ(Read(R"({"count": [1]})"), "11: count: [, wanted an integer from 1 to 1000");
  EXPECT_EQ(Read(R"({"count":1,"ids": 4})"), "19: ids: 4, wanted an array of hash ids");
  EXPECT_EQ(Read(R"({"count":1,"ids":[1,null]})"),
            "21: ids: null, wanted a hash id: a 64-bit integer or a string");
  EXPECT_EQ(Read(R"({"count":1,"tokens":[1,-2]})"),
            "24: tokens: -2, wanted a token id from 0 to 2147483647");
  EXPECT_EQ(Read(R"({"count":1,"name":7})"), "19: name: 7, wanted a string");
  EXPECT_EQ(Read(R"({"count":1,"flag":0})"), "19: flag: 0, wanted true or false");
  EXPECT_EQ(Read(R"({"count":1,"inner":3})"), "20: inner: 3, wanted an object");
  EXPECT_EQ(Read(R"({"count":1,"inner":{"deep":-1}})"),
            "28: deep: -1, wanted an integer from 0 to 536870912");
}

TEST_F(JsonRowTest, NumbersOutOfRange) {
  EXPECT_EQ(Read(R"({"count":0})"), "10: count: 0, wanted an integer from 1 to 1000");
  EXPECT_EQ(Read(R"({"count":-5})"), "10: count: -5, wanted an integer from 1 to 1000");
  EXPECT_EQ(Read(R"({"count":99999999999999999999})"),
            "10: count: 99999999999999999999, wanted an integer from 1 to 1000");
  EXPECT_EQ(Read(R"({"count":1,"time":-0.5})"), "19: time: -0.5, wanted a number from 0 to 1e15");
  EXPECT_EQ(Read(R"({"count":1,"time":1e300})"), "19: time: 1e300, wanted a number from 0 to 1e15");
  EXPECT_EQ(Read(R"({"count":1,"time":1e999})"), "19: time: 1e999, wanted a number from 0 to 1e15");
}

TEST_F(JsonRowTest, FieldsMissingOrTwice) {
  EXPECT_EQ(Read("{}"), "3: count: missing in the row, wanted an integer");
  EXPECT_EQ(Read(R"({"count":1,"count":2})"), "13: count: twice, wanted it once");
  EXPECT_EQ(Read(R"({"count":1,"inner":{}})").substr(2),
            ": deep: missing in inner, wanted an integer");
}

TEST_F(JsonRowTest, TextThatIsNoObject) {
  EXPECT_EQ(Read("[1]"), "1: [1], wanted a JSON object");
  EXPECT_EQ(Read("12"), "1: 12, wanted a JSON object");
  EXPECT_EQ(Read(R"({"count":1} {"count":2})"),
            "13: text behind the object, wanted one object a line");
  for (const char* line :
       {"", "{", R"({"count")", R"({"count":)", R"({"count":1)", R"({"count":1,)",
        R"({"count":1,})", R"({"count" 1})", R"({count:1})", R"({"count":1]})",
        "{\"count\":1,\"x\":\"\xff\xfe\"}", "\x01\x02\x03", R"({"count":tru})",
        R"({"count":1,"ids":[1,2})", R"({"count":1,"name":"abc})"}) {
    EXPECT_NE(Read(line), "ok") << line;
  }
}

}  // namespace
}  // namespace tally
