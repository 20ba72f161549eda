#include "engine/protocol/json_writer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "simdjson.h"

namespace tally {
namespace {

TEST(JsonWriterTest, PutsCommasWhereTheyBelong) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Key("a").BeginArray().Int(1).Int(-2).BeginArray().EndArray().Null().EndArray();
  json.Key("b").BeginObject().EndObject();
  json.Key("c").Bool(true);
  json.Key("d").Raw("[3]");
  json.EndObject();
  EXPECT_EQ(out, R"({"a":[1,-2,[],null],"b":{},"c":true,"d":[3]})");
}

TEST(JsonWriterTest, EscapesWhatAStringMayHold) {
  std::string text;
  for (int c = 0; c < 128; ++c) text.push_back(static_cast<char>(c));
  text += "\xC3\xA4\xF0\x9F\x98\x80";
  std::string out;
  JsonWriter(out).BeginObject().Key(text).String(text).EndObject();
  simdjson::dom::parser parser;
  simdjson::dom::object object = parser.parse(out).get_object();
  std::string_view value;
  ASSERT_EQ(object.at_key(text).get(value), simdjson::SUCCESS) << out;
  EXPECT_EQ(value, text);
}

TEST(JsonWriterTest, DoublesReadBackAsTheSameValue) {
  for (const double value : {0.0, -0.0, 0.1, 1.0 / 3, 1e300, -5e-324, 12345678901234567.0,
                             0.09090909090909094, std::numeric_limits<double>::max()}) {
    std::string out;
    JsonWriter(out).Double(value);
    EXPECT_EQ(std::strtod(out.c_str(), nullptr), value) << out;
  }
  std::string out;
  JsonWriter(out).Double(0.1);
  EXPECT_EQ(out, "0.1");
}

}  // namespace
}  // namespace tally
