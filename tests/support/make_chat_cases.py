#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/unit/model/data/chat_cases.json: conversations as Jinja renders them (jinja2 3.1, set up as transformers
does). The templates are those of models, cut down to plain turns: the spelling of their literals is what is recognised.
Run: make_chat_cases.py OUTPUT"""
import json
import sys

from jinja2.sandbox import ImmutableSandboxedEnvironment

CHATML_TURNS = r"""{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

CHATML_DEFAULT = r"""{%- if tools %}{{- '<|im_start|>system\n' }}{{- tools }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are \'Q\'. You help.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role != "system" or not loop.first %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

LLAMA2 = r"""{% if messages[0]['role'] == 'system' %}{% set turns = messages[1:] %}{% set system_message = messages[0]['content'] %}
{%- else %}{% set turns = messages %}{% set system_message = false %}{% endif %}
{%- for message in turns %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}
{%- else %}{% set content = message['content'] %}{% endif %}
{%- if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
{%- elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

LLAMA3 = r"""{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}
{%- if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

MISTRAL_V1 = r"""{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}
{%- elif message['role'] == 'assistant' %}{{ OPEN message['content'] + eos_token END}}{% else %}{{ raise_exception('No other roles.') }}{% endif %}{% endfor %}"""

MISTRAL_LAST = r"""{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in turns %}
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
"""

MISTRAL_FIRST = r"""{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}{%- set turns = messages[1:] %}
{%- else %}{%- set turns = messages %}{%- endif %}
{{- bos_token }}
{%- for message in turns %}
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system_message is defined %}
            {{- ' [INST] ' + system_message + '\n\n' + message['content'] + ' [/INST]' }}
        {%- else %}
            {{- ' [INST] ' + message['content'] + ' [/INST]' }}
        {%- endif %}
    {%- elif message['role'] == 'assistant' %}
        {{- ' ' + message['content'] + eos_token}}
    {%- endif %}
{%- endfor %}
"""

MISTRAL_SYSTEM = r"""{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST]S' + message['content'] + '[/INST]' }}
{%- elif message['role'] == 'system' %}{{ '[SYSTEM_PROMPT]S' + message['content'] + '[/SYSTEM_PROMPT]' }}
{%- elif message['role'] == 'assistant' %}{{ T + message['content'] + eos_token }}{% endif %}{% endfor %}"""

PHI3_USER = r"""BOS{% for message in messages %}{% if (message['role'] == 'system') %}{{'<|system|>' + '\n' + message['content'] + '<|end|>' + '\n'}}
{%- elif (message['role'] == 'user') %}{{'<|user|>' + '\n' + message['content'] + '<|end|>' + '\n' + '<|assistant|>' + '\n'}}
{%- elif (message['role'] == 'assistant') %}{{message['content'] + '<|end|>' + '\n'}}{% endif %}{% endfor %}"""

PHI3_ROLE = r"""{{ bos_token }}{% for message in messages %}{{'<|' + message['role'] + '|>' + '\n' + message['content'] + '<|end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"""

PHI4_MINI = r"""{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"""

TEMPLATES = [  # name, format, BOS, template
    ("ChatML", "chatml", "", CHATML_TURNS),
    ("Qwen 2.5", "chatml", "", CHATML_DEFAULT),
    ("InternLM 2", "chatml", "<s>", "{{ bos_token }}" + CHATML_TURNS),
    ("Llama 2", "llama2", "<s>", LLAMA2),
    ("Llama 3", "llama3", "<|begin_of_text|>", LLAMA3),
    ("Mistral 0.1", "mistral", "<s>", MISTRAL_V1.replace("OPEN ", "").replace("END", "+ ' ' ")),
    ("Mistral 0.2", "mistral", "<s>", MISTRAL_V1.replace("OPEN ", "").replace(" END", "")),
    ("Mistral 0.2, later", "mistral", "<s>", MISTRAL_FIRST),
    ("Mistral 0.3", "mistral", "<s>", MISTRAL_LAST),
    ("Mistral Nemo", "mistral", "<s>", MISTRAL_LAST.replace("[INST] ", "[INST]").replace('" " + message["content"]|trim', 'message["content"]')),
    ("Mistral Large 2411", "mistral", "<s>", MISTRAL_SYSTEM.replace("]S'", "] '").replace("T +", "' ' +")),
    ("Mistral Small 2501", "mistral", "<s>", MISTRAL_SYSTEM.replace("]S'", "]'").replace("T + ", "")),
    ("Phi-3 mini", "phi3", "<s>", PHI3_USER.replace("BOS", "{{ bos_token }}")),
    ("Phi-3 medium", "phi3", "<s>", PHI3_USER.replace("BOS", "")),
    ("Phi-3 small", "phi3", "<|endoftext|>", PHI3_ROLE),
    ("Phi-4 mini", "phi3", "<|endoftext|>", PHI4_MINI),
]

SYSTEM = {"role": "system", "content": "Be brief.\nNo \"lists\"."}
TURNS = [{"role": "user", "content": "Hi \u4f60\u597d [INST]"}, {"role": "assistant", "content": "Hello there"}, {"role": "user", "content": "What is 2 + 2?"}]
CONVERSATIONS = [TURNS[:1], [SYSTEM] + TURNS[:1], TURNS, [SYSTEM] + TURNS,
                 [{"role": turn["role"], "content": " \n" + turn["content"] + "  "} for turn in TURNS]]


class Refused(Exception):
    pass


def refuse(message):
    raise Refused(message)


def main(path):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    cases = []
    for name, chat_format, bos, text in TEMPLATES:
        renders = []
        for messages in CONVERSATIONS:
            try:
                rendered = environment.from_string(text).render(messages=messages, bos_token=bos, eos_token="</s>", add_generation_prompt=True)
            except Refused:
                continue
            renders.append({"messages": messages, "text": rendered})
        cases.append({"name": name, "format": chat_format, "bos": bos, "template": text, "renders": renders})
    with open(path, "w", encoding="utf-8") as file:
        json.dump(cases, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
