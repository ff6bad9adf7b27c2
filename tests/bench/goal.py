# SPDX-License-Identifier: Apache-2.0
"""How a measured figure stands to its goal, for the tables that the benches print."""


def at_most(value, goal):
    return f"at most {goal:g}: {'met' if value <= goal else 'MISSED'}"


def at_least(value, goal):
    return f"at least {goal:g}: {'met' if value >= goal else 'MISSED'}"
