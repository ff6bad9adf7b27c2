#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/unit/model/data/chat_cases.json: pieces of Jinja, and conversations in templates of the shapes that models have, as
jinja2 3.1 renders them, set up as transformers does. tests/interop/test_chat.py compares the conversations with transformers itself.
Run: make_chat_cases.py OUTPUT"""
import datetime
import json
import sys

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

DATE = datetime.datetime(2024, 7, 26)  # kTemplateDate

# Templates of the shapes that families have, written for these tests: what is special in each is kept.
TEMPLATES = {
    "chatml": r"""{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""",
    "a system message by default, tools": r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- for tool in tools %}
        {{- "\n" }}{{- tool | tojson }}
    {%- endfor %}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are \'Q\'. You help.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
""",
    "thoughts of earlier turns left out": r"""{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and not(message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {{- '<|im_start|>assistant\n<think>\n' + thought.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>assistant\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}""",
    "contents by a macro": r"""{%- set images = namespace(value=0) %}
{%- macro written(content, counts, is_system=false) %}
    {%- if content is string %}
        {{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for item in content %}
            {%- if 'image' in item or item.type == 'image' %}
                {%- if is_system %}{{- raise_exception('no images there') }}{%- endif %}
                {%- if counts %}{%- set images.value = images.value + 1 %}{%- endif %}
                {{- 'Picture ' ~ images.value ~ ': <img>' }}
            {%- elif 'text' in item %}
                {{- item.text }}
            {%- else %}
                {{- raise_exception('what is this: ' ~ item) }}
            {%- endif %}
        {%- endfor %}
    {%- elif content is none or content is undefined %}
        {{- '' }}
    {%- endif %}
{%- endmacro %}
{%- if not messages %}{{- raise_exception('no messages') }}{%- endif %}
{%- for message in messages %}
    {%- set content = written(message.content, true, message.role == 'system')|trim %}
    {{- '<' ~ message.role ~ '>' + content + '<end>' }}
    {%- if loop.previtem and loop.previtem.role == message.role %}{{- raise_exception('twice') }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<assistant>' }}{%- endif %}""",
    "spaces that count": r"""{% if messages[0]['role'] == 'system' %}{% set turns = messages[1:] %}{% set system_message = messages[0]['content'] %}
{%- else %}{% set turns = messages %}{% set system_message = false %}{% endif %}
{%- for message in turns %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate user/assistant') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}
{%- else %}{% set content = message['content'] %}{% endif %}
{%- if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
{%- elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "a date, and tools in the user's message": r"""{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message goes first. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif message.tool_calls|length != 1 %}
        {{- raise_exception("one call at a time") }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
""",
    "types of tools by a macro that calls itself": r"""{%- macro kind(spec, depth=0) -%}
    {%- if spec.type == "array" -%}
        {%- if spec['items'] -%}{{- kind(spec['items'], depth + 1) }}[]{%- else -%}any[]{%- endif -%}
        {%- if spec.nullable %} | null{%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string -%}
        {%- for one in spec.type -%}{{- one }}{%- if not loop.last %} | {% endif -%}{%- endfor -%}
    {%- elif spec.type == "object" -%}
        {{- "{" }}{%- for name, inner in spec.properties|dictsort -%}{{- name + ": " + kind(inner, depth + 1) }}{{- ", " if not loop.last }}{%- endfor -%}{{- "}" }}
    {%- elif spec.enum -%}
        {{- '"' + spec.enum|join('" | "') + '"' -}}
    {%- else -%}
        {{- spec.type or "any" }}
    {%- endif -%}
{%- endmacro -%}
{%- macro system_text() -%}
    {{- "You are " ~ (model_identity or "a model") ~ ".\nCurrent date: " + strftime_now("%Y-%m-%d") + "\n\n" }}
    {%- if reasoning_effort is not defined %}{%- set reasoning_effort = "medium" %}{%- endif %}
    {{- "Reasoning: " + reasoning_effort }}
    {{- "\n" ~ kind({"type": "object", "properties": {"b": {"type": "array", "items": {"enum": ["x", "y"]}}, "a": {"type": ["integer", "null"]}}}) }}
{%- endmacro -%}
{{- "<|start|>system<|message|>" }}{{- system_text() }}{{- "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}
    {%- set developer_message = messages[0].content %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set developer_message = "" %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if developer_message or tools %}
    {{- "<|start|>developer<|message|># Instructions\n\n" }}{{- developer_message }}{{- "\n\n<|end|>" }}
{%- endif %}
{%- set last_call = namespace(name=none) %}
{%- for message in loop_messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if "<|channel|>analysis" in message.content %}{{- raise_exception("thoughts go elsewhere") }}{%- endif %}
        {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + ("<|return|>" if loop.last and not add_generation_prompt else "<|end|>") }}
        {%- set last_call.name = none %}
    {%- elif message.role == 'user' -%}
        {{- "<|start|>user<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|start|>assistant
{%- endif -%}
""",
    "roles of other names": r"""{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set prefix = "" -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
""",
    "arguments by sorted names": r"""{%- macro argument(value, quotes=True) -%}
    {%- if value is string -%}{{- '<q>' + value + '<q>' if quotes else value -}}
    {%- elif value is boolean -%}{{- 'true' if value else 'false' -}}
    {%- elif value is mapping -%}
        {{- '{' -}}{%- set found = namespace(first=true) -%}
        {%- for key, inner in value | dictsort -%}
            {%- if not found.first %},{% endif -%}{%- set found.first = false -%}
            {{- key -}}:{{- argument(inner, quotes=quotes) -}}
        {%- endfor -%}{{- '}' -}}
    {%- elif value is sequence -%}[{%- for inner in value -%}{{- argument(inner, quotes=quotes) -}}{%- if not loop.last %},{% endif -%}{%- endfor -%}]
    {%- else -%}{{- value -}}{%- endif -%}
{%- endmacro -%}
{%- macro without_thoughts(text) -%}
    {%- set ns = namespace(result='') -%}
    {%- for part in text.split('</think>') -%}
        {%- if '<think>' in part -%}{%- set ns.result = ns.result + part.split('<think>')[0] -%}
        {%- else -%}{%- set ns.result = ns.result + part -%}{%- endif -%}
    {%- endfor -%}
    {{- ns.result | trim -}}
{%- endmacro -%}
{%- set ns = namespace(previous=None) -%}
{{ bos_token }}{{- argument({'b': [1, 2.5, {'z': 'q', 'a': True}], 'A': none}) -}}
{%- if (enable_thinking is defined and enable_thinking) or messages[0]['role'] in ['system', 'developer'] -%}
    {{- '<|turn>system\n' -}}{{- messages[0]['content'] | trim if messages[0]['role'] in ['system', 'developer'] -}}{{- '<turn|>\n' -}}
{%- endif -%}
{%- for message in messages if message['role'] != 'system' -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{- '<|turn>' + role + '\n' -}}
    {{- without_thoughts(message['content']) if role == 'model' else message['content'] | trim -}}
    {{- '<turn|>\n' -}}
    {%- set ns.previous = role -%}
{%- endfor -%}
{%- if add_generation_prompt and ns.previous != 'model' -%}{{- '<|turn>model\n' -}}{%- endif -%}
""",
    "a system message for the last user": r"""{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
{{- "" if user_messages | length else raise_exception("no user") }}
""",
    "state in a namespace": r"""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\n\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' not in message %}{%- set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜>'}}{% endif %}""",
    "visible text": r"""[gMASK]<sop>
{%- macro visible(content) -%}
    {%- if content is string -%}{{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for item in content -%}{%- if item is mapping and item.type == 'text' -%}{{- item.text }}{%- elif item is string -%}{{- item }}{%- endif -%}{%- endfor -%}
    {%- else -%}{{- content }}{%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last_user_index=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{% set ns.last_user_index = loop.index0 -%}{%- endif %}{%- endfor %}
{% for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ visible(m.content) }}
{{- '/nothink' if (enable_thinking is defined and not enable_thinking and not visible(m.content).endswith("/nothink")) else '' -}}
{%- elif m.role == 'assistant' -%}
<|assistant|>
{%- set content = visible(m.content) %}
{%- if loop.index0 > ns.last_user_index -%}{{ '\n<think></think>' }}{%- endif -%}
{%- if content.strip() -%}
{{ '\n' + content.strip() }}
{%- endif -%}
{%- elif m.role == 'system' -%}
<|system|>
{{ visible(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    <|assistant|>{{- '\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}
{%- endif -%}""",
    "a generation block and a switch in the system message": r"""{# ───── defaults ───── #}
{%- if enable_thinking is not defined -%}
{%- set enable_thinking = true -%}
{%- endif -%}
{%- set mode = "/think" if enable_thinking else "/no_think" -%}
{%- if messages[0].role == "system" -%}
  {%- set system_message = messages[0].content -%}
  {%- if "/no_think" in system_message -%}{%- set mode = "/no_think" -%}{%- endif -%}
  {%- set custom = system_message.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{{- "<|im_start|>system\n" -}}
{{- "Today Date: " ~ strftime_now("%d %B %Y") ~ "\n" -}}
{{- "Mode: " + mode + "\n\n" -}}
{%- if custom -%}{{ custom }}{%- endif %}<|im_end|>
{# ───── turns ───── #}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}
        {{ "<|im_start|>" + message.role + "\n"  + content + "<|im_end|>\n" }}
    {%- elif message.role == "assistant" -%}
        {% generation %}
        {{ "<|im_start|>assistant\n" + content.lstrip("\n") + "<|im_end|>\n" }}
        {% endgeneration %}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ "<|im_start|>assistant\n" }}
{%- endif -%}
""",
    "documents": r"""{%- set system = 'Knowledge: April 2024.\nDate: ' + strftime_now('%B %d, %Y') + '.' %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- if tools and documents %}
        {%- set system = system + ' With tools.' %}
    {%- elif documents is defined and documents is not none and documents|length > 0 %}
        {%- set system = system + ' With documents.' %}
    {%- endif %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system + '<|end_of_text|>
' }}
{%- for message in loop_messages %}
    {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + '<|end_of_text|>
' }}
    {%- if loop.last and add_generation_prompt %}
        {{- '<|start_of_role|>assistant' }}
        {%- if controls %}{{- ' ' + controls | tojson() }}{%- endif %}
        {{- '<|end_of_role|>' }}
    {%- endif %}
{%- endfor %}""",
    "roles from a dict": r"""{%- set role_indicators = {
    'user': '[|user|]\n',
    'assistant': '[|assistant|]\n',
    'system': '[|system|]\n'
} %}
{%- set end_of_turn = '[|endofturn|]\n' %}
{%- for i in range(messages | length) %}
    {%- set msg = messages[i] %}
    {%- set role = msg.role %}
    {%- if role not in role_indicators %}
        {{- raise_exception('Unknown role: ' ~ role) }}
    {%- endif %}
    {%- if i == 0 and role != 'system' %}{{- role_indicators['system'] + end_of_turn }}{%- endif %}
    {{- role_indicators[role] }}
    {%- for part in ([msg.content] if msg.content is string else msg.content) %}{{- part.strip() }}{%- endfor %}
    {%- if not loop.last or role == 'assistant' %}{{- end_of_turn }}{%- elif role == 'user' %}{{- end_of_turn }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- role_indicators.assistant }}{{- "<think>\n" if enable_thinking is defined and enable_thinking is true else "<think>\n\n</think>\n\n" }}
{%- endif %}""",
    "a loop that is left": r"""{{- bos_token -}}
{%- set keep_past_thinking = keep_past_thinking | default(false) -%}
{%- set ns = namespace(system_prompt="", last=-1) -%}
{%- if messages[0]["role"] == "system" -%}
    {%- set ns.system_prompt = messages[0]["content"] -%}
    {%- set messages = messages[1:] -%}
{%- endif -%}
{%- if ns.system_prompt -%}
    {{- "<|im_start|>system\n" + ns.system_prompt + "<|im_end|>\n" -}}
{%- endif -%}
{%- for message in messages | reverse -%}
    {%- if message["role"] == "assistant" -%}{%- set ns.last = loop.revindex0 -%}{%- break -%}{%- else -%}{%- continue -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {{- "<|im_start|>" + message["role"] + "\n" -}}
    {%- set content = message["content"] -%}
    {%- if content is not string -%}{%- set content = content | tojson -%}{%- endif -%}
    {%- if message["role"] == "assistant" and not keep_past_thinking and loop.index0 != ns.last -%}
        {%- if "</think>" in content -%}{%- set content = content.split("</think>")[-1] | trim -%}{%- endif -%}
    {%- endif -%}
    {{- content + "<|im_end|>\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|im_start|>assistant\n" -}}{%- endif -%}
""",
    "the end of the sequence behind answers": r"""{% set has_system = messages|selectattr('role', 'equalto', 'system')|list|length > 0 %}{% if not has_system %}{{ '<|im_start|>system<|im_sep|>You help.<|im_end|>' }}{% endif %}{% for message in messages %}{% if message['role'] == 'system' %}{{ '<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>' }}{% elif message['role'] == 'user' %}{{ '<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>' }}{% elif message['role'] == 'assistant' %}{{ '<|im_start|>assistant<|im_sep|>' + message['content'] }}{% if not loop.last %}{{ '<|im_end|>' }}{% else %}{{ eos_token }}{% endif %}{% endif %}{% if loop.last and add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}{% endfor %}""",
}

SYSTEM = {"role": "system", "content": "Be brief.\nNo \"lists\"."}
ANSWER = "<think>\nhm\n</think>\n\nHello there"
TURNS = [{"role": "user", "content": "Hi \u4f60\u597d [INST] <b>"}, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "What is 2 + 2?"}]
CONVERSATIONS = [TURNS[:1], [SYSTEM] + TURNS[:1], TURNS, [SYSTEM] + TURNS,
                 [{"role": turn["role"], "content": " \n" + turn["content"] + "  "} for turn in TURNS]]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

# Pieces, with the variables below.
PIECES = r"""
a{{ 1 }}b{{- 2 -}} c {{ 3 -}}  d
a  {%- if true %} b {%- endif -%}  c
a {%+ if true +%}  b {% endif %} c
a {# note #} b {#- note -#} c
{% raw %}{{ x }}{% endraw %}{%- raw -%}  {% y %} {%- endraw -%}  z
{{ 'a\n\t\\\'\"\x41\u00e9\U0001F600\101\q' }}{{ "a" 'b' }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 1_000 }} {{ 1.5e3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 'a' ~ 1 + 2 ~ 'b' }} {{ 'ab' * 3 }} {{ [1] * 2 + [3] }}
{{ 1 < 2 <= 2 }} {{ 3 > 2 > 2 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ [1, 2] == [1, 2] }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}
{{ 'b' in 'abc' }} {{ 2 in [1, 2] }} {{ 'k' in {'k': 1} }} {{ 3 not in [1] }} {{ not 1 in [1] }} {{ 'x' in nothing }}
{{ 0 or 'x' }} {{ 1 and 'y' }} {{ '' and 'z' }}| {{ not '' }} {{ none or false }}
{{ 'yes' if items else 'no' }} {{ 'gone' if false }} {{ 1 if 0 else 2 if 0 else 3 }}
{{ [1, 'a', none, true, 1.0, 1e20, 1e-7, ('t',), (1, 2), {'k': "it's"}] }} {{ 'a "b"' }} {{ ["a 'b'", 'a\nb\x00'] }}
{{ text[0] }} {{ text[-1] }} {{ text[1:4] }} {{ text[::-1] }} {{ text[:-2] }} {{ text[99] }}| {{ items[1:] }} {{ items[::2] }} {{ items[-1] }} {{ items[5:1:-1] }} {{ text[9223372036854775807:] }}
{{ record.name }} {{ record['name'] }} {{ record.missing }}| {{ record.get('missing') }} {{ record.get('missing', 'd') }} {{ record.inner.deep.0 }} {{ record['keys'] }} {{ record.items() | list }}
{% for k, v in record.items() %}{{ loop.index }}/{{ loop.length }} {{ k }}={{ v }};{% endfor %}
{% for x in items %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 2) }} {% endfor %}
{% for x in [] %}x{% else %}nothing{% endfor %} {% for x in items if x > 2 %}{{ loop.index }}:{{ x }} {% else %}none{% endfor %}
{% for x in items %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in 'aé' %}{{ x }}.{% endfor %}{% for x in record %}{{ x }}.{% endfor %}{% for x in nothing %}x{% endfor %}
{% for node in tree recursive %}{{ node.n }}@{{ loop.depth }}({{ loop(node.kids) if node.kids }}){% endfor %}
{% set x = 1 %}{% for i in items %}{% set x = i %}{% endfor %}{{ x }}{% if true %}{% set x = 2 %}{% endif %}{{ x }}
{% set ns = namespace(n=0, s='') %}{% for i in items %}{% set ns.n = ns.n + i %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }} {{ ns.s }} {{ ns.gone }}|{{ ns['n'] }}
{% set a, b = 1, 'two' %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c + d }}{% set t = 1, %}{{ t }}
{% set block %}  in {{ 1 + 1 }}{% endset %}[{{ block }}]{% set up | upper | trim %} loud {% endset %}[{{ up }}]
{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c=5) }} {{ f(b=0, a=9) }} {{ f() }}
{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, k=3) }} {% macro g(a) %}{{ a }}{% endmacro %}{{ g(*[7]) }}{{ g(**{'a': 8}) }}
{% macro wrap(tag) %}<{{ tag }}>{{ caller(1) }}</{{ tag }}>{% endmacro %}{% call(n) wrap('b') %}in {{ n }}{% endcall %}
{% macro down(n) %}{{ n }}{% if n > 0 %}{{ down(n - 1) }}{% endif %}{% endmacro %}{{ down(5) }}
{% macro outer() %}{{ seen }}{% endmacro %}{% set seen = 'late' %}{{ outer() }}{% for seen in [1] %}{{ outer() }}{% endfor %}
{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}| {% filter upper | replace('B', 'c') %}abc{% endfilter %}
{% generation %}answer{% set y = 1 %}{% endgeneration %}{{ y }}|
{{ nothing }}|{{ nothing is defined }} {{ items is defined }} {{ nothing is undefined }} {{ nothing | default('d') }} {{ '' | default('d') }}| {{ '' | default('d', true) }} {{ none | d('x') }}
{{ 1 is number }} {{ true is number }} {{ true is integer }} {{ 1 is integer }} {{ 1.0 is float }} {{ 'a' is string }} {{ record is mapping }} {{ items is sequence }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ none is none }} {{ true is true }} {{ 1 is true }} {{ false is boolean }}
{{ 3 is odd }} {{ 4 is even }} {{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }} {{ 1 is eq 1 }} {{ 1 is in [1] }} {{ 2 is gt(1) }} {{ 'a' is lower }} {{ 'A' is upper }} {{ 1 is not none }} {{ range is callable }} {{ 1 is sameas 1 }} {{ nothing is none }}
{{ '  a b ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ ' a '.strip() }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ 'xyax'.strip('yx') }}|{{ 'ab'.rstrip('b') }}
{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ '  a b  c '.split(none, 1) }} {{ '  a b  c '.rsplit(none, 1) }} {{ ''.split(',') }} {{ ''.split() }} {{ 'a\nb\r\nc\n'.splitlines() }}
{{ 'abc'.startswith('a') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.find('c') }} {{ 'abc'.find('z') }} {{ 'é-é'.rfind('é') }} {{ 'aaa'.count('a') }} {{ 'aba'.replace('a', 'x', 1) }} {{ 'abc'.replace('', '-') }} {{ 'ab'.join(['1', '2', '3']) }}
{{ 'hello wORLD'.title() }} {{ 'hello wORLD'.capitalize() }} {{ 'Ab é'.upper() }} {{ 'AB É'.lower() }} {{ "they're bill's".title() }} {{ 'foo bar-baz (qux' | title }} {{ 'aB' | capitalize }} {{ '12'.isdigit() }} {{ ' '.isspace() }} {{ 'ab'.isalpha() }} {{ 'pre-fix'.removeprefix('pre-') }} {{ 'a.py'.removesuffix('.py') }}
{{ '{} and {}'.format(1, 'b') }} {{ '{0}{0}{x}{{}}'.format(1, x=2) }} {{ '%s-%d-%%' % ('a', 5) }} {{ '%s' % 1 }} {{ '%s %s' | format('a', 2) }} {{ '%(a)s' | format(a=1) }}
{{ items | first }} {{ items | last }} {{ [] | first }}| {{ items | length }} {{ text | length }} {{ record | count }} {{ items | sum }} {{ items | join('-') }} {{ items | reverse | list }} {{ 'abc' | reverse }} {{ items | max }} {{ items | min }}
{{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A', 'c'] | sort(case_sensitive=true) }} {{ items | sort(reverse=true) }} {{ people | sort(attribute='age') | map(attribute='name') | join(',') }} {{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }} {{ ['a', 'A', 'b'] | unique | list }}
{{ people | selectattr('age') | map(attribute='name') | list }} {{ people | selectattr('age', '>', 20) | list | length }} {{ people | rejectattr('name', 'equalto', 'Bo') | map(attribute='name') | list }} {{ items | select('odd') | list }} {{ items | reject('gt', 2) | list }} {{ ['a ', ' b'] | map('trim') | list }} {{ people | map(attribute='x', default='-') | list }} {{ [] | select | list }}
{{ (items | select('gt', 99)) is iterable }} {{ 'true' if items | select('gt', 99) else 'false' }} {{ items | map('string') | first }} {{ record | items | list | length }} {{ nothing | items | list }} {{ none | selectattr('x') | list }}
{{ 3.7 | int }} {{ '12' | int }} {{ 'x' | int }} {{ 'x' | int(-1) }} {{ '1.5' | float }} {{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 2.1 | round(method='ceil') }} {{ -3 | abs }} {{ 5 | string + '5' }}
{{ 'a\nb\n\nc' | indent(2) }}|{{ 'a\nb' | indent('> ', first=true) }} {{ '<a href="x">&\'' | e }} {{ ('<' | safe) + '<' }} {{ 'a-b' | replace('-', '+') }} {{ 'x' | list }} {{ record | attr('keys') is callable }}
{{ record | tojson }} {{ [1, 1.5, true, none, 'é\n"\\'] | tojson }} {{ {'b': [1, {}], 'a': []} | tojson(indent=2) }} {{ 'é😀' | tojson(ensure_ascii=true) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ {'a': 1} | tojson(separators=(',', ':')) }}
{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ dict(a=1, b=2) }} {{ strftime_now('%Y-%m-%d %H:%M:%S %j %a %A %d %b %B %y %-d') }}
{% if false %}{{ x | nofilter }}{% elif 1 is string %}{{ 1 }}{% else %}skipped{% endif %}
{{ {'a': {'b': 1}}['a']['b'] }}{{ {'}}': '%}'} }}{% set z = {'k': {'j': 1}} %}{{ z.k.j }}
{{ undefined_thing.attribute }}
{{ undefined_thing + 1 }}
{{ none.x }}|{{ none.x.y }}
{{ items.append(1) }}
{{ record.update({'a': 1}) }}
{{ 1 + 'a' }}
{{ [1] < 2 }}
{{ 1 in 'abc' }}
{{ 1 / 0 }}
{{ items | length(1) }}
{{ raise_exception('no: ' ~ 1) }}
{{ undefined_function() }}
{{ undefined_thing | tojson }}
{% for x in 5 %}{% endfor %}
{% set a, b = [1] %}
{% set record.name = 1 %}
{{ items | map('upper') | length }}
{{ range(200000) }}
{% if %}{% endif %}
{% if x %}
{% endif %}
{{ 1 +
{{ 'abc }}
{% for x y %}{% endfor %}
{{ (1 }}
{{ 1 1 }}
{% break %}
{# no end
{% unknown %}
""".strip().splitlines()
VARIABLES = {
    "text": "héllo",
    "items": [1, 2, 3, 4],
    "record": {"name": "n", "keys": "k", "inner": {"deep": ["first"]}},
    "people": [{"name": "Al", "age": 30}, {"name": "Bo", "age": 0}, {"name": "Cy", "age": 25}],
    "tree": [{"n": 1, "kids": [{"n": 2, "kids": [{"n": 3}]}]}, {"n": 4}],
}


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def refuse(message):
    raise TemplateError(message)


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = lambda value, ensure_ascii=False, **style: json.dumps(value, ensure_ascii=ensure_ascii, **style)
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = DATE.strftime
    return made


def rendered(template, variables):
    """None where the template refuses, or fails."""
    try:
        return environment().from_string(template).render(**variables)
    except (TemplateError, TypeError, ValueError, ArithmeticError, SyntaxError):
        return None


def chat(text, messages):
    return rendered(text, TOKENS | {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True})


def main(path):
    pieces = [{"template": text, "text": rendered(text, VARIABLES)} for text in PIECES]
    chats = [{"name": name, "template": text, "renders": [{"messages": messages, "text": chat(text, messages)} for messages in CONVERSATIONS]}
             for name, text in TEMPLATES.items()]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"variables": VARIABLES, "pieces": pieces, "tokens": TOKENS, "chats": chats}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
