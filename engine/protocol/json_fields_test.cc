#include "engine/protocol/json_fields.h"

#include <gtest/gtest.h>

#include "engine/protocol/json_number_fault.h"

namespace tally {
namespace {

class JsonFieldsTest : public testing::Test {
 protected:
  JsonFields Parse(std::string_view text) {
    return JsonFields("op", parser_.parse(text.data(), text.size()).get_object().value());
  }
  static std::string Message(JsonFields& fields) { return std::string(fields.Finish().message()); }

  simdjson::dom::parser parser_;
};

TEST_F(JsonFieldsTest, ReadsWhatIsThereAndDefaultsWhatIsNot) {
  JsonFields fields = Parse(R"({"a":3,"b":true,"c":1.5,"d":"x","e":[1,2],"f":null})");
  EXPECT_EQ(fields.Int("a", 0, 9), 3);
  EXPECT_EQ(fields.Int("missing", 0, 9, 7), 7);
  EXPECT_TRUE(fields.Bool("b", false));
  EXPECT_EQ(fields.Double("c", 0, 0), 1.5);
  EXPECT_EQ(fields.String("d"), "x");
  std::vector<TokenId> tokens;
  fields.Tokens("e", true, tokens);
  EXPECT_EQ(tokens, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(fields.OptionalInt("f", 0, 9), std::nullopt);
  EXPECT_TRUE(fields.Finish().ok());
}

TEST_F(JsonFieldsTest, NamesTheFieldAndTheValue) {
  JsonFields low = Parse(R"({"a":-3})");
  EXPECT_EQ(low.Int("a", 1, 9), 1);
  EXPECT_EQ(Message(low), "op.a: -3, wanted an integer from 1 to 9");

  JsonFields fraction = Parse(R"({"a":1.5})");
  fraction.Int("a", 1, 9);
  EXPECT_EQ(Message(fraction), "op.a: 1.5, wanted an integer from 1 to 9");

  JsonFields kind = Parse(R"({"a":"no"})");
  kind.Bool("a", false);
  EXPECT_EQ(Message(kind), "op.a: \"no\", wanted true or false");

  JsonFields missing = Parse("{}");
  missing.Int("a", 1, 9);
  EXPECT_EQ(Message(missing), "op.a: missing");

  JsonFields place = Parse(R"({"a":[1,-1]})");
  std::vector<TokenId> tokens;
  place.Tokens("a", true, tokens);
  EXPECT_EQ(Message(place), "op.a[1]: -1, wanted an integer from 0 to 2147483647");
}

TEST_F(JsonFieldsTest, RefusesUnknownRepeatedAndUnsupportedKeys) {
  JsonFields unknown = Parse(R"({"a":1,"zz":2})");
  unknown.Int("a", 0, 9);
  EXPECT_EQ(Message(unknown), "op.zz: 2, an unknown key");

  JsonFields twice = Parse(R"({"a":1,"a":2})");
  twice.Int("a", 0, 9);
  EXPECT_EQ(Message(twice), "op.a: given twice");

  JsonFields unsupported = Parse(R"({"lora":1})");
  unsupported.Unsupported("lora", "no LoRA");
  EXPECT_NE(Message(unsupported).find("op.lora: 1"), std::string::npos);

  JsonFields off = Parse(R"({"lora":null})");
  off.Unsupported("lora", "no LoRA");
  EXPECT_TRUE(off.Finish().ok());
}

TEST_F(JsonFieldsTest, TheFirstFaultSticks) {
  JsonFields fields = Parse(R"({"a":-1,"b":-2})");
  fields.Int("a", 0, 9);
  fields.Int("b", 0, 9);
  EXPECT_EQ(Message(fields), "op.a: -1, wanted an integer from 0 to 9");
}

TEST(ShortenedTest, CutsBetweenCharacters) {
  const std::string text = std::string(kMaxQuotedBytes - 1, 'x') + "\xC3\xA4yyyy";
  EXPECT_EQ(Shortened(text), std::string(kMaxQuotedBytes - 1, 'x') + "...");
  EXPECT_EQ(Shortened("short"), "short");
}

TEST(FindNumberFaultTest, NamesTheNumberThatDoesNotFit) {
  EXPECT_EQ(FindNumberFault(R"({"a":1,"max_tokens":99999999999999999999999})"),
            "max_tokens: 99999999999999999999999, wanted a number in range");
  EXPECT_EQ(FindNumberFault(R"({"t":1e999})"), "t: 1e999, wanted a number in range");
  EXPECT_EQ(FindNumberFault(R"({"a":-9223372036854775809})"),
            "a: -9223372036854775809, wanted a number in range");
  EXPECT_EQ(FindNumberFault(R"({"a":18446744073709551615,"b":"1e999","c":[1.5e-3]})"),
            std::nullopt);
  EXPECT_EQ(FindNumberFault(R"({"a\":1e999)"), std::nullopt);
  EXPECT_EQ(FindNumberFault("\"\\"), std::nullopt);
}

}  // namespace
}  // namespace tally
