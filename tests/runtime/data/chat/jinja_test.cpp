#include "runtime/data/chat/jinja/template.hpp"
#include "tests/runtime/data/chat/chat_testing.hpp"

namespace sluice::testing {
namespace {

std::string rendered_text(const std::string& source, const std::string& variables = "{}") {
  return jinja::Template(source)
      .render(*value_from(variables).as_dict(), {.now = fixed_time()})
      .text;
}

std::string render_error(const std::string& source, const std::string& variables = "{}") {
  return message_of<jinja::RenderError>([&] { (void)rendered_text(source, variables); });
}

std::string syntax_error(const std::string& source) {
  return message_of<ConfigError>([&] { (void)jinja::Template(source); });
}

struct Example {
  std::string source, text;
};

// Expected texts are those of jinja2 3.1 with trim_blocks and lstrip_blocks.
TEST(Jinja, RendersAsJinja2) {
  const std::vector<Example> examples{
      {"a\n", "a"},
      {"a\n\n", "a\n"},
      {"  {% if true %}\n x\n  {% endif %}\ny", " x\ny"},
      {"  {%+ if true %}x{% endif +%}\ny", "  x\ny"},
      {"a {{- 1 -}} b", "a1b"},
      {"a {#- c -#} b", "ab"},
      {"{% raw %}{{ x }}{% endraw %}", "{{ x }}"},
      {"{{ 1.0 }} {{ 1e16 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }}",
       "1.0 1e+16 3 -4 2 3.5"},
      {"{{ [1, 'a', none, true] }} {{ (1,) }} {{ {'a': \"b'c\"} }}",
       "[1, 'a', None, True] (1,) {'a': \"b'c\"}"},
      {"{{ 'a\\n\\x41\\u00e9\\q' }}", "a\nA\u00e9\\q"},
      {"{{ 'abcd'[1:] }}{{ 'abcd'[::-1] }}{{ 'abcd'[-1] }}{{ [1, 2, 3][:-1] }}", "bcddcbad[1, 2]"},
      {"{% set x = 1 %}{% for i in [2] %}{% set x = i %}{% endfor %}{{ x }}", "1"},
      {"{% set n = namespace(x=1) %}{% for i in [2] %}{% set n.x = i %}{% endfor %}{{ n.x }}", "2"},
      {"{% for i in [1, 2, 3, 4] if i % 2 == 0 %}{{ loop.index }}/{{ loop.length }}:{{ i }} "
       "{% else %}none{% endfor %}",
       "1/2:2 2/2:4 "},
      {"{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "13"},
      {"{% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}{{ v }}{% endfor %}", "b1a2"},
      {"{% for k, v in {'b': 1, 'A': 2} | dictsort %}{{ k }}{{ v }}{% endfor %}", "A2b1"},
      {"{% macro m(a, b='x') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(2, b=3) }}", "1x23"},
      {"{% macro m() %}<{{ caller('c') }}>{% endmacro %}{% call(a) m() %}{{ a }}{% endcall %}",
       "<c>"},
      {"{% set t %} x {% endset %}[{{ t | trim }}]", "[x]"},
      {"{% set t | trim | upper %} x {% endset %}[{{ t }}]", "[X]"},
      {"{% filter upper %}a{% endfilter %}", "A"},
      {"{% with a = 1 %}{{ a }}{% endwith %}{{ a is defined }}", "1False"},
      {"{{ {'a': [1, 2.5, 'x\\n\u00e9']} | tojson }}", "{\"a\": [1, 2.5, \"x\\n\u00e9\"]}"},
      {"{{ {'a': [1], 'b': {}} | tojson(indent=2) }}",
       "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}"},
      {"{{ missing }}{{ missing | default('d') }}{{ '' | default('e', true) }}", "de"},
      {"{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a-b-c'.rsplit('-', 1) }}",
       "['a', 'b', '', 'c'] ['a', 'b'] ['a-b', 'c']"},
      {"{{ [{'r': 'u', 'c': 1}, {'r': 'a', 'c': 2}] | selectattr('r', 'equalto', 'a') | "
       "map(attribute='c') | list }}",
       "[2]"},
      {"{{ '\u00e9t\u00e9' | upper }} {{ 'hello world' | title }} {{ 'hELLO' | capitalize }}",
       "\u00c9T\u00c9 Hello World Hello"},
      {"{{ 1 if false }}|{{ 'a' ~ 1 ~ none }}|{{ not 1 in [1] }}", "|a1None|False"},
      {"{{ strftime_now('%d %b %Y') }}", "04 Jul 2026"},
      {"{{ 3 is odd and 'x' is string and {} is mapping and [] is iterable }}", "True"},
      {"{{ 'a\\nb' | indent(2) }}", "a\n  b"},
  };
  for (const Example& example : examples) {
    EXPECT_EQ(rendered_text(example.source), example.text) << example.source;
  }
}

TEST(Jinja, GenerationBlocksHaveTheirBytes) {
  const auto result =
      jinja::Template("\u00e9{% generation %}ab{% endgeneration %}c").render({}, {});
  EXPECT_EQ(result.text,
            "\u00e9"
            "abc");
  EXPECT_THAT(result.generated, ::testing::ElementsAre(jinja::Span{2, 4}));
}

TEST(Jinja, ErrorsNameTheirCause) {
  EXPECT_EQ(render_error("{{ raise_exception('no ' + 'roles') }}"), "no roles");
  EXPECT_EQ(render_error("a\n{{ x.y }}"),
            "template line 2: 'x', which is undefined, has no attribute 'y'");
  EXPECT_EQ(render_error("{{ 1 | nothing }}"),
            "template line 1: the filter 'nothing' is unknown or not supported");
  EXPECT_EQ(render_error("{{ 1 is nothing }}"),
            "template line 1: the test 'nothing' is unknown or not supported");
  EXPECT_EQ(render_error("{{ [].append(1) }}"),
            "template line 1: this method of a list would change the value, or is not supported");
  EXPECT_EQ(render_error("{{ 1 // 0 }}"), "template line 1: division by zero");
  EXPECT_EQ(render_error("{{ 'a' + 1 }}"), "template line 1: cannot add an integer to a string");
  EXPECT_EQ(syntax_error("{% include 'x' %}"),
            "line 1: the statement 'include' is unknown or not supported");
  EXPECT_EQ(syntax_error("{% if x %}"),
            "line 1: expected '{% endif %}', found the end of the template");
  EXPECT_EQ(syntax_error("a\n{{ 'x }}"), "line 2: a string has no end");
  EXPECT_EQ(syntax_error("{{ f(*a) }}"), "line 1: '*' before an argument is not supported");
  EXPECT_EQ(syntax_error("{% break %}"), "line 1: 'break' outside of a loop");
}

TEST(Jinja, NothingRunsForEver) {
  EXPECT_EQ(render_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
            "template line 1: the template calls itself too deeply");
  EXPECT_EQ(
      render_error("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"),
      "template line 1: the template takes too many steps");
  EXPECT_EQ(render_error("{% set n = namespace(x='ab') %}{% for i in range(99) %}"
                         "{% set n.x = n.x + n.x %}{% endfor %}"),
            "template line 1: the template takes too many steps");
  EXPECT_EQ(render_error("{{ 'a' * 40000000 + 'b' * 40000000 }}"),
            "template line 1: a string would be longer than 64 MiB");
  EXPECT_EQ(render_error("{% set n = namespace(x=[1]) %}{% for i in range(99) %}"
                         "{% set n.x = [n.x, n.x] %}{% endfor %}"),
            "template line 1: a list or an object would be too large");
  EXPECT_EQ(render_error("{% set n = namespace(x=[]) %}{% for i in range(999) %}"
                         "{% set n.x = [n.x] %}{% endfor %}"),
            "template line 1: a list would be nested more than 128 levels deep");
  EXPECT_EQ(render_error("{% set n = namespace() %}{% set n.x = n %}"),
            "template line 1: a list, an object or a namespace cannot hold a namespace");
  EXPECT_EQ(syntax_error("{{ " + std::string(500, '(') + "1" + std::string(500, ')') + " }}"),
            "line 1: nested more than 128 levels deep");
  std::string sum = "1";
  for (int i = 0; i < 500; ++i) sum += "+1";
  EXPECT_EQ(syntax_error("{{ " + sum + " }}"),
            "line 1: an expression has more than 256 operators inside each other");
}

}  // namespace
}  // namespace sluice::testing
