from __future__ import annotations

import pytest

from warmgraph_engine.tokenizer.chat import ChatTemplate, ChatTemplateError

MESSAGES = [{"role": "user", "content": "<b>"}]


def render(source, messages=MESSAGES, variables=None, **special):
    return ChatTemplate(source, special).render(messages, variables=variables)


def test_blocks_leave_no_blank_lines_and_special_tokens_are_variables():
    source = (
        "{{ bos_token }}\n"
        "{% for m in messages %}\n"
        "    {% if true %}\n"
        "{{ m.role }}:{{ m['content'] }}\n"
        "    {% endif %}\n"
        "{% endfor %}"
    )
    assert render(source, bos_token="<s>") == "<s>\nuser:<b>\n"


def test_the_assistants_turn_is_opened():
    assert render("{% if add_generation_prompt %}go{% endif %}") == "go"


def test_json_is_written_as_a_model_expects_it():
    assert render("{{ messages | tojson }}") == '[{"role": "user", "content": "<b>"}]'
    assert render("{{ {'é': 1} | tojson(indent=1) }}") == '{\n "é": 1\n}'


def test_training_marks_and_loop_controls_are_understood():
    source = (
        "{% for m in [1,2,3] %}{% if m == 2 %}{% break %}{% endif %}"
        "{% generation %}{{ m }}{% endgeneration %}{% endfor %}"
    )
    assert render(source) == "1"


def test_a_template_can_read_the_date_and_its_own_switches():
    assert len(render("{{ strftime_now('%Y') }}")) == 4
    assert render("{{ enable_thinking }}", variables={"enable_thinking": False}) == "False"
    assert render("{{ messages|length }}", variables={"messages": []}) == "1"


def test_a_template_refuses_with_its_own_words():
    with pytest.raises(ChatTemplateError, match="only user and assistant"):
        render("{{ raise_exception('only user and assistant') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[5].role }}",
        "{{ 1 / 0 }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% for i in range(100000000) %}x{% endfor %}",
    ],
    ids=["undefined", "error", "changes messages", "escape", "endless"],
)
def test_whatever_a_template_does_is_the_requests_error_only(source):
    with pytest.raises(ChatTemplateError, match="cannot render"):
        render(source)


def test_a_template_with_a_flaw_is_named_when_the_model_is_loaded():
    with pytest.raises(ChatTemplateError, match=r"not valid.*line 2"):
        ChatTemplate("ok\n{% for %}", {}).prepare()
